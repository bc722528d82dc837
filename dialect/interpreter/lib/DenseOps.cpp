//===- DenseOps.cpp - Embeddings, norms, products -------------------------===//

#include "Evaluate.h"

#include <cmath>

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;

namespace {

double activate(Activation activation, double x) {
  switch (activation) {
  case Activation::None:
    return x;
  case Activation::Relu:
    // A NaN stays one.
    return x <= 0 ? 0 : x;
  case Activation::Gelu:
    return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  case Activation::GeluTanh:
    return 0.5 * x *
           (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

/// Calls `fn` with the members of row `t`'s set, or with 0 .. universe - 1.
template <typename Fn>
void forMembers(const IndexSets *sets, int64_t t, int64_t universe, Fn &&fn) {
  if (sets) {
    for (int32_t i : sets->rows[t])
      fn(i);
    return;
  }
  for (int64_t i = 0; i < universe; ++i)
    fn(i);
}

} // namespace

Matrix interpreter::linear(const Matrix &x, const Matrix &weight,
                           const Matrix *bias, const IndexSets *rows,
                           Activation activation) {
  Matrix result(x.rows, weight.rows);
  for (int64_t t = 0; t < x.rows; ++t)
    forMembers(rows, t, weight.rows, [&](int64_t i) {
      double sum = 0;
      for (int64_t k = 0; k < x.columns; ++k)
        sum += x.at(t, k) * weight.at(i, k);
      result.at(t, i) = activate(activation, sum + (bias ? bias->data[i] : 0));
    });
  return result;
}

Matrix interpreter::columnLinear(const Matrix &x, const Matrix &weight,
                                 const Matrix *bias, const IndexSets *rows) {
  Matrix result(x.rows, weight.columns);
  for (int64_t t = 0; t < x.rows; ++t) {
    forMembers(rows, t, weight.rows, [&](int64_t i) {
      for (int64_t c = 0; c < weight.columns; ++c)
        result.at(t, c) += x.at(t, i) * weight.at(i, c);
    });
    for (int64_t c = 0; bias && c < weight.columns; ++c)
      result.at(t, c) += bias->data[c];
  }
  return result;
}

FailureOr<Data> interpreter::evaluate(GatherRowsOp op, const Scope &scope) {
  const Matrix &table = scope.matrix(op.getTable());
  const Ids &ids = scope.ids(op.getIds());
  Matrix result(static_cast<int64_t>(ids.values.size()), table.columns);
  for (int64_t t = 0; t < result.rows; ++t) {
    const int64_t row = ids.values[t] + static_cast<int64_t>(op.getOffset());
    if (row < 0 || row >= table.rows)
      return op.emitOpError()
             << "reads row " << row << " (id " << ids.values[t] << ", offset "
             << op.getOffset() << ") of a table with " << table.rows << " rows";
    for (int64_t c = 0; c < table.columns; ++c)
      result.at(t, c) = table.at(row, c);
  }
  return Data(std::move(result));
}

FailureOr<Data> interpreter::evaluate(LayerNormOp op, const Scope &scope) {
  const Matrix &x = scope.matrix(op.getX());
  const Matrix *gamma = scope.matrixOrNull(op.getGamma());
  const Matrix *beta = scope.matrixOrNull(op.getBeta());
  const double epsilon = op.getEpsilon().convertToDouble();
  const auto count = static_cast<double>(x.columns);
  Matrix result(x.rows, x.columns);
  for (int64_t t = 0; t < x.rows; ++t) {
    double mean = 0, variance = 0;
    for (double v : x.row(t))
      mean += v / count;
    for (double v : x.row(t))
      variance += (v - mean) * (v - mean) / count;
    const double factor = 1 / std::sqrt(variance + epsilon);
    for (int64_t k = 0; k < x.columns; ++k)
      result.at(t, k) =
          (x.at(t, k) - mean) * factor * (gamma ? gamma->data[k] : 1) +
          (beta ? beta->data[k] : 0);
  }
  return Data(std::move(result));
}

FailureOr<Data> interpreter::evaluate(LinearOp op, const Scope &scope) {
  return Data(linear(scope.matrix(op.getX()), scope.matrix(op.getWeight()),
                     scope.matrixOrNull(op.getBias()), nullptr,
                     op.getActivation()));
}

FailureOr<Data> interpreter::evaluate(GatherLinearOp op, const Scope &scope) {
  return Data(linear(scope.matrix(op.getX()), scope.matrix(op.getWeight()),
                     scope.matrixOrNull(op.getBias()),
                     scope.setsOrNull(op.getRows()), op.getActivation()));
}

FailureOr<Data> interpreter::evaluate(ColumnLinearOp op, const Scope &scope) {
  return Data(columnLinear(
      scope.matrix(op.getX()), scope.matrix(op.getWeight()),
      scope.matrixOrNull(op.getBias()), scope.setsOrNull(op.getRows())));
}

FailureOr<Data> interpreter::evaluate(MlpOp op, const Scope &scope) {
  const Matrix hidden =
      linear(scope.matrix(op.getX()), scope.matrix(op.getFc1()),
             scope.matrixOrNull(op.getBias1()), nullptr, op.getActivation());
  return Data(columnLinear(hidden, scope.matrix(op.getFc2()),
                           scope.matrixOrNull(op.getBias2()), nullptr));
}

FailureOr<Data> interpreter::evaluate(SparseMlpOp op, const Scope &scope) {
  const IndexSets *rows = scope.setsOrNull(op.getRows());
  const Matrix hidden =
      linear(scope.matrix(op.getX()), scope.matrix(op.getFc1()),
             scope.matrixOrNull(op.getBias1()), rows, op.getActivation());
  return Data(columnLinear(hidden, scope.matrix(op.getFc2()),
                           scope.matrixOrNull(op.getBias2()), rows));
}

FailureOr<Data> interpreter::evaluate(ActivationOp op, const Scope &scope) {
  Matrix result = scope.matrix(op.getX());
  for (double &v : result.data)
    v = activate(op.getActivation(), v);
  return Data(std::move(result));
}

FailureOr<Data> interpreter::evaluate(AddOp op, const Scope &scope) {
  Matrix result = scope.matrix(op.getLhs());
  const Matrix &rhs = scope.matrix(op.getRhs());
  for (size_t i = 0; i < result.data.size(); ++i)
    result.data[i] += rhs.data[i];
  return Data(std::move(result));
}

FailureOr<Data> interpreter::evaluate(LastRowOp op, const Scope &scope) {
  const Matrix &x = scope.matrix(op.getX());
  if (x.rows == 0)
    return op.emitOpError() << "takes the last row of no rows";
  Matrix result(1, x.columns);
  std::copy(x.row(x.rows - 1).begin(), x.row(x.rows - 1).end(),
            result.data.begin());
  return Data(std::move(result));
}
