//===- SelectionOps.cpp - Verifiers and canonical forms -------------------===//

#include "Verify.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::verify;

LogicalResult PredictOp::verify() {
  if (failed(
          sameCount(*this, tokens("x", getX()), tokens("scores", getScores()))))
    return failure();
  OperandRange predictor = getPredictor();
  if (predictor.size() == 1) {
    auto copy = dyn_cast<LowBitType>(predictor[0].getType());
    if (!copy)
      return emitOpError()
             << "needs a !foresight.low_bit copy when it has one predictor, "
                "found "
             << predictor[0].getType();
    if (failed(sameCount(*this, features("x", getX()),
                         {"the copy", copy.getColumns(), "columns"})))
      return failure();
    return sameCount(*this, {"the copy", copy.getRows(), "rows"},
                     features("scores", getScores()));
  }
  if (predictor.size() != 2)
    return emitOpError()
           << "needs a !foresight.low_bit copy or two matrices, found "
           << predictor.size() << " predictors";
  for (Value matrix : predictor) {
    auto type = dyn_cast<RankedTensorType>(matrix.getType());
    if (!type || type.getRank() != 2)
      return emitOpError() << "needs two matrices when it has two predictors, "
                              "found "
                           << matrix.getType();
  }
  if (failed(sameCount(*this, features("x", getX()),
                       columns("the first matrix", predictor[0]))) ||
      failed(sameCount(*this, rows("the first matrix", predictor[0]),
                       columns("the second matrix", predictor[1]))))
    return failure();
  return sameCount(*this, rows("the second matrix", predictor[1]),
                   features("scores", getScores()));
}

namespace {

LogicalResult verifyCandidates(Operation *op, Value scores, Value set) {
  return sameCount(op, features("scores", scores), candidates("the set", set));
}

/// A selection that is not told how many to keep must have room for all.
LogicalResult verifyRoom(Operation *op, Value set) {
  auto type = cast<IndexSetType>(set.getType());
  if (type.getCapacity() == type.getUniverse())
    return success();
  return op->emitOpError() << "may keep all of " << type.getUniverse()
                           << " candidates but the set has room for "
                           << type.getCapacity();
}

} // namespace

LogicalResult SelectCertifiedOp::verify() {
  auto copy = cast<LowBitType>(getCopy().getType());
  if (failed(sameCount(*this, tokens("scores", getScores()),
                       tokens("x", getX()))) ||
      failed(sameCount(*this, features("scores", getScores()),
                       {"the copy", copy.getRows(), "rows"})) ||
      failed(sameCount(*this, features("x", getX()),
                       {"the copy", copy.getColumns(), "columns"})) ||
      failed(verifyCandidates(*this, getScores(), getResult())) ||
      failed(verifyRoom(*this, getResult())))
    return failure();
  const double kappa = getKappa().convertToDouble();
  if (!(kappa >= 0 && kappa <= 1))
    return emitOpError() << "kappa must be between 0 and 1 (a proof), found "
                         << kappa;
  return success();
}

LogicalResult SelectThresholdOp::verify() {
  if (failed(verifyCandidates(*this, getScores(), getResult())) ||
      failed(verifyRoom(*this, getResult())))
    return failure();
  if (getThreshold().isNaN())
    return emitOpError() << "threshold must be a number, found NaN";
  return success();
}

LogicalResult SelectTopkOp::verify() {
  return verifyCandidates(*this, getScores(), getResult());
}

LogicalResult GatherLinearOp::verify() {
  if (failed(sameCount(*this, tokens("x", getX()),
                       tokens("the result", getResult()))) ||
      failed(sameCount(*this, features("x", getX()),
                       columns("weight", getWeight()))) ||
      failed(sameCount(*this, rows("weight", getWeight()),
                       features("the result", getResult()))) ||
      failed(vectorFits(*this, "bias", getBias(), rows("weight", getWeight()))))
    return failure();
  return setFits(*this, "the set", getRows(), rows("weight", getWeight()));
}

LogicalResult SparseMlpOp::verify() {
  if (failed(sameCount(*this, tokens("x", getX()),
                       tokens("the result", getResult()))) ||
      failed(
          sameCount(*this, features("x", getX()), columns("fc1", getFc1()))) ||
      failed(sameCount(*this, rows("fc1", getFc1()), rows("fc2", getFc2()))) ||
      failed(sameCount(*this, columns("fc2", getFc2()),
                       features("the result", getResult()))) ||
      failed(vectorFits(*this, "bias1", getBias1(), rows("fc1", getFc1()))) ||
      failed(vectorFits(*this, "bias2", getBias2(), columns("fc2", getFc2()))))
    return failure();
  return setFits(*this, "the set", getRows(), rows("fc1", getFc1()));
}

namespace {

/// An MLP of all neurons that skips nothing is dense.
struct SparseMlpOfAllIsDense : OpRewritePattern<SparseMlpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SparseMlpOp op,
                                PatternRewriter &rewriter) const override {
    if (op.getRows() || op.getSkipZeros())
      return rewriter.notifyMatchFailure(op, "leaves something out");
    rewriter.replaceOpWithNewOp<MlpOp>(op, op.getType(), op.getX(), op.getFc1(),
                                       op.getBias1(), op.getFc2(),
                                       op.getBias2(), op.getActivationAttr());
    return success();
  }
};

} // namespace

void SparseMlpOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                              MLIRContext *context) {
  patterns.add<SparseMlpOfAllIsDense>(context);
}
