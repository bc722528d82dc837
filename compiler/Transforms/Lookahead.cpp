//===- Lookahead.cpp - Predictions as early as allowed --------------------===//

#include "PredictionSource.h"
#include "Utils.h"

#include "foresight/Transforms/Passes.h"

#include "mlir/IR/Remarks.h"

namespace foresight {
#define GEN_PASS_DEF_LOOKAHEADPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

namespace {

struct LookaheadPass
    : public foresight::impl::LookaheadPassBase<LookaheadPass> {
  /// Makes `predict` read `stream` where it is first known, through a LayerNorm
  /// like the one that it read before.
  void moveTo(PredictOp predict, Value stream) {
    auto norm = predict.getX().getDefiningOp<LayerNormOp>();
    OpBuilder builder(predict);
    builder.setInsertionPointAfterValue(stream);
    Value factors;
    if (norm.getGamma())
      factors = builder.clone(*norm.getGamma().getDefiningOp())->getResult(0);
    Value early =
        LayerNormOp::create(builder, norm.getLoc(), norm.getType(), stream,
                            factors, Value(), norm.getEpsilonAttr());
    for (Operation *user : predict.getScores().getUsers())
      if (auto select = dyn_cast<SelectCertifiedOp>(user))
        if (select.getX() == predict.getX())
          select.getXMutable().assign(early);
    predict.getXMutable().assign(early);
    Operation *last = early.getDefiningOp();
    for (Value predictor : predict.getPredictor())
      if (Operation *get = predictor.getDefiningOp();
          get && last->isBeforeInBlock(get))
        get->moveBefore(last);
    predict->moveAfter(last);
    if (norm->use_empty())
      norm.erase();
  }

  /// What a folded LayerNorm multiplies by is the balance of the copy.
  bool hasNoGamma(LayerNormOp norm) {
    if (!norm.getGamma())
      return true;
    SymbolTable symbols(getOperation());
    WeightOp weight = weightOf(norm.getGamma(), symbols);
    auto derived =
        weight ? dyn_cast<DerivedAttr>(weight.getSource()) : DerivedAttr();
    return derived && derived.getKind() == DerivedKind::Balance;
  }

  LogicalResult run(PredictOp predict, const PredictionSource &sources) {
    Lookahead wanted = predict.getLookahead();
    if (wanted == Lookahead::Here)
      return success();
    if (feedsProof(predict))
      return predict.emitError()
             << "looks ahead from " << stringifyLookahead(wanted)
             << " but a selection with kappa 1 is made from its scores, which "
                "proves nothing of the consumer's own input; use a margin or "
                "lookahead here";
    auto norm = predict.getX().getDefiningOp<LayerNormOp>();
    if (!norm || norm.getBeta() || !hasNoGamma(norm))
      return predict.emitError()
             << "looks ahead but does not read a LayerNorm without gamma and "
                "beta; run foresight-fold-norm first";
    FailureOr<Value> stream = sources.streamFor(predict);
    if (failed(stream))
      return failure();
    if (*stream == norm.getX())
      return success();
    moveTo(predict, *stream);
    remark::passed(predict.getLoc(),
                   remark::RemarkOpts::name("lookahead").category("sparsity"))
        << remark::add("predicts from {0}", stringifyLookahead(wanted));
    return success();
  }

  void runOnOperation() override {
    for (func::FuncOp entry : entriesOf(getOperation())) {
      PredictionSource sources(entry);
      SmallVector<PredictOp> predicts;
      entry.walk([&](PredictOp op) { predicts.push_back(op); });
      for (PredictOp predict : predicts)
        if (failed(run(predict, sources)))
          return signalPassFailure();
    }
  }
};

} // namespace
