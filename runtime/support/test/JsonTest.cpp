//===- JsonTest.cpp - JSON and profiles -----------------------------------===//

#include "foresight/support/Json.h"
#include "foresight/support/Profile.h"

#include <cmath>
#include <ctime>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace foresight;
using testing::HasSubstr;

namespace {

TEST(JsonTest, ErrorsSayWhichMemberOfWhat) {
  auto json = parseJson(R"({"n": 3, "x": 3.5, "s": "t", "a": [1, 2]})", "f");
  ASSERT_TRUE(json.ok());
  const JsonObject object{*json, "f: model"};
  EXPECT_EQ(*read<int64_t>(object, "n"), 3);
  EXPECT_EQ(*read<double>(object, "n"), 3.0);
  EXPECT_EQ(*readOr<int64_t>(object, "absent", 9), 9);
  EXPECT_EQ(*read<std::vector<int64_t>>(object, "a"),
            (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read<int64_t>(object, "x").error().message,
            "f: model: \"x\" must be a whole number, found 3.5");
  EXPECT_EQ(read<int64_t>(object, "y").error().message,
            "f: model: \"y\" is missing; expected a whole number");
  EXPECT_EQ(readObject(object, "s").error().message,
            "f: model: \"s\" must be an object, found \"t\"");
}

TEST(JsonTest, BadTextIsAnErrorNotAnException) {
  for (const char *text : {"", "{", "{\"a\":}", "[1,", "nul", "\"\xff\"",
                           "{\"a\":1,\"a\":2}", "1 2"}) {
    auto json = parseJson(text, "file.json");
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_THAT(json.error().message, HasSubstr("file.json"));
  }
  auto array = parseJson("[1]", "f");
  ASSERT_TRUE(array.ok());
  EXPECT_FALSE(read<int64_t>({*array, "f"}, "a").ok());
  EXPECT_EQ(dumpJson(Json("\xff")), "\"\xef\xbf\xbd\"");
}

TEST(JsonTest, DeepNestingIsHandled) {
  for (const size_t depth : {size_t{201}, size_t{1000}, size_t{300000}}) {
    auto json = parseJson("{\"a\":" + std::string(depth, '[') +
                              std::string(depth, ']') + "}",
                          "f");
    ASSERT_FALSE(json.ok()) << depth;
    EXPECT_EQ(json.error().message, "f: is nested deeper than 200 levels");
  }
  EXPECT_FALSE(parseJson(std::string(100000, '['), "f").ok());
  EXPECT_TRUE(
      parseJson(std::string(200, '[') + std::string(200, ']'), "f").ok());
}

TEST(JsonTest, ManySmallObjectsAreReadInNoTime) {
  std::string list = "[{}", members = "{\"\": {}";
  for (int i = 0; i < 200'000; ++i) {
    list += ",{}";
    members += ",\"" + std::to_string(i) + "\":{}";
  }
  const std::clock_t begin = std::clock();
  auto array = parseJson(list + "]", "f"),
       object = parseJson(members + "}", "f");
  ASSERT_TRUE(array.ok() && object.ok());
  EXPECT_EQ(array->size(), 200'001U);
  EXPECT_EQ(object->size(), 200'001U);
  // Time in a square of their number would be minutes.
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 10);
  EXPECT_EQ(parseJson(members + R"(,"7":{}})", "f").error().message,
            "f: the key \"7\" occurs twice in one object");
}

TEST(ProfileTest, SurvivesTheWayThroughJson) {
  Profile profile;
  profile.hiddenSize = 384;
  profile.ffnDim = {1536, 1504};
  profile.layers[0] = {LayerProfile::Rule::Margin, 4, 4.0};
  profile.layers[1] = {LayerProfile::Rule::Proof, 6, 0};
  profile.calibration = Profile::Calibration{"v.txt", 4096, 0.003, 20, 20.01};
  auto back = Profile::parse(profile.toJson(), "p.json");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->layers, profile.layers);
  EXPECT_EQ(back->ffnDim, profile.ffnDim);
  EXPECT_EQ(back->calibration->tokens, 4096);
  EXPECT_TRUE(back->checkModel("p.json", 384, {1536, 1504}).ok());
  EXPECT_FALSE(back->checkModel("p.json", 384, {1536, 1536}).ok());
  EXPECT_NEAR(back->find(0)->kappa(384), 4 / std::sqrt(384.0), 1e-15);
  EXPECT_EQ(back->find(1)->kappa(384), 1);
  EXPECT_EQ(back->find(2), nullptr);
}

TEST(ProfileTest, EveryRuleIsChecked) {
  const std::pair<const char *, const char *> cases[] = {
      {R"({"layer":2,"rule":"skip"})", "names layer 2 of 2"},
      {R"({"layer":-1,"rule":"skip"})", "names layer -1 of 2"},
      {R"({"layer":0,"rule":"magic"})",
       "'magic'; it must be one of proof, margin, low_rank, skip, dense"},
      {R"({"layer":0,"rule":"proof"})", "\"bits\" is missing"},
      {R"({"layer":0,"rule":"proof","bits":9})", "from 2 to 8"},
      {R"({"layer":0,"rule":"margin","bits":4})", "\"margin\" is missing"},
      {R"({"layer":0,"rule":"margin","bits":4,"margin":-1})", "from 0 to"},
      {R"({"layer":0,"rule":"skip","lookahead":"far"})", "'far'"},
      {R"({"layer":0,"rule":"proof","bits":6,"lookahead":"block"})",
       "not proven"},
      {R"({"layer":0,"rule":"skip"},{"layer":0,"rule":"skip"})",
       "listed twice"},
      {R"({"rule":"skip"})", "\"layer\" is missing"},
      {R"(7)", "expected an object"},
  };
  for (const auto &[layers, message] : cases) {
    const std::string text =
        R"({"format":1,"model":{"hidden_size":8,"ffn_dim":[32],"layers":2},)"
        R"("layers":[)" +
        std::string(layers) + "]}";
    auto profile = Profile::parse(text, "p.json");
    ASSERT_FALSE(profile.ok()) << layers;
    EXPECT_THAT(profile.error().message, HasSubstr(message));
    EXPECT_THAT(profile.error().message, HasSubstr("p.json"));
  }
  EXPECT_THAT(Profile::parse(R"({"format":2})", "p").error().message,
              HasSubstr("format 2"));
}

} // namespace
