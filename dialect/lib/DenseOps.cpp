//===- DenseOps.cpp - Verifiers and folds ---------------------------------===//

#include "Verify.h"

#include "mlir/IR/PatternMatch.h"

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
  if (getX().getType() != getResult().getType())
    return emitOpError() << "x has type " << getX().getType()
                         << " but the result has type "
                         << getResult().getType();
  const Side x = features("x", getX());
  if (failed(vectorFits(*this, "gamma", getGamma(), x)) ||
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

namespace {

/// last_row(f(x)) -> f(last_row(x)) for an f that treats rows one by one: what
/// the other rows would give is never looked at. Stops at ops with operands of
/// several tokens besides x (the residual's add), so that a layer keeps its
/// shape.
struct TakeLastRowFirst : OpRewritePattern<LastRowOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(LastRowOp op,
                                PatternRewriter &rewriter) const override {
    Operation *producer = op.getX().getDefiningOp();
    if (!isa_and_nonnull<LayerNormOp, LinearOp, ActivationOp>(producer))
      return rewriter.notifyMatchFailure(op, "x is not made row by row");
    if (!producer->hasOneUse())
      return rewriter.notifyMatchFailure(op, "other rows of x are used too");
    // x is the first operand of each of them.
    Value x = producer->getOperand(0);
    auto narrow = [&](Value value) {
      auto type = cast<RankedTensorType>(value.getType());
      return type.clone({1, type.getDimSize(1)});
    };
    rewriter.setInsertionPoint(producer);
    Value row = LastRowOp::create(rewriter, op.getLoc(), narrow(x), x);
    Operation *clone = rewriter.clone(*producer);
    clone->setOperand(0, row);
    clone->getResult(0).setType(narrow(producer->getResult(0)));
    rewriter.replaceOp(op, clone->getResults());
    return success();
  }
};

} // namespace

void LastRowOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                            MLIRContext *context) {
  patterns.add<TakeLastRowFirst>(context);
}
