//===- CalibrationTest.cpp - Products, tables, choices --------------------===//
#include "foresight/calibration/Choice.h"
#include "foresight/calibration/Copy.h"
#include "foresight/lowbit/Layout.h"
#include "foresight/lowbit/Reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace foresight;
using namespace foresight::calibration;

namespace {

std::vector<float> normals(size_t count, float scale, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(count);
  for (float &value : out)
    value = normal(engine);
  return out;
}

/// A layer of made-up weights of which few neurons are active.
MlpLayer makeLayer(int64_t neurons, int64_t hidden) {
  MlpLayer layer{.neurons = neurons,
                 .hidden = hidden,
                 .epsilon = 1e-5,
                 .gamma = normals(hidden, 0.2f, 1),
                 .beta = normals(hidden, 0.1f, 2),
                 .balance = normals(hidden, 0.2f, 4),
                 .bias = normals(neurons, 0.2f, 3),
                 .fc1 = Panels(neurons, hidden)};
  for (float &value : layer.gamma)
    value += 1;
  for (float &value : layer.balance)
    value = std::exp2(-std::fabs(value));
  for (float &value : layer.bias)
    value -= 1;
  for (int64_t i = 0; i < neurons; ++i)
    layer.fc1.setRow(i, normals(hidden, 1 / std::sqrt(float(hidden)), 100 + i));
  return layer;
}

MlpBytes rowsOf(const MlpLayer &layer, int64_t bytes) {
  return {.neurons = layer.neurons,
          .hidden = layer.hidden,
          .fc1Row = bytes,
          .fc2Row = bytes};
}

TEST(Panels, ProductsEqualPlainSums) {
  for (const auto &[rows, columns, tokens] :
       {std::tuple(1, 1, 1), {33, 70, 3}, {64, 128, 4}, {31, 5, 2}}) {
    Panels panels(rows, columns);
    std::vector<std::vector<float>> matrix;
    for (int64_t i = 0; i < rows; ++i) {
      matrix.push_back(normals(columns, 1, 7 + i));
      panels.setRow(i, matrix.back());
      std::vector<float> back(columns);
      panels.getRow(i, back);
      EXPECT_EQ(back, matrix.back());
    }
    const std::vector<float> x = normals(tokens * columns, 1, 5);
    std::vector<float> out(tokens * rows, NAN);
    panels.multiply(x, tokens, out);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < columns; ++k)
          sum += double(x[t * columns + k]) * matrix[i][k];
        EXPECT_NEAR(out[t * rows + i], sum, 1e-4);
      }
  }
}

TEST(Copy, SelectsWhatTheReferenceOfTheKernelSelects) {
  const int64_t neurons = 96, hidden = 160;
  const MlpLayer layer = makeLayer(neurons, hidden);
  for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
    std::vector<std::byte> record(lowbit::record(neurons, hidden, bits).bytes);
    const lowbit::Packer packer(neurons, hidden, bits, layer.gamma, layer.beta,
                                record, layer.balance);
    std::vector<float> row(hidden), x(hidden), rounded(hidden),
        products(neurons);
    for (int64_t i = 0; i < neurons; ++i) {
      layer.fc1.getRow(i, row);
      packer.pack(i, row, layer.bias[i]);
    }
    const lowbit::RecordView view(record.data(), neurons, hidden, bits);
    const Copy copy = Copy::make(layer, bits);
    for (uint32_t seed = 0; seed < 5; ++seed) {
      layer.normalise(normals(hidden, 3, seed), x);
      std::vector<float> balanced = x;
      for (int64_t k = 0; k < hidden; ++k)
        balanced[k] *= layer.balance[k];
      const auto reference = lowbit::quantiseActivations(balanced, bits);
      const Copy::Rounded r = copy.round(x, rounded);
      copy.products(rounded, 1, products);
      for (int64_t i = 0; i < neurons; ++i) {
        const float score = lowbit::score(view, i, reference);
        EXPECT_NEAR(products[i] + view.bias(i), score, 1e-4);
        for (const float kappa : {0.f, 0.1f, 1.f})
          EXPECT_EQ(copy.keeps(i, products[i], r, kappa),
                    lowbit::keeps(view, i, reference, score, kappa))
              << bits << " bits, neuron " << i;
      }
    }
  }
}

TEST(Normalise, HasNoMeanAndUnitVariance) {
  const MlpLayer layer = makeLayer(32, 64);
  std::vector<float> x(64);
  std::vector<float> residual = normals(64, 5, 3);
  for (float &value : residual)
    value += 100; // a large mean must not cost accuracy
  layer.normalise(residual, x);
  double sum = 0, squares = 0;
  for (const float value : x) {
    sum += value;
    squares += double(value) * value;
  }
  EXPECT_NEAR(sum, 0, 1e-4);
  EXPECT_NEAR(squares, 64, 1e-2);
}

TEST(LayerTable, CountsWhatAMarginSelectsAndMisses) {
  LayerTable table({.neurons = 4,
                    .hidden = 128,
                    .fc1Row = 256,
                    .fc2Row = 256,
                    .vectors = 24,
                    .balance = 512});
  table.addTokens(2, 3);
  table.add(3, -1.0, true, 0.5); // selected by margin 0
  table.add(3, 0.5, true, 0.25); // selected above 0.5
  table.add(3, 2.0, false, 0);   // a false alarm above 2
  table.add(3, INFINITY, true, 0.125);
  table.add(3, NAN, false, 0);
  const auto at = [&](double margin) {
    for (const Candidate &candidate : table.candidates())
      if (candidate.profile.rule == LayerProfile::Rule::Margin &&
          candidate.profile.bits == 3 && candidate.profile.margin == margin)
        return candidate;
    ADD_FAILURE() << "no candidate with margin " << margin;
    return Candidate();
  };
  const auto copy = double(lowbit::record(4, 128, 3).bytes) + 24 + 512;
  EXPECT_DOUBLE_EQ(at(0).selected, 0.5);
  EXPECT_DOUBLE_EQ(at(0).found, 0.5);
  EXPECT_DOUBLE_EQ(at(8).found, 1);
  EXPECT_DOUBLE_EQ(at(0).error, (0.25 + 0.125) / 2);
  EXPECT_DOUBLE_EQ(at(0).bytes, copy + 256 / 2.0 + 256 / 2.0);
  EXPECT_DOUBLE_EQ(at(0.5).selected, 0.5) << "the margin must exceed it";
  EXPECT_DOUBLE_EQ(at(0.5625).selected, 1);
  EXPECT_DOUBLE_EQ(at(0.5625).error, 0.125 / 2);
  EXPECT_DOUBLE_EQ(at(8).selected, 1.5);
  EXPECT_DOUBLE_EQ(at(8).bytes, copy + 3 * 256 / 2.0 + 2 * 256 / 2.0);
  EXPECT_DOUBLE_EQ(table.activeShare(), 3.0 / 8);
}

TEST(LayerTable, HullFallsInBytesAndGainsLessAndLess) {
  const MlpLayer layer = makeLayer(128, 96);
  const std::vector<float> norms(128, 1.f);
  const LayerTable table =
      tabulate(layer, normals(64 * 96, 1, 9), norms, rowsOf(layer, 192), 2);
  const std::vector<Candidate> hull = table.hull();
  ASSERT_GE(hull.size(), 3u);
  EXPECT_EQ(hull.front().error, 0);
  double lastSlope = INFINITY;
  for (size_t i = 1; i < hull.size(); ++i) {
    EXPECT_LT(hull[i].bytes, hull[i - 1].bytes);
    EXPECT_GT(hull[i].error, hull[i - 1].error);
    const double slope = (hull[i - 1].bytes - hull[i].bytes) /
                         (hull[i].error - hull[i - 1].error);
    EXPECT_LT(slope, lastSlope);
    lastSlope = slope;
  }
}

TEST(LayerTable, DoesNotDependOnTheNumberOfThreads) {
  const MlpLayer layer = makeLayer(64, 96);
  const std::vector<float> norms(64, 2.f), rows = normals(100 * 96, 1, 9);
  const auto one =
      tabulate(layer, rows, norms, rowsOf(layer, 192), 1).candidates();
  const auto three =
      tabulate(layer, rows, norms, rowsOf(layer, 192), 3).candidates();
  ASSERT_EQ(one.size(), three.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].bytes, three[i].bytes);
    EXPECT_NEAR(one[i].error, three[i].error, 1e-9);
  }
}

TEST(LayerTable, AProofKeepsEveryActiveNeuron) {
  const MlpLayer layer = makeLayer(128, 96);
  const LayerTable table =
      tabulate(layer, normals(64 * 96, 1, 9), std::vector<float>(128, 1.f),
               rowsOf(layer, 192), 1);
  const double active = table.activeShare() * 128;
  EXPECT_GT(active, 1);
  for (const Candidate &candidate : table.candidates())
    if (candidate.profile.rule == LayerProfile::Rule::Proof) {
      EXPECT_GE(candidate.selected, active);
    }
}

Candidate point(double bytes, double error) {
  Candidate candidate;
  candidate.bytes = bytes;
  candidate.error = error;
  return candidate;
}

TEST(Choice, TakesTheStepThatSavesMostForItsError) {
  const std::vector<LayerChoices> layers = {
      {{point(100, 0), point(50, 1), point(40, 3)}, 1},
      {{point(100, 0), point(80, 1)}, 1}};
  EXPECT_THAT(chooseWithin(layers, 0), testing::ElementsAre(0, 0));
  EXPECT_THAT(chooseWithin(layers, 1), testing::ElementsAre(1, 0));
  EXPECT_THAT(chooseWithin(layers, 2), testing::ElementsAre(1, 1));
  EXPECT_THAT(chooseWithin(layers, 4), testing::ElementsAre(2, 1));
}

TEST(Choice, WeighsErrorsByTheirCost) {
  const std::vector<LayerChoices> layers = {{{point(100, 0), point(50, 1)}, 10},
                                            {{point(100, 0), point(80, 1)}, 1}};
  EXPECT_THAT(chooseWithin(layers, 1), testing::ElementsAre(0, 1));
}

TEST(Choice, AStepWithoutCostIsAlwaysTaken) {
  const std::vector<LayerChoices> layers = {
      {{point(100, 0), point(50, 1), point(10, 2)}, 0}};
  EXPECT_THAT(chooseWithin(layers, 0), testing::ElementsAre(2));
}

} // namespace
