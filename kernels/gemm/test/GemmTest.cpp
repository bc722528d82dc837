//===- GemmTest.cpp - Every engine against plain loops --------------------===//
#include "foresight/gemm/Gemm.h"
#include "foresight/support/Float.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace foresight::gemm {
namespace {

struct Shape {
  int64_t tokens, n, k;
};

/// A product over random operands. Memory is exactly as large as documented, so
/// that a sanitizer sees reads beyond it; gaps between rows hold NaN.
struct Case {
  Case(Shape shape, Layout layout, WeightType type, Activation activation,
       bool bias, bool residual, int64_t gap)
      : tokens(shape.tokens) {
    std::mt19937 random(static_cast<unsigned>(shape.n * 31 + shape.k));
    std::normal_distribution<float> normal;
    product.n = shape.n;
    product.k = shape.k;
    product.layout = layout;
    product.type = type;
    product.activation = activation;
    const int64_t rows = layout == Layout::OutIn ? shape.n : shape.k;
    const int64_t columns = layout == Layout::OutIn ? shape.k : shape.n;
    auto fill = [&](std::vector<float> &data, int64_t rows, int64_t columns,
                    int64_t stride) {
      data.assign(static_cast<size_t>((rows - 1) * stride + columns), NAN);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          data[static_cast<size_t>(r * stride + c)] = normal(random);
    };
    product.xStride = shape.k + gap;
    fill(x, tokens, shape.k, product.xStride);
    product.x = x.data();
    product.weightStride = columns + gap;
    fill(weight, rows, columns, product.weightStride);
    if (type != WeightType::F32) {
      narrow.resize(weight.size());
      if (type == WeightType::F16)
        floatToHalf(weight.data(), narrow.data(), weight.size());
      else
        floatToBfloat(weight.data(), narrow.data(), weight.size());
      product.weight = narrow.data();
    } else {
      product.weight = weight.data();
    }
    if (bias) {
      fill(biases, 1, shape.n, shape.n);
      product.bias = biases.data();
    }
    product.residualStride = product.yStride = shape.n + gap;
    if (residual) {
      fill(residuals, tokens, shape.n, product.residualStride);
      product.residual = residuals.data();
    }
  }

  /// y of `engine`, units computed `step` at a time from the last to the first.
  std::vector<float> run(const Engine &engine, int64_t step = 1 << 20,
                         bool inPlace = false) {
    const size_t size =
        static_cast<size_t>((tokens - 1) * product.yStride + product.n);
    std::vector<float> y(size, -7.0f);
    if (inPlace)
      y = residuals;
    Product actual = product;
    actual.y = y.data();
    if (inPlace)
      actual.residual = y.data();
    const size_t bytes =
        static_cast<size_t>(engine.scratchBytes(product, tokens));
    std::unique_ptr<void, void (*)(void *)> scratch(
        std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
    std::memset(scratch.get(), 0xff, bytes);
    engine.prepare(actual, tokens, scratch.get());
    for (int64_t end = engine.units(actual, tokens); end > 0; end -= step)
      engine.compute(actual, tokens, scratch.get(),
                     std::max<int64_t>(0, end - step), end);
    return y;
  }

  void expectClose(const std::vector<float> &expected,
                   const std::vector<float> &found) {
    ASSERT_EQ(expected.size(), found.size());
    // Rounding grows with the length of a sum; a missing or wrong term would
    // be of size 1.
    const float tolerance = 1e-6f * static_cast<float>(product.k) + 2e-6f;
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(expected[i], found[i], tolerance) << "element " << i;
  }

  Product product;
  int64_t tokens;
  std::vector<float> x, weight, biases, residuals;
  std::vector<uint16_t> narrow;
};

class GemmTest : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    std::string reason;
    engine = findEngine(GetParam(), &reason);
    if (!engine)
      GTEST_SKIP() << GetParam() << ": " << reason;
  }
  const Engine *engine = nullptr;
};

TEST_P(GemmTest, AgreesWithPlainLoopsOverOddShapes) {
  const Shape shapes[] = {{1, 1, 1},
                          {1, 32, 64},
                          {2, 33, 65},
                          {5, 50, 384},
                          {7, 48, 385},
                          {8, 49, 31},
                          {9, 65, 400},
                          {13, 131, 97},
                          {16, 64, 768},
                          {17, 96, 769},
                          {31, 47, 1000},
                          {33, 300, 37},
                          {128, 100, 130},
                          // Several blocks a unit where weights are in_out.
                          {18, 1157, 385},
                          {30, 1157, 385},
                          {24, 97, 260},
                          {25, 97, 260},
                          {2, 2500, 40}};
  for (const Shape &shape : shapes)
    for (Layout layout : {Layout::OutIn, Layout::InOut})
      for (WeightType type :
           {WeightType::F32, WeightType::F16, WeightType::BF16}) {
        SCOPED_TRACE(testing::Message()
                     << shape.tokens << " x " << shape.n << " x " << shape.k
                     << (layout == Layout::OutIn ? " out_in" : " in_out")
                     << " type " << static_cast<int>(type));
        Case test(shape, layout, type, Activation::None, shape.n % 2 == 1,
                  shape.k % 2 == 1, shape.n % 3);
        test.expectClose(test.run(*findEngine("reference")), test.run(*engine));
      }
}

TEST_P(GemmTest, AppliesEveryActivation) {
  for (Activation activation :
       {Activation::Relu, Activation::Gelu, Activation::GeluTanh}) {
    Case test({6, 70, 20}, Layout::OutIn, WeightType::F16, activation, true,
              true, 2);
    test.expectClose(test.run(*findEngine("reference")), test.run(*engine));
  }
}

TEST_P(GemmTest, ReluKeepsNanAndDropsInfinity) {
  Case test({2, 3, 4}, Layout::OutIn, WeightType::F32, Activation::Relu, true,
            false, 0);
  test.biases = {NAN, -INFINITY, INFINITY};
  test.product.bias = test.biases.data();
  const std::vector<float> y = test.run(*engine);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], INFINITY);
}

TEST_P(GemmTest, ResultDoesNotDependOnHowUnitsAreCut) {
  for (Layout layout : {Layout::OutIn, Layout::InOut}) {
    Case test({19, 300, 500}, layout, WeightType::F16, Activation::Relu, true,
              true, 0);
    EXPECT_EQ(test.run(*engine), test.run(*engine, 1));
    EXPECT_EQ(test.run(*engine), test.run(*engine, 3));
  }
}

TEST_P(GemmTest, RowsDoNotDependOnHowManyThereAre) {
  if (GetParam() == std::string("onednn"))
    GTEST_SKIP() << "oneDNN chooses its sums by the shape";
  for (Layout layout : {Layout::OutIn, Layout::InOut}) {
    Case test({40, 130, 300}, layout, WeightType::F16, Activation::None, true,
              false, 0);
    const std::vector<float> all = test.run(*engine);
    for (int64_t tokens : {1, 2, 5, 7, 13, 24, 25, 39}) {
      SCOPED_TRACE(tokens);
      test.tokens = tokens;
      const std::vector<float> some = test.run(*engine);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
    }
  }
}

TEST_P(GemmTest, MayAddToTheResidualInPlace) {
  for (Layout layout : {Layout::OutIn, Layout::InOut}) {
    Case test({19, 300, 50}, layout, WeightType::BF16, Activation::None, true,
              true, 0);
    EXPECT_EQ(test.run(*engine), test.run(*engine, 1, /*inPlace=*/true));
  }
}

TEST_P(GemmTest, LeavesGapsBetweenRowsAlone) {
  Case test({3, 65, 40}, Layout::InOut, WeightType::F16, Activation::None,
            false, false, 5);
  const std::vector<float> y = test.run(*engine);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(y[65 + i], -7.0f);
}

INSTANTIATE_TEST_SUITE_P(
    Engines, GemmTest, testing::Values("avx2", "avx512", "onednn", "reference"),
    [](const auto &info) { return std::string(info.param); });

TEST(GemmEngines, UnknownNameSaysWhatThereIs) {
  std::string reason;
  EXPECT_EQ(findEngine("blas", &reason), nullptr);
  EXPECT_NE(reason.find("own"), std::string::npos);
}

} // namespace
} // namespace foresight::gemm
