//===- PickTest.cpp - Tokens picked on a GPU against the host's -----------===//
#include "Bundles.h"

#include "foresight/sampling/Random.h"
#include "foresight/sampling/Sampler.h"

#include <cmath>
#include <limits>

using namespace foresight;
using namespace foresight::test;

namespace {

using sampling::Sampler;
using sampling::SamplerOptions;

constexpr float kInf = std::numeric_limits<float>::infinity();

const SamplerOptions kOptions[] = {
    {},
    {.temperature = 1},
    {.temperature = 0.05},
    {.temperature = 300}, // a bin holds thousands
    {.temperature = 0.8, .topK = 40},
    {.temperature = 1.3, .topP = 0.9},
    {.temperature = 1, .topK = 500, .topP = 0.3},
    {.temperature = 1, .topK = 1 << 30, .topP = 1e-9},
};

class PickGpu : public testing::TestWithParam<std::filesystem::path> {
protected:
  Model model{GetParam()};

  Program &program() { return model.session().program(); }
  const EntryInfo &decoding() {
    return model.manifest().entries[model.session().decodeEntry()];
  }

  /// The token that the GPU picks from these logits; -1 for an error.
  int32_t pick(const std::vector<float> &logits,
               const SamplerOptions &options) {
    EXPECT_TRUE(
        program()
            .write(decoding().logits, 0, std::as_bytes(std::span(logits)))
            .ok());
    TokenRequest request;
    request.entry = model.session().decodeEntry();
    request.sampling = sampling::deviceOptions(options);
    request.position = 1;
    request.limit = 1;
    auto stream = program().pickTokens(request);
    EXPECT_TRUE(stream.ok()) << stream.error().message;
    Result<PickedToken> token = (*stream)->next();
    return token.ok() ? token->id : -1;
  }

  /// Logits of several kinds: like text's, alike, of few values, far apart.
  std::vector<std::vector<float>> manyLogits() {
    const auto count = static_cast<size_t>(model.manifest().model.vocabSize);
    std::vector<std::vector<float>> all;
    const auto make = [&](auto value) {
      std::vector<float> &logits = all.emplace_back(count);
      for (size_t i = 0; i < count; ++i) {
        double normal = -6;
        for (uint64_t part = 0; part < 12; ++part)
          normal += sampling::randomUnit(all.size(), 12 * i + part);
        logits[i] = static_cast<float>(value(i, normal));
      }
    };
    make([](size_t, double x) { return 3 * x; });
    make([](size_t, double x) { return 1e-3 * x; });
    make([](size_t, double) { return -2.5; });
    make([](size_t, double x) { return std::floor(x); });
    make([](size_t, double x) { return 60 * x; });
    make([](size_t i, double x) { return i % 3 ? x : -kInf; });
    make([](size_t i, double x) { return i % 2 ? -0.0 : std::min(x, 0.0); });
    return all;
  }
};

TEST_P(PickGpu, GivesTheTokensOfTheHost) {
  const auto all = manyLogits();
  for (const SamplerOptions &plain : kOptions)
    for (size_t kind = 0; kind < all.size(); ++kind)
      for (uint64_t seed = 0; seed < 12; ++seed) {
        SamplerOptions options = plain;
        options.seed = seed;
        ASSERT_EQ(pick(all[kind], options),
                  *Sampler(options).sample(all[kind], 0))
            << "logits " << kind << ", seed " << seed << ", temperature "
            << options.temperature << ", top-k " << options.topK << ", top-p "
            << options.topP;
      }
}

TEST_P(PickGpu, LogitsThatAreNoNumbersAreErrors) {
  std::vector<float> logits(
      static_cast<size_t>(model.manifest().model.vocabSize), 1);
  for (const SamplerOptions &options : {kOptions[0], kOptions[4]}) {
    for (const float odd : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
      std::vector<float> damaged = logits;
      damaged[damaged.size() - 1] = odd;
      EXPECT_EQ(pick(damaged, options), -1);
    }
    EXPECT_EQ(pick(std::vector<float>(logits.size(), -kInf), options), -1);
    // What was found is forgotten.
    EXPECT_GE(pick(logits, options), 0);
  }
}

/// Steps that feed themselves make the text that the host makes step by step.
TEST_P(PickGpu, ATextIsThatOfTheHost) {
  Session &session = model.session();
  const std::vector<int32_t> prompt = {2, 5, 7, 4, 9};
  const auto most = std::min<int64_t>(
      40, session.capacity() - static_cast<int64_t>(prompt.size()) + 1);
  for (SamplerOptions options : kOptions) {
    options.seed = 17;
    ASSERT_TRUE(session.reset().ok());
    Sampler sampler(options);
    std::vector<int32_t> expected, found;
    auto logits = session.prompt(prompt);
    for (int64_t i = 0; i < most; ++i) {
      if (i > 0)
        logits = session.decode(expected.back());
      ASSERT_TRUE(logits.ok());
      expected.push_back(*sampler.sample(*logits, static_cast<uint64_t>(i)));
    }
    ASSERT_TRUE(session.reset().ok());
    ASSERT_TRUE(session.feed(prompt).ok());
    ASSERT_TRUE(
        session.startTokens(sampling::deviceOptions(options), most).ok());
    for (int64_t i = 0; i < most; ++i) {
      Result<PickedToken> token = session.nextToken();
      ASSERT_TRUE(token.ok()) << token.error().message;
      found.push_back(token->id);
    }
    EXPECT_EQ(found, expected) << options.temperature;
    EXPECT_EQ(session.position(),
              static_cast<int64_t>(prompt.size()) + most - 1);
    EXPECT_FALSE(session.nextToken().ok());
  }
}

/// What was computed ahead of a text that ends is forgotten.
TEST_P(PickGpu, ATextGoesOnWhereItWasLeft) {
  Session &session = model.session();
  const std::vector<int32_t> prompt = {2, 5, 7};
  const foresight_sampling greedy{};
  const auto take = [&](int64_t limit, int64_t count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    EXPECT_TRUE(session.startTokens(greedy, limit).ok());
    for (int32_t &id : ids)
      id = session.nextToken()->id;
    return ids;
  };
  ASSERT_TRUE(session.feed(prompt).ok());
  const std::vector<int32_t> whole = take(6, 6);
  ASSERT_TRUE(session.reset().ok());
  ASSERT_TRUE(session.feed(prompt).ok());
  std::vector<int32_t> parts = take(6, 3);
  ASSERT_TRUE(session.feed(std::span(&parts[2], 1)).ok());
  EXPECT_EQ(session.position(), 6);
  for (const int32_t id : take(3, 3))
    parts.push_back(id);
  EXPECT_EQ(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(Bundles, PickGpu, testing::ValuesIn(allBundles()),
                         nameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PickGpu);

} // namespace
