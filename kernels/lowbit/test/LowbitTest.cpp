//===- LowbitTest.cpp - Layout, bound and reference -----------------------===//

#include "foresight/lowbit/Balance.h"
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
  std::vector<float> weight, bias, gamma, beta, balance;
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

  /// Columns of very unequal size, and what balances them.
  void makeUneven() {
    for (int64_t k = 0; k < columns; ++k)
      gamma[k] *= std::ldexp(1.0f, -static_cast<int>(k % 12));
    balance = balanceColumns(weight, columns, gamma);
  }

  /// What the copy is applied to.
  std::vector<float> balanced(std::span<const float> x) const {
    std::vector<float> result(x.begin(), x.end());
    for (size_t k = 0; k < balance.size(); ++k)
      result[k] *= balance[k];
    return result;
  }

  RecordView pack() {
    data.assign(record(rows, columns, bits).bytes, std::byte{0xcd});
    const Packer packer(rows, columns, bits, gamma, beta, data, balance);
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
  const Activations rounded =
      quantiseActivations(layer.balanced(x), layer.bits);
  for (int64_t i = 0; i < layer.rows; ++i) {
    if (keeps(copy, i, rounded, score(copy, i, rounded), 1))
      continue;
    EXPECT_LE(layer.exact(i, x), 0) << "row " << i;
    for (int lanes : {1, 8, 64})
      EXPECT_LE(layer.dense(i, x, lanes), 0) << "row " << i;
  }
}

/// `bits` is f16 and the least such number that is not below `value`; what the
/// test's own sums lose may push it over one border.
void expectRoundedUp(uint16_t bits, double value) {
  EXPECT_GE(foresight::halfToFloat(bits), value);
  if (bits != 0)
    EXPECT_LT(foresight::halfToFloat(bits - 1), value * (1 + 3e-9));
}

class LowbitBits : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Every, LowbitBits, testing::Range(2, 9),
                         testing::PrintToStringParamName());

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
  for (int i = 0; i < 3200; ++i) // up to 3
    best = std::min(best, errorOf(0.005 * std::pow(1.002, i)));
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
    double error = 0, norm = 0, energy = 0, bias = layer.bias[i],
           magnitude = std::fabs(bias);
    for (int64_t k = 0; k < layer.columns; ++k) {
      const double q = copy.valueOf(i, codes[k]);
      const double w = double{layer.row(i)[k]} * layer.gamma[k];
      error += (w - q) * (w - q);
      norm += q * q;
      energy += w * w;
      bias += double{layer.row(i)[k]} * layer.beta[k];
      magnitude += std::fabs(double{layer.row(i)[k]} * layer.beta[k]);
    }
    expectRoundedUp(copy.errorBits(i), std::sqrt(error));
    expectRoundedUp(copy.normBits(i), std::sqrt(norm));
    const double slack = slackOf(layer.columns, std::sqrt(energy), copy.norm(i),
                                 copy.error(i), magnitude);
    EXPECT_GT(slack, 0);
    EXPECT_GE(copy.bias(i), bias + slack);
    EXPECT_NEAR(copy.bias(i), bias + slack, 1e-6);
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

TEST_P(LowbitBits, NothingActiveIsLeftOutOfABalancedCopy) {
  Layer layer(64, 256, GetParam(), 13);
  layer.makeUneven();
  const RecordView copy = layer.pack();
  for (uint64_t seed = 0; seed < 20; ++seed)
    expectLossless(layer, copy, onSphere(normals(layer.columns, 1000 + seed)));
}

/// All of x along what rounding lost, as far as balance lets it, and a bias
/// that leaves the neuron active by a hair.
TEST_P(LowbitBits, NothingActiveIsLeftOutAtTheEdgeOfABalancedCopy) {
  Layer layer(16, 384, GetParam(), 14);
  layer.makeUneven();
  std::vector<uint8_t> codes(layer.columns);
  for (int64_t i = 0; i < layer.rows; ++i) {
    RecordView copy = layer.pack();
    copy.codes(i, codes);
    std::vector<float> lost(layer.columns);
    for (int64_t k = 0; k < layer.columns; ++k)
      lost[k] = static_cast<float>(
          (double{layer.row(i)[k]} * layer.gamma[k] / layer.balance[k] -
           copy.valueOf(i, codes[k])) /
          layer.balance[k]);
    const std::vector<float> x = onSphere(lost);
    layer.bias[i] = 0;
    layer.bias[i] = static_cast<float>(-layer.exact(i, x));
    while (layer.exact(i, x) <= 0)
      layer.bias[i] = std::nextafter(layer.bias[i], 1e30f);
    copy = layer.pack();
    const Activations rounded =
        quantiseActivations(layer.balanced(x), layer.bits);
    const float found = score(copy, i, rounded);
    EXPECT_TRUE(keeps(copy, i, rounded, found, 1)) << "row " << i;
    EXPECT_FALSE(keeps(copy, i, rounded, found, 0)) << "row " << i;
    expectLossless(layer, copy, x);
  }
}

/// Inputs that are large where columns are small, as those of trained models.
TEST_P(LowbitBits, ABalancedCopyKeepsFewer) {
  Layer plain(200, 384, GetParam(), 31);
  for (float &b : plain.bias)
    b *= 0.1f;
  Layer layer = plain;
  layer.makeUneven();
  plain.gamma = layer.gamma;
  const RecordView copy = plain.pack(), balanced = layer.pack();
  size_t before = 0, after = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    std::vector<float> x = normals(layer.columns, 40 + seed);
    for (int64_t k = 0; k < layer.columns; ++k)
      x[k] /= layer.balance[k];
    x = onSphere(x);
    const float kappa = 4 / std::sqrt(384.0f);
    before += select(copy, quantiseActivations(x, GetParam()), kappa).size();
    after += select(balanced,
                    quantiseActivations(layer.balanced(x), GetParam()), kappa)
                 .size();
  }
  EXPECT_LT(after, before);
}

/// The input that the bound is about: all of x along what rounding lost, and a
/// bias that leaves the neuron active by a hair. Rows are from where f16 has no
/// numbers left to where it has none yet.
TEST_P(LowbitBits, NothingActiveIsLeftOutAtTheEdgeOfTheBound) {
  auto atTheEdge = [&](int exponent, bool folded) {
    SCOPED_TRACE(testing::Message() << "2^" << exponent << ", " << folded);
    Layer layer(16, 384, GetParam(), 14);
    for (float &w : layer.weight)
      w = std::ldexp(w, exponent);
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
      // The edge is an edge: without the error's share it is lost. Only far
      // from f16's denormals and from its largest number.
      if (exponent >= -8 && exponent <= 8)
        EXPECT_FALSE(keeps(copy, i, rounded, found, 0)) << "row " << i;
      expectLossless(layer, copy, x);
    }
  };
  for (bool folded : {false, true})
    for (int exponent : {-40, -24, -18, -8, 0, 8, 16, 24})
      atTheEdge(exponent, folded);
}

TEST_P(LowbitBits, RowsBelowHalfPrecisionHaveAnErrorAndANorm) {
  Layer layer(2, 64, GetParam(), 22);
  layer.gamma.clear();
  layer.beta.clear();
  for (int64_t k = 0; k < 64; ++k) {
    layer.weight[k] = std::ldexp(layer.weight[k], -30);
    layer.weight[64 + k] = std::ldexp(layer.weight[64 + k], -16);
  }
  const RecordView copy = layer.pack();
  // The least f16 number, and a denormal one.
  EXPECT_EQ(copy.error(0), 0x1p-24f);
  EXPECT_EQ(copy.norm(0), 0x1p-24f);
  EXPECT_GT(copy.norm(1), 0x1p-24f);
  EXPECT_LT(copy.norm(1), 0x1p-14f);
}

TEST_P(LowbitBits, RowsBeyondHalfPrecisionAreKept) {
  Layer layer(3, 64, GetParam(), 23);
  layer.gamma.clear();
  layer.beta.clear();
  layer.bias = {-1e30f, -1e30f, -1e30f};
  std::fill(layer.weight.begin(), layer.weight.end(), 0.0f);
  for (int64_t k = 0; k < 64; ++k) {
    layer.weight[k] = 8192;      // |q| = 65536, the error is finite
    layer.weight[64 + k] = 8180; // |q| = 65440 < 65504
    layer.weight[128 + k] = k % 2 ? 1e7f : 1;
  }
  const RecordView copy = layer.pack();
  EXPECT_TRUE(std::isinf(copy.norm(0)));
  EXPECT_TRUE(std::isfinite(copy.error(0)));
  EXPECT_TRUE(std::isfinite(copy.norm(1)));
  EXPECT_TRUE(std::isinf(copy.norm(2)));
  const std::vector<int32_t> kept = {0, 2};
  EXPECT_EQ(select(copy, quantiseActivations(onSphere(normals(64, 3)), 8), 1),
            kept);
  // Also where the infinite number meets a zero.
  EXPECT_EQ(select(copy, quantiseActivations(std::vector<float>(64), 8), 0),
            kept);
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
  EXPECT_EQ(copy.norm(0), 0);
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
  auto isZero = [&](int64_t from, int64_t to) {
    return std::all_of(layer.data.begin() + from, layer.data.begin() + to,
                       [](std::byte b) { return b == std::byte{0}; });
  };
  EXPECT_TRUE(isZero(r.scale + 3 * 4, r.bias));
  EXPECT_TRUE(isZero(r.bias + 3 * 4, r.error));
  EXPECT_TRUE(isZero(r.error + 3 * 2, r.norm));
  EXPECT_TRUE(isZero(r.norm + 3 * 2, r.bytes));
}

TEST(Lowbit, ARowHasTwelveBytesBesidesItsCodes) {
  const Record r = record(96, 128, 4);
  EXPECT_EQ(r.bytes, 96 * (rowBytes(128, 4) + kRowNumberBytes));
  EXPECT_EQ(kRowNumberBytes, 12);
  for (int64_t rows : {1, 31, 33, 96}) {
    const Record any = record(rows, 100, 3);
    for (int64_t offset : {any.scale, any.bias, any.error, any.norm, any.bytes})
      EXPECT_EQ(offset % 64, 0);
  }
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

TEST(Balance, SamplesFewRowsFromEverywhere) {
  for (int64_t rows : {1, 5, 16, 17, 256, 257, 1536, 100000}) {
    int64_t count = 0, end = 0;
    for (const RowRange &group : sampleRows(rows)) {
      EXPECT_GE(group.begin, end);
      EXPECT_GT(group.end, group.begin);
      end = group.end;
      count += group.end - group.begin;
    }
    EXPECT_LE(end, rows);
    EXPECT_GE(end, rows - rows / 16) << "the last rows speak too";
    EXPECT_EQ(count, std::min<int64_t>(rows, count));
    EXPECT_GE(count, std::min<int64_t>(rows, 200));
    EXPECT_LE(count, 256);
  }
}

TEST(Balance, IsTheSizeOfAColumnOverTheLargest) {
  // Columns of size 1, 2, 4, 2, one of zeros, one that stands out.
  const std::vector<float> sample = {1, -2, 4,  2, 0, 100, //
                                     1, 2,  -4, 2, 0, 100};
  EXPECT_EQ(balanceColumns(sample, 6, {}),
            (std::vector<float>{0.125f, 0.25f, 0.5f, 0.25f, 0x1p-10f, 1}))
      << "the largest counts as four times the median";
  const std::vector<float> gamma = {4, -2, 1, 2, 1, 0.04f};
  EXPECT_EQ(balanceColumns(sample, 6, gamma),
            (std::vector<float>{1, 1, 1, 1, 0x1p-10f, 1}));
}

TEST(Balance, OfNothingIsOne) {
  EXPECT_EQ(balanceColumns(std::vector<float>(6), 3, {}),
            std::vector<float>(3, 1));
  EXPECT_EQ(balanceColumns(std::vector<float>{NAN, 1}, 2, {}),
            std::vector<float>(2, 1));
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
