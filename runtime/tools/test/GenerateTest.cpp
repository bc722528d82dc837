//===- GenerateTest.cpp - How texts end -----------------------------------===//
#include "../lib/Generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace foresight;
using namespace foresight::tools;
using testing::ElementsAre;

namespace {

/// Says the tokens of a script, one after the other.
class ScriptedModel : public TokenSource {
public:
  ScriptedModel(std::vector<int32_t> script, int64_t capacity = 1000)
      : script(std::move(script)), capacity(capacity) {}

  Status prompt(std::span<const int32_t> ids, int64_t mostTokens) override {
    position = static_cast<int64_t>(ids.size());
    asked = mostTokens;
    return {};
  }
  Result<int32_t> next() override {
    if (at > 0) {
      decoded.push_back(script[at - 1]);
      ++position;
    }
    if (at == script.size() || static_cast<int64_t>(at) == asked)
      return makeError(ErrorCode::Internal, "the script has ended");
    return script[at++];
  }
  int64_t room() const override { return capacity - position; }

  std::vector<int32_t> decoded;

private:
  std::vector<int32_t> script;
  size_t at = 0;
  int64_t capacity, position = 0, asked = 0;
};

class GenerateTest : public testing::Test {
protected:
  GenerateTest()
      : tokenizer(std::move(*text::Tokenizer::fromFolder(
            FORESIGHT_SOURCE_DIR "/examples/opt-mini"))) {}

  std::vector<int32_t> idsOf(const char *text) {
    return *tokenizer.encode(text, false);
  }
  Generated run(ScriptedModel &model, const GenerateOptions &options) {
    parts.clear();
    const int32_t prompt[] = {2};
    Result<Generated> made = generate(model, prompt, &tokenizer, options,
                                      [&](int32_t, std::string_view text) {
                                        if (!text.empty())
                                          parts.emplace_back(text);
                                        return Status();
                                      });
    EXPECT_TRUE(made.ok()) << made.error().message;
    std::string shown;
    for (const std::string &part : parts)
      shown += part;
    EXPECT_EQ(made->text, shown);
    return *made;
  }

  text::Tokenizer tokenizer;
  std::vector<std::string> parts;
};

TEST_F(GenerateTest, EndsAfterMaxNewTokensWithoutDecodingTheLast) {
  ScriptedModel model({10, 11, 12});
  const Generated made = run(model, {.maxNewTokens = 3});
  EXPECT_THAT(made.ids, ElementsAre(10, 11, 12));
  EXPECT_THAT(model.decoded, ElementsAre(10, 11));
  EXPECT_EQ(made.finish, Finish::Length);
}

TEST_F(GenerateTest, NoTokensAreMadeWhenNoneAreAskedFor) {
  ScriptedModel model({10});
  EXPECT_TRUE(run(model, {.maxNewTokens = 0}).ids.empty());
}

TEST_F(GenerateTest, EndOfTextEndsItAndIsNotShown) {
  ScriptedModel model({10, 2, 11});
  const Generated made = run(model, {.eosIds = {2}});
  EXPECT_THAT(made.ids, ElementsAre(10));
  EXPECT_EQ(made.finish, Finish::Eos);
}

TEST_F(GenerateTest, IgnoredEndOfTextGoesOn) {
  ScriptedModel model({10, 2, 11});
  const Generated made =
      run(model, {.maxNewTokens = 3, .eosIds = {2}, .ignoreEos = true});
  EXPECT_THAT(made.ids, ElementsAre(10, 2, 11));
  EXPECT_EQ(made.text.find("</s>"), std::string::npos);
}

TEST_F(GenerateTest, StopStringsEndTheTextAcrossTokens) {
  const std::vector<int32_t> script = idsOf("the old man looked at the sea");
  ASSERT_GT(script.size(), 4u);
  ScriptedModel model(script);
  const Generated made =
      run(model, {.maxNewTokens = static_cast<int64_t>(script.size()),
                  .stop = {"n looked a", "nothing"}});
  EXPECT_EQ(made.text, "the old ma");
  EXPECT_EQ(made.finish, Finish::Stop);
}

TEST_F(GenerateTest, TextThatMightHaveBecomeAStopStringIsShownAtTheEnd) {
  const std::vector<int32_t> script = idsOf("the sea");
  ScriptedModel model(script);
  const Generated made =
      run(model, {.maxNewTokens = static_cast<int64_t>(script.size()),
                  .stop = {"sea!"}});
  EXPECT_EQ(made.text, "the sea");
  EXPECT_EQ(made.finish, Finish::Length);
}

TEST_F(GenerateTest, CharactersAreShownWhole) {
  const std::vector<int32_t> script = idsOf("\xF0\x9F\x98\x80!");
  ASSERT_GT(script.size(), 2u) << "the character should take several tokens";
  ScriptedModel model(script);
  run(model, {.maxNewTokens = static_cast<int64_t>(script.size())});
  EXPECT_THAT(parts, ElementsAre("\xF0\x9F\x98\x80", "!"));
}

TEST_F(GenerateTest, AFullSequenceEndsTheText) {
  ScriptedModel model({10, 11, 12, 13, 14}, /*capacity=*/3);
  const Generated made = run(model, {.maxNewTokens = 10});
  EXPECT_EQ(made.finish, Finish::Capacity);
  EXPECT_THAT(made.ids, ElementsAre(10, 11, 12));
}

TEST_F(GenerateTest, AnErrorOfTheReceiverEndsTheText) {
  ScriptedModel model({10, 11});
  const int32_t prompt[] = {2};
  Result<Generated> made =
      generate(model, prompt, nullptr, {}, [](int32_t, std::string_view) {
        return Status(makeError(ErrorCode::Resource, "disk full"));
      });
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "disk full");
}

} // namespace
