//===- DenseOps.cpp - Verifiers and folds ---------------------------------===//

#include "Verify.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::verify;

LogicalResult GatherRowsOp::verify() {
  if (failed(sameCount(*this, {"ids", dim(getIds(), 0), "tokens"},
                       tokens("the result", getResult()))) ||
      failed(sameCount(*this, columns("table", getTable()),
                       features("the result", getResult()))))
    return failure();
  const auto offset = static_cast<int64_t>(getOffset());
  if (offset < 0 || offset >= dim(getTable(), 0))
    return emitOpError() << "has offset " << offset << " but table has "
                         << dim(getTable(), 0) << " rows";
  return success();
}

LogicalResult LayerNormOp::verify() {
  const Side x = features("x", getX());
  if (failed(sameShape(*this, "x", getX(), getResult())) ||
      failed(vectorFits(*this, "gamma", getGamma(), x)) ||
      failed(vectorFits(*this, "beta", getBeta(), x)))
    return failure();
  const double epsilon = getEpsilon().convertToDouble();
  if (!(epsilon >= 0) || !getEpsilon().isFinite())
    return emitOpError() << "epsilon must be finite and not negative, found "
                         << epsilon;
  return success();
}

LogicalResult LinearOp::verify() {
  if (failed(sameCount(*this, tokens("x", getX()),
                       tokens("the result", getResult()))) ||
      failed(sameCount(*this, features("x", getX()),
                       columns("weight", getWeight()))) ||
      failed(sameCount(*this, rows("weight", getWeight()),
                       features("the result", getResult()))))
    return failure();
  return vectorFits(*this, "bias", getBias(), rows("weight", getWeight()));
}

LogicalResult ColumnLinearOp::verify() {
  if (failed(sameCount(*this, tokens("x", getX()),
                       tokens("the result", getResult()))) ||
      failed(sameCount(*this, features("x", getX()),
                       rows("weight", getWeight()))) ||
      failed(sameCount(*this, columns("weight", getWeight()),
                       features("the result", getResult()))) ||
      failed(
          vectorFits(*this, "bias", getBias(), columns("weight", getWeight()))))
    return failure();
  return setFits(*this, "the set", getRows(), rows("weight", getWeight()));
}

LogicalResult MlpOp::verify() {
  if (failed(sameCount(*this, tokens("x", getX()),
                       tokens("the result", getResult()))) ||
      failed(
          sameCount(*this, features("x", getX()), columns("fc1", getFc1()))) ||
      failed(sameCount(*this, rows("fc1", getFc1()), rows("fc2", getFc2()))) ||
      failed(sameCount(*this, columns("fc2", getFc2()),
                       features("the result", getResult()))) ||
      failed(vectorFits(*this, "bias1", getBias1(), rows("fc1", getFc1()))))
    return failure();
  return vectorFits(*this, "bias2", getBias2(), columns("fc2", getFc2()));
}

//===----------------------------------------------------------------------===//
// activate
//===----------------------------------------------------------------------===//

namespace {

/// Whether `value` comes out of an op that applied ReLU to it.
bool isRelu(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto activation = dyn_cast_or_null<ActivationOp>(op))
    return activation.getActivation() == Activation::Relu;
  if (auto linear = dyn_cast_or_null<LinearOp>(op))
    return linear.getActivation() == Activation::Relu;
  if (auto linear = dyn_cast_or_null<GatherLinearOp>(op))
    return linear.getActivation() == Activation::Relu;
  return false;
}

} // namespace

/// No activation is the value itself; ReLU after ReLU changes nothing.
OpFoldResult ActivationOp::fold(FoldAdaptor) {
  if (getActivation() == Activation::None ||
      (getActivation() == Activation::Relu && isRelu(getX())))
    return getX();
  return {};
}

//===----------------------------------------------------------------------===//
// last_row
//===----------------------------------------------------------------------===//

LogicalResult LastRowOp::verify() {
  if (failed(sameCount(*this, tokens("the result", getResult()),
                       {"a last row", 1, "tokens"})))
    return failure();
  return sameCount(*this, features("x", getX()),
                   features("the result", getResult()));
}

/// The last of one row is that row.
OpFoldResult LastRowOp::fold(FoldAdaptor) {
  if (getX().getType() == getType())
    return getX();
  return {};
}
