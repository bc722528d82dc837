//===- SamplerTest.cpp ----------------------------------------------------===//
#include "foresight/sampling/Sampler.h"
#include "foresight/sampling/Random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

using namespace foresight;
using namespace foresight::sampling;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

static int32_t pick(const SamplerOptions &options,
                    const std::vector<float> &logits, uint64_t index = 0) {
  Result<int32_t> id = Sampler(options).sample(logits, index);
  EXPECT_TRUE(id.ok()) << id.error().message;
  return *id;
}

/// How often each token is drawn in `draws` draws.
static std::map<int32_t, double> shares(SamplerOptions options,
                                        const std::vector<float> &logits,
                                        int draws = 20000) {
  Sampler sampler(options);
  std::map<int32_t, double> counts;
  for (int i = 0; i < draws; ++i)
    counts[*sampler.sample(logits, i)] += 1.0 / draws;
  return counts;
}

TEST(Random, IsSplitMix64) {
  EXPECT_EQ(randomBits(1234567, 0), 6457827717110365317u);
  EXPECT_EQ(randomBits(1234567, 1), 3203168211198807973u);
  EXPECT_EQ(randomBits(1234567, 4), 16408922859458223821u);
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_GE(randomUnit(i, i), 0.0);
    EXPECT_LT(randomUnit(i, i), 1.0);
  }
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowerIdOfEquals) {
  EXPECT_EQ(pick({}, {0, 3, 1, 3}), 1);
  EXPECT_EQ(pick({}, {-5}), 0);
  EXPECT_EQ(pick({}, {-kInf, -kInf, -7}), 2);
}

TEST(Sampler, OneCandidateIsGreedyWhateverTheTemperature) {
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(pick({.temperature = 9, .topK = 1}, {0, 3, 1, 3}, i), 1);
    EXPECT_EQ(pick({.temperature = 1, .topP = 1e-9}, {0, 3, 1, 3}, i), 1);
  }
}

TEST(Sampler, DrawsFollowTheSoftmaxOfTheTemperature) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const std::vector<float> logits = {1, 0, 2, -1};
    auto drawn = shares({.temperature = temperature, .seed = 3}, logits);
    double total = 0;
    for (const float logit : logits)
      total += std::exp(logit / temperature);
    for (int i = 0; i < 4; ++i)
      EXPECT_NEAR(drawn[i], std::exp(logits[i] / temperature) / total, 0.015);
  }
}

TEST(Sampler, TopKKeepsTheLargestAndTheLowerIdsOfEquals) {
  auto drawn = shares({.temperature = 1, .topK = 2}, {1, 1, 1, 0});
  EXPECT_NEAR(drawn[0], 0.5, 0.02);
  EXPECT_NEAR(drawn[1], 0.5, 0.02);
  EXPECT_EQ(drawn.size(), 2u);
  EXPECT_EQ(shares({.temperature = 1, .topK = 99}, {1, 1, 1, 0}).size(), 4u);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f),
                                     std::log(0.2f)};
  EXPECT_EQ(shares({.temperature = 1, .topP = 0.49}, logits).size(), 1u);
  EXPECT_EQ(shares({.temperature = 1, .topP = 0.51}, logits).size(), 2u);
  auto drawn = shares({.temperature = 1, .topP = 0.79}, logits);
  EXPECT_NEAR(drawn[0], 0.625, 0.02);
  EXPECT_EQ(shares({.temperature = 1, .topP = 0.85}, logits).size(), 3u);
}

TEST(Sampler, TheSameSeedAndIndexDrawTheSameToken) {
  const std::vector<float> logits(100, 0.f);
  std::vector<int32_t> first, again, other;
  for (uint64_t i = 0; i < 20; ++i) {
    first.push_back(pick({.temperature = 1, .seed = 5}, logits, i));
    again.push_back(pick({.temperature = 1, .seed = 5}, logits, i));
    other.push_back(pick({.temperature = 1, .seed = 6}, logits, i));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST(Sampler, LogitsThatAreNoNumbersAreErrors) {
  for (const SamplerOptions &options :
       {SamplerOptions{}, SamplerOptions{.temperature = 1}})
    for (const std::vector<float> &logits :
         {std::vector<float>{0, kNan, 1}, {0, kInf}, {-kInf, -kInf}, {}}) {
      Result<int32_t> id = Sampler(options).sample(logits, 0);
      ASSERT_FALSE(id.ok());
      EXPECT_EQ(id.error().code, ErrorCode::BadBundle);
    }
}

TEST(Sampler, ImpossibleTokensAreNeverDrawn) {
  EXPECT_EQ(shares({.temperature = 1}, {-kInf, 0, -kInf}).size(), 1u);
}

TEST(Sampler, WeightsArePowersOfTwo) {
  const float scale = deviceOptions({.temperature = 0.7}).scale;
  EXPECT_EQ(tokenWeight(0, scale), uint64_t{1} << 40);
  EXPECT_EQ(tokenWeight(-kInf, scale), 0u);
  EXPECT_EQ(tokenWeight(-0.25f, 4), uint64_t{1} << 39);
  EXPECT_EQ(tokenWeight(-40, 1), 1u);
  for (int i = 0; i < 876; ++i) {
    const float below = -0.0137f * static_cast<float>(i);
    const double expected = std::exp(below / 0.7) * 0x1p40;
    EXPECT_NEAR(static_cast<double>(tokenWeight(below, scale)), expected,
                2e-6 * expected + 1)
        << below;
  }
}

/// Every device has these: a fused product and sum would give others.
TEST(Sampler, WeightsAreTheSameIntegersEverywhere) {
  EXPECT_EQ(tokenWeight(-0.1776f, 1.4426950f), 920596119552u);
  EXPECT_EQ(tokenWeight(-0.2072f, 1.4426950f), 893745758208u);
  EXPECT_EQ(tokenWeight(-1.37f, 1.4426950f), 279393566720u);
  EXPECT_EQ(tokenWeight(-9.81f, 1.8033688f), 5195929u);
}

TEST(SamplerOptions, AtTheirEndsStaySampling) {
  EXPECT_EQ(deviceOptions({}).scale, 0);
  EXPECT_EQ(deviceOptions({.temperature = 1, .topK = 1}).scale, 0);
  EXPECT_TRUE(std::isfinite(deviceOptions({.temperature = 1e-300}).scale));
  EXPECT_GT(deviceOptions({.temperature = 1e300}).scale, 0);
  EXPECT_EQ(deviceOptions({.temperature = 1}).share, 0u);
  EXPECT_EQ(deviceOptions({.temperature = 1, .topP = 1e-30}).share, 1u);
  EXPECT_EQ(deviceOptions({.temperature = 1, .topP = 0.5}).share,
            uint64_t{1} << 63);
}

TEST(SamplerOptions, OutOfRangeIsUsage) {
  for (const SamplerOptions &options :
       {SamplerOptions{.temperature = -1}, SamplerOptions{.temperature = kNan},
        SamplerOptions{.temperature = kInf}, SamplerOptions{.topK = -1},
        SamplerOptions{.topP = 0}, SamplerOptions{.topP = 1.01},
        SamplerOptions{.topP = kNan}}) {
    Status status = checkOptions(options);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
  }
  EXPECT_TRUE(checkOptions({}).ok());
}
