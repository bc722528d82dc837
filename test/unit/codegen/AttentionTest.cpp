//===- AttentionTest.cpp - Heads over a cache -----------------------------===//

#include "../Format.h"
#include "KernelHarness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace foresight;
using namespace foresight::testing;
using Floats = std::vector<float>;

namespace {

struct Case {
  std::string variant;
  int64_t heads, headDim;
  Element element;
};

class AttentionTest : public ::testing::TestWithParam<Case> {
protected:
  static constexpr int64_t kCapacity = 128;

  void SetUp() override {
    for (const CpuVariant &v : runnableVariants())
      if (v.name == GetParam().variant)
        variant = findCpuVariant(v.name);
    if (!variant)
      GTEST_SKIP() << "this machine does not run " << GetParam().variant;
    heads = GetParam().heads;
    headDim = GetParam().headDim;
    element = GetParam().element;
    d = heads * headDim;
    paddedDim = (headDim + 15) / 16 * 16;
    cacheType = str("!foresight.kv_cache<%ld x %ld, %ld, %s>", heads, headDim,
                    int64_t(kCapacity), nameOf(element).c_str());
  }

  std::string append(const char *row, const char *ids) {
    return str("%%kv1 = foresight.kv_append %%kv, %%k, %%v at %%pos : %s, %s, "
               "%s\n",
               cacheType.c_str(), row, ids);
  }
  std::string attend(const char *cache, const char *row, const char *ids) {
    return str("%%a = foresight.attention %%q, %s at %%pos scale = %f : %s, "
               "%s, %s -> %s\n",
               cache, scale(), row, cacheType.c_str(), ids, row);
  }
  double scale() const { return 0.25; }

  /// Everything but what tokens wrote is NaN.
  Memory makeCache() {
    Memory cache(2 * heads * kCapacity * paddedDim * bytesOf(element));
    for (int64_t i = 0; i < 2 * heads * kCapacity * paddedDim; ++i)
      storeAs(element, cache.data(), i, std::nanf(""));
    return cache;
  }
  float cached(const Memory &cache, int64_t plane, int64_t h, int64_t s,
               int64_t j) {
    return loadAs(element, cache.data(),
                  ((plane * heads + h) * kCapacity + s) * paddedDim + j);
  }

  void expectAttention(const Memory &cache, const float *query,
                       int64_t position, const float *result) {
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<double> p(position + 1), expected(headDim);
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t s = 0; s <= position; ++s) {
        for (int64_t j = 0; j < headDim; ++j)
          p[s] += double(query[h * headDim + j]) * cached(cache, 0, h, s, j);
        p[s] *= scale();
        largest = std::max(largest, p[s]);
      }
      for (double &x : p)
        sum += x = std::exp(x - largest);
      for (int64_t s = 0; s <= position; ++s)
        for (int64_t j = 0; j < headDim; ++j)
          expected[j] += p[s] / sum * cached(cache, 1, h, s, j);
      for (int64_t j = 0; j < headDim; ++j)
        ASSERT_NEAR(expected[j], result[h * headDim + j], 2e-5)
            << "head " << h << " column " << j << " position " << position;
    }
    for (int64_t k = d; k < padded(d); ++k)
      ASSERT_EQ(result[k], 0.0f) << "padding at " << k;
  }

  const CpuVariant *variant = nullptr;
  int64_t heads, headDim, d, paddedDim;
  Element element;
  std::string cacheType;
};

TEST_P(AttentionTest, DecodeAppendsAndAttends) {
  std::string row = str("tensor<1x%ldxf32>", d), error;
  auto kernels = Kernels::compile(
      "foresight.kernel @a(%kv: " + cacheType + ", %q: " + row +
          ", %k: " + row + ", %v: " + row + ", %pos: tensor<1xi32>) {\n" +
          append(row.c_str(), "tensor<1xi32>") +
          attend("%kv1", row.c_str(), "tensor<1xi32>") +
          "foresight.yield %kv1, %a : " + cacheType + ", " + row + "\n}",
      *variant, error);
  ASSERT_TRUE(kernels) << error;
  Memory cache = makeCache(), position(4);
  for (int32_t t = 0; t < 100; ++t) {
    // Some scores stand out, so that the largest is not the first or last.
    Memory q = makeRows(1, d, randomValues(3 * t, d, 2)),
           k = makeRows(1, d, randomValues(3 * t + 1, d, 2)),
           v = makeRows(1, d, randomValues(3 * t + 2, d)), out = makeRows(1, d);
    std::memset(out.data(), 0xff, out.size());
    *position.as<int32_t>() = t;
    kernels->run("a",
                 {cache.data(), q.data(), k.data(), v.data(), position.data(),
                  cache.data(), out.data()},
                 {1, t}, t % 3);
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t j = 0; j < headDim; ++j) {
        ASSERT_EQ(cached(cache, 0, h, t, j),
                  roundTo(element, k.as<float>()[h * headDim + j]));
        ASSERT_EQ(cached(cache, 1, h, t, j),
                  roundTo(element, v.as<float>()[h * headDim + j]));
      }
    expectAttention(cache, q.as<float>(), t, out.as<float>());
    if (HasFatalFailure())
      return;
  }
}

TEST_P(AttentionTest, PromptAppendsThenAttends) {
  std::string row = str("tensor<?x%ldxf32>", d), error;
  auto kernels = Kernels::compile(
      "foresight.kernel @append(%kv: " + cacheType + ", %k: " + row +
          ", %v: " + row + ", %pos: tensor<?xi32>) {\n" +
          append(row.c_str(), "tensor<?xi32>") + "foresight.yield %kv1 : " +
          cacheType + "\n}\nforesight.kernel @attend(%kv: " + cacheType +
          ", %q: " + row + ", %pos: tensor<?xi32>) {\n" +
          attend("%kv", row.c_str(), "tensor<?xi32>") +
          "foresight.yield %a : " + row + "\n}",
      *variant, error);
  ASSERT_TRUE(kernels) << error;
  constexpr int64_t kTokens = 21, kFirst = 3;
  Memory cache = makeCache(), positions(4 * kTokens), first(4 * kFirst);
  Memory q = makeRows(kTokens, d, randomValues(1, kTokens * d, 2)),
         k = makeRows(kTokens, d, randomValues(2, kTokens * d, 2)),
         v = makeRows(kTokens, d, randomValues(3, kTokens * d)),
         out = makeRows(kTokens, d);
  std::memset(out.data(), 0xff, out.size());
  for (int32_t i = 0; i < kTokens; ++i)
    positions.as<int32_t>()[i] = kFirst + i;
  for (int32_t i = 0; i < kFirst; ++i)
    first.as<int32_t>()[i] = i;
  kernels->run("append",
               {cache.data(), v.data(), k.data(), first.data(), cache.data()},
               {kFirst, 0});
  kernels->run(
      "append",
      {cache.data(), k.data(), v.data(), positions.data(), cache.data()},
      {kTokens, kFirst}, 2);
  kernels->run("attend", {cache.data(), q.data(), positions.data(), out.data()},
               {kTokens, kFirst}, 5);
  for (int64_t t = 0; t < kTokens; ++t)
    expectAttention(cache, q.as<float>() + t * padded(d), kFirst + t,
                    out.as<float>() + t * padded(d));
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const char *variant : {"x86-64-v3", "x86-64-v4"}) {
    result.push_back({variant, 4, 12, Element::F16});
    result.push_back({variant, 3, 16, Element::BF16});
    result.push_back({variant, 2, 80, Element::F32});
    result.push_back({variant, 2, 64, Element::F16});
    result.push_back({variant, 2, 128, Element::BF16});
    result.push_back({variant, 3, 5, Element::F16});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTest, ::testing::ValuesIn(cases()),
                         [](const auto &info) {
                           std::string name = info.param.variant;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" +
                                  std::to_string(info.param.heads) + "x" +
                                  std::to_string(info.param.headDim) + "_" +
                                  nameOf(info.param.element);
                         });

} // namespace
