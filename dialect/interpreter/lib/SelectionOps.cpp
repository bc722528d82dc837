//===- SelectionOps.cpp - Scores and sets ---------------------------------===//

#include "Evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;

namespace {

/// One set a row of `scores`: the units that `keeps(t, i)` says.
template <typename Fn> IndexSets selectIf(const Matrix &scores, Fn &&keeps) {
  IndexSets sets{scores.columns, {}};
  sets.rows.resize(scores.rows);
  for (int64_t t = 0; t < scores.rows; ++t)
    for (int64_t i = 0; i < scores.columns; ++i)
      if (keeps(t, i))
        sets.rows[t].push_back(static_cast<int32_t>(i));
  return sets;
}

} // namespace

FailureOr<Data> interpreter::evaluate(PredictOp op, const Scope &scope) {
  const Matrix &x = scope.matrix(op.getX());
  if (op.getPredictor().size() == 2) {
    const Matrix reduced = linear(x, scope.matrix(op.getPredictor()[0]),
                                  nullptr, nullptr, Activation::None);
    return Data(linear(reduced, scope.matrix(op.getPredictor()[1]), nullptr,
                       nullptr, Activation::None));
  }
  const LowBitCopy &copy = scope.copy(op.getPredictor()[0]);
  Matrix scores = linear(x, copy.values, nullptr, nullptr, Activation::None);
  for (int64_t t = 0; t < scores.rows; ++t)
    for (int64_t i = 0; i < scores.columns; ++i)
      scores.at(t, i) += copy.bias[i];
  return Data(std::move(scores));
}

FailureOr<Data> interpreter::evaluate(SelectCertifiedOp op,
                                      const Scope &scope) {
  const Matrix &scores = scope.matrix(op.getScores());
  const Matrix &x = scope.matrix(op.getX());
  const LowBitCopy &copy = scope.copy(op.getCopy());
  const double kappa = op.getKappa().convertToDouble();
  std::vector<double> norms;
  for (int64_t t = 0; t < x.rows; ++t) {
    double square = 0;
    for (double v : x.row(t))
      square += v * v;
    norms.push_back(std::sqrt(square));
  }
  return Data(selectIf(scores, [&](int64_t t, int64_t i) {
    return !(scores.at(t, i) + kappa * copy.error[i] * norms[t] <= 0);
  }));
}

FailureOr<Data> interpreter::evaluate(SelectThresholdOp op,
                                      const Scope &scope) {
  const Matrix &scores = scope.matrix(op.getScores());
  const double threshold = op.getThreshold().convertToDouble();
  return Data(selectIf(scores, [&](int64_t t, int64_t i) {
    return scores.at(t, i) > threshold;
  }));
}

FailureOr<Data> interpreter::evaluate(SelectTopkOp op, const Scope &scope) {
  const Matrix &scores = scope.matrix(op.getScores());
  const int64_t count =
      cast<IndexSetType>(op.getResult().getType()).getCapacity();
  IndexSets sets{scores.columns, {}};
  for (int64_t t = 0; t < scores.rows; ++t) {
    std::vector<int32_t> order(scores.columns);
    std::iota(order.begin(), order.end(), 0);
    // NaN ranks below everything; the lower of two equal ones comes first.
    auto rank = [&](int32_t i) {
      const double score = scores.at(t, i);
      return std::isnan(score) ? std::tuple(0, 0.0, -i)
                               : std::tuple(1, score, -i);
    };
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
    order.resize(count);
    std::sort(order.begin(), order.end());
    sets.rows.push_back(std::move(order));
  }
  return Data(std::move(sets));
}
