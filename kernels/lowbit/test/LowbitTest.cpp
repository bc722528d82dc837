//===- LowbitTest.cpp - Layout, bound and reference -----------------------===//

#include "foresight/lowbit/Estimate.h"
#include "foresight/lowbit/Reference.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace foresight::lowbit;

namespace {

std::vector<float> normals(int64_t count, uint64_t seed, double deviation = 1) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<float> values(count);
  for (float &v : values)
    v = static_cast<float>(normal(engine));
  return values;
}

/// `x` scaled to the length that LayerNorm gives.
std::vector<float> onSphere(std::vector<float> x) {
  double norm = 0;
  for (float v : x)
    norm += double{v} * v;
  const double factor = std::sqrt(static_cast<double>(x.size()) / norm);
  for (float &v : x)
    v = static_cast<float>(v * factor);
  return x;
}

/// A layer and its copy.
struct Layer {
  int64_t rows, columns;
  int bits;
  std::vector<float> weight, bias, gamma, beta;
  std::vector<std::byte> data;

  Layer(int64_t rows, int64_t columns, int bits, uint64_t seed)
      : rows(rows), columns(columns), bits(bits),
        weight(normals(rows * columns, seed, 0.02)),
        bias(normals(rows, seed + 1, 0.5)), gamma(normals(columns, seed + 2)),
        beta(normals(columns, seed + 3, 0.1)) {
    for (float &b : bias)
      b -= 1;
  }

  std::span<const float> row(int64_t i) const {
    return std::span(weight).subspan(i * columns, columns);
  }

  RecordView pack() {
    data.assign(record(rows, columns, bits).bytes, std::byte{0xcd});
    const Packer packer(rows, columns, bits, gamma, beta, data);
    for (int64_t i = 0; i < rows; ++i)
      packer.pack(i, row(i), bias[i]);
    return {data.data(), rows, columns, bits};
  }

  double exact(int64_t i, std::span<const float> x) const {
    double sum = bias[i];
    for (int64_t k = 0; k < columns; ++k)
      sum +=
          double{row(i)[k]} * ((gamma.empty() ? 1.0 : double{gamma[k]}) * x[k] +
                               (beta.empty() ? 0.0 : double{beta[k]}));
    return sum;
  }

  /// As a kernel does: LayerNorm's last step in f32, `lanes` partial sums.
  float dense(int64_t i, std::span<const float> x, int lanes) const {
    std::vector<float> partial(lanes);
    for (int64_t k = 0; k < columns; ++k) {
      const float y = x[k] * (gamma.empty() ? 1.0f : gamma[k]) +
                      (beta.empty() ? 0.0f : beta[k]);
      partial[k % lanes] = std::fma(row(i)[k], y, partial[k % lanes]);
    }
    float sum = 0;
    for (float p : partial)
      sum += p;
    return sum + bias[i];
  }
};

/// No neuron that is left out at kappa 1 is active, exactly or in f32.
void expectLossless(const Layer &layer, const RecordView &copy,
                    std::span<const float> x) {
  const Activations rounded = quantiseActivations(x, layer.bits);
  for (int64_t i = 0; i < layer.rows; ++i) {
    if (keeps(copy, i, rounded, score(copy, i, rounded), 1))
      continue;
    EXPECT_LE(layer.exact(i, x), 0) << "row " << i;
    for (int lanes : {1, 8, 64})
      EXPECT_LE(layer.dense(i, x, lanes), 0) << "row " << i;
  }
}

class LowbitBits : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Every, LowbitBits, testing::Range(2, 9));

TEST_P(LowbitBits, CodesSurviveThePlanes) {
  for (int64_t columns : {1, 100, 128, 129, 384}) {
    std::mt19937 engine(7);
    std::vector<uint8_t> codes(columns), back(columns);
    for (uint8_t &u : codes)
      u = static_cast<uint8_t>(engine() % (1u << GetParam()));
    std::vector<std::byte> bytes(rowBytes(columns, GetParam()));
    packCodes(codes, GetParam(), bytes.data());
    unpackCodes(bytes.data(), GetParam(), back);
    EXPECT_EQ(codes, back) << columns << " columns";
  }
}

TEST_P(LowbitBits, ScaleIsNearTheBestOfAFineSearch) {
  const int bits = GetParam();
  const std::vector<float> row = normals(2048, 3);
  std::vector<uint8_t> codes(row.size());
  const float scale = quantiseRow(row, bits, codes);
  auto errorOf = [&](double s) {
    double sum = 0;
    const double half = 1 << (bits - 1);
    for (float w : row) {
      const double level =
          std::min(std::floor(std::fabs(w) / s), half - 1) + 0.5;
      sum += std::pow(std::fabs(w) - level * s, 2);
    }
    return sum;
  };
  double best = 1e30;
  for (double s = 0.005; s < 3; s *= 1.002)
    best = std::min(best, errorOf(s));
  EXPECT_LE(errorOf(scale), 1.02 * best);
  double written = 0;
  for (size_t k = 0; k < row.size(); ++k)
    written += std::pow(row[k] - scale * (codes[k] - zero(bits)), 2);
  EXPECT_NEAR(written, errorOf(scale), 1e-4 * written);
}

TEST_P(LowbitBits, ErrorAndNormAreThoseOfTheCodes) {
  Layer layer(5, 200, GetParam(), 11);
  const RecordView copy = layer.pack();
  std::vector<uint8_t> codes(layer.columns);
  for (int64_t i = 0; i < layer.rows; ++i) {
    copy.codes(i, codes);
    double error = 0, norm = 0, bias = layer.bias[i];
    for (int64_t k = 0; k < layer.columns; ++k) {
      const double q = copy.valueOf(i, codes[k]);
      const double w = double{layer.row(i)[k]} * layer.gamma[k];
      error += (w - q) * (w - q);
      norm += q * q;
      bias += double{layer.row(i)[k]} * layer.beta[k];
    }
    EXPECT_GE(copy.error(i), std::sqrt(error));
    EXPECT_GE(copy.norm(i), std::sqrt(norm));
    EXPECT_GE(copy.bias(i), bias);
    EXPECT_NEAR(copy.error(i), std::sqrt(error), 1e-6 * std::sqrt(error));
    EXPECT_NEAR(copy.norm(i), std::sqrt(norm), 1e-6 * std::sqrt(norm));
    EXPECT_NEAR(copy.bias(i), bias, 1e-6);
  }
}

TEST_P(LowbitBits, ScoreIsTheProductWithTheCodes) {
  Layer layer(9, 300, GetParam(), 12);
  const RecordView copy = layer.pack();
  const std::vector<float> x = onSphere(normals(layer.columns, 99));
  const Activations rounded = quantiseActivations(x, layer.bits);
  std::vector<uint8_t> codes(layer.columns);
  for (int64_t i = 0; i < layer.rows; ++i) {
    copy.codes(i, codes);
    double expected = copy.bias(i);
    for (int64_t k = 0; k < layer.columns; ++k)
      expected += copy.valueOf(i, codes[k]) * rounded.scale * rounded.values[k];
    EXPECT_NEAR(score(copy, i, rounded), expected, 1e-5);
  }
}

TEST_P(LowbitBits, NothingActiveIsLeftOutOnRandomInputs) {
  Layer layer(64, 256, GetParam(), 13);
  const RecordView copy = layer.pack();
  for (uint64_t seed = 0; seed < 20; ++seed)
    expectLossless(layer, copy, onSphere(normals(layer.columns, 1000 + seed)));
}

/// The input that the bound is about: all of x along what rounding lost, and a
/// bias that leaves the neuron active by a hair.
TEST_P(LowbitBits, NothingActiveIsLeftOutAtTheEdgeOfTheBound) {
  for (bool folded : {false, true}) {
    Layer layer(16, 384, GetParam(), 14);
    if (!folded)
      layer.gamma.clear(), layer.beta.clear();
    for (int64_t i = 0; i < layer.rows; ++i) {
      RecordView copy = layer.pack();
      std::vector<uint8_t> codes(layer.columns);
      copy.codes(i, codes);
      std::vector<float> lost(layer.columns);
      for (int64_t k = 0; k < layer.columns; ++k)
        lost[k] = static_cast<float>(double{layer.row(i)[k]} *
                                         (folded ? layer.gamma[k] : 1.0f) -
                                     copy.valueOf(i, codes[k]));
      const std::vector<float> x = onSphere(lost);
      layer.bias[i] = 0;
      layer.bias[i] = static_cast<float>(-layer.exact(i, x));
      while (layer.exact(i, x) <= 0)
        layer.bias[i] = std::nextafter(layer.bias[i], 1e30f);
      copy = layer.pack();
      const Activations rounded = quantiseActivations(x, layer.bits);
      const float found = score(copy, i, rounded);
      EXPECT_TRUE(keeps(copy, i, rounded, found, 1)) << "row " << i;
      // The edge is an edge: without the error's share it is lost.
      EXPECT_FALSE(keeps(copy, i, rounded, found, 0)) << "row " << i;
      expectLossless(layer, copy, x);
    }
  }
}

TEST_P(LowbitBits, ExtremeActivationsDoNotOverflow) {
  const int64_t columns = 8192;
  Layer layer(2, columns, GetParam(), 15);
  layer.gamma.clear();
  layer.beta.clear();
  for (int64_t k = 0; k < columns; ++k) {
    layer.weight[k] = k % 2 ? 1 : -1;
    layer.weight[columns + k] = k % 2 ? -1 : 1;
  }
  layer.bias = {0, 0};
  const RecordView copy = layer.pack();
  std::vector<float> x(columns);
  for (int64_t k = 0; k < columns; ++k)
    x[k] = k % 2 ? 1 : -1;
  const Activations rounded = quantiseActivations(x, layer.bits);
  EXPECT_NEAR(score(copy, 0, rounded), columns, 0.01 * columns);
  EXPECT_NEAR(score(copy, 1, rounded), -columns, 0.01 * columns);
  EXPECT_EQ(select(copy, rounded, 1), std::vector<int32_t>{0});
}

TEST(Lowbit, PlantedNeuronsAreFound) {
  // Every fourth neuron is active by a wide margin, the others are not.
  Layer layer(40, 512, 6, 16);
  const std::vector<float> x = onSphere(normals(layer.columns, 5));
  std::vector<int32_t> planted;
  for (int64_t i = 0; i < layer.rows; ++i) {
    layer.bias[i] = 0;
    layer.bias[i] = static_cast<float>((i % 4 ? -4 : 4) - layer.exact(i, x));
    if (i % 4 == 0)
      planted.push_back(static_cast<int32_t>(i));
  }
  const RecordView copy = layer.pack();
  EXPECT_EQ(select(copy, quantiseActivations(x, 6), 1), planted);
}

TEST(Lowbit, ZeroRowsAreProvedByTheirBias) {
  Layer layer(2, 64, 4, 17);
  std::fill(layer.weight.begin(), layer.weight.end(), 0.0f);
  layer.beta.clear();
  layer.bias = {-0.25f, 0.25f};
  const RecordView copy = layer.pack();
  EXPECT_EQ(copy.scale(0), 0);
  EXPECT_EQ(copy.error(0), 0);
  const std::vector<float> x = onSphere(normals(64, 1));
  EXPECT_EQ(select(copy, quantiseActivations(x, 4), 1),
            std::vector<int32_t>{1});
}

TEST(Lowbit, WhatIsNotANumberIsKept) {
  Layer layer(3, 64, 4, 18);
  layer.bias = {-100, -100, -100};
  layer.weight[5] = std::nanf("");
  layer.weight[64 + 5] = HUGE_VALF;
  const RecordView copy = layer.pack();
  std::vector<float> x = onSphere(normals(64, 1));
  EXPECT_EQ(select(copy, quantiseActivations(x, 4), 1),
            (std::vector<int32_t>{0, 1}));
  x[3] = std::nanf("");
  EXPECT_EQ(select(copy, quantiseActivations(x, 4), 1),
            (std::vector<int32_t>{0, 1, 2}));
}

TEST(Lowbit, WhatNoRowWritesIsZero) {
  Layer layer(3, 100, 3, 19);
  layer.pack();
  const Record r = record(3, 100, 3);
  for (int64_t vector : {r.scale, r.bias, r.error, r.norm, r.slack})
    for (int64_t i = 3; i < padRows(3); ++i)
      EXPECT_EQ(reinterpret_cast<float *>(layer.data.data() + vector)[i], 0);
}

TEST(Lowbit, SmallerKappaKeepsFewer) {
  Layer layer(400, 256, 3, 20);
  const RecordView copy = layer.pack();
  const Activations x =
      quantiseActivations(onSphere(normals(layer.columns, 2)), 3);
  const std::vector<int32_t> proof = select(copy, x, 1),
                             margin = select(copy, x, 0.25f);
  EXPECT_LT(margin.size(), proof.size());
  EXPECT_TRUE(
      std::includes(proof.begin(), proof.end(), margin.begin(), margin.end()));
}

TEST(Lowbit, EstimateIsWhatSphericalInputsGive) {
  for (int bits : {3, 6}) {
    Layer layer(300, 256, bits, 21);
    const RecordView copy = layer.pack();
    double active = 0, kept = 0;
    const int inputs = 40;
    for (int n = 0; n < inputs; ++n) {
      const std::vector<float> x = onSphere(normals(layer.columns, 500 + n));
      kept += static_cast<double>(
          select(copy, quantiseActivations(x, bits), 1).size());
      for (int64_t i = 0; i < layer.rows; ++i)
        active += layer.exact(i, x) > 0;
    }
    const Density expected = expectedDensity(copy, 1);
    const double total = static_cast<double>(layer.rows) * inputs;
    EXPECT_NEAR(expected.active, active / total, 0.02);
    EXPECT_NEAR(expected.kept, kept / total, 0.02);
    EXPECT_GT(expected.kept, expected.active);
  }
}

} // namespace
