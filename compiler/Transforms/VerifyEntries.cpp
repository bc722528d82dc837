//===- VerifyEntries.cpp - The contract of the entries phase --------------===//

#include "PredictionSource.h"
#include "Utils.h"

#include "foresight/Transforms/Passes.h"

namespace foresight {
#define GEN_PASS_DEF_VERIFYENTRIESPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

static LogicalResult verifyOneToken(func::FuncOp entry) {
  WalkResult walked = entry.walk([&](Operation *op) {
    for (Type type : op->getResultTypes()) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      if (tensor && !tensor.hasStaticShape()) {
        op->emitError() << "has type " << type
                        << " in an entry that computes one token";
        return WalkResult::interrupt();
      }
    }
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

static LogicalResult verifyDense(func::FuncOp entry) {
  WalkResult walked = entry.walk([&](Operation *op) {
    if (isa<PredictOp, SelectCertifiedOp, SelectThresholdOp, SelectTopkOp,
            SparseMlpOp, GatherLinearOp>(op)) {
      op->emitError() << "is in @" << entry.getName()
                      << "; only @decode may be sparse";
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

/// A prediction reads what it says; a proof reads its consumer's own input.
static LogicalResult verifyPrediction(PredictOp predict,
                                      const PredictionSource &sources) {
  if (predict.getPredictor().size() != 1)
    return success();
  if (predict.getLookahead() != Lookahead::Here && feedsProof(predict))
    return predict.emitError()
           << "looks ahead from " << stringifyLookahead(predict.getLookahead())
           << " and feeds a proof, which needs its consumer's own input";
  // An MLP that reads no LayerNorm can only be predicted from its own input.
  auto norm = predict.getX().getDefiningOp<LayerNormOp>();
  if (!norm)
    return success();
  FailureOr<Value> stream = sources.streamFor(predict);
  if (failed(stream))
    return failure();
  if (*stream != norm.getX())
    return predict.emitError() << "does not read the place that its lookahead "
                               << stringifyLookahead(predict.getLookahead())
                               << " names; run foresight-lookahead";
  return success();
}

namespace {

struct VerifyEntriesPass
    : public foresight::impl::VerifyEntriesPassBase<VerifyEntriesPass> {
  LogicalResult verify() {
    ModuleOp module = getOperation();
    if (func::FuncOp step = findEntry(module, "step"))
      return step.emitError() << "is left; run foresight-specialize-entries";
    for (StringRef name : {"prefill", "decode"})
      if (!findEntry(module, name))
        return module.emitError()
               << "has no function with foresight.entry = \"" << name << "\"";
    func::FuncOp decode = findEntry(module, "decode");
    for (func::FuncOp entry : entriesOf(module)) {
      if (entry != decode && failed(verifyDense(entry)))
        return failure();
      bool hasManyRows = entry == findEntry(module, "prefill") ||
                         entry == findEntry(module, "decode_batch");
      if (!hasManyRows && failed(verifyOneToken(entry)))
        return failure();
    }
    PredictionSource sources(decode);
    WalkResult walked = decode.walk([&](PredictOp op) {
      return failed(verifyPrediction(op, sources)) ? WalkResult::interrupt()
                                                   : WalkResult::advance();
    });
    return failure(walked.wasInterrupted());
  }

  void runOnOperation() override {
    if (failed(verify()))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
