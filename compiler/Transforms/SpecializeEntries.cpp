//===- SpecializeEntries.cpp - @step to @prefill, @decode and others ------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"

namespace foresight {
#define GEN_PASS_DEF_SPECIALIZEENTRIESPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

/// `type` with one token where it has any number.
static Type oneToken(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() > 0 && tensor.isDynamicDim(0)
             ? withRows(tensor, 1)
             : type;
}

/// A value with an unknown size that is not its number of tokens cannot be
/// specialised.
static LogicalResult checkOnlyTokensAreDynamic(func::FuncOp step) {
  auto check = [](Value value) {
    auto tensor = dyn_cast<RankedTensorType>(value.getType());
    return !tensor || tensor.getRank() == 0 ||
           llvm::none_of(tensor.getShape().drop_front(), ShapedType::isDynamic);
  };
  for (BlockArgument arg : step.getArguments())
    if (!check(arg))
      return step.emitError()
             << "argument " << arg.getArgNumber() << " has type "
             << arg.getType()
             << ", but only the first dimension, the number of tokens, may "
                "be unknown";
  WalkResult walked = step.walk([&](Operation *op) {
    for (Value result : op->getResults())
      if (!check(result)) {
        op->emitError() << "has a result of type " << result.getType()
                        << ", but only the first dimension, the number of "
                           "tokens, may be unknown";
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

/// Retypes everything in `func` for one token; `last_row` has nothing to do.
static void specializeToOneToken(func::FuncOp func) {
  for (BlockArgument arg : func.getArguments())
    arg.setType(oneToken(arg.getType()));
  SmallVector<LastRowOp> lastRows;
  func.walk([&](Operation *op) {
    for (Value result : op->getResults())
      result.setType(oneToken(result.getType()));
    if (auto lastRow = dyn_cast<LastRowOp>(op))
      lastRows.push_back(lastRow);
  });
  for (LastRowOp op : lastRows) {
    op.getResult().replaceAllUsesWith(op.getX());
    op.erase();
  }
  func.setType(FunctionType::get(
      func.getContext(), func.getBody().front().getArgumentTypes(),
      func.getBody().front().getTerminator()->getOperandTypes()));
}

/// A row is the newest token of a sequence of its own: `sequences` has one
/// number a row, and every row has logits.
static void specializeToSequences(func::FuncOp func) {
  for (BlockArgument arg : func.getArguments())
    if (auto tensor = dyn_cast<RankedTensorType>(arg.getType());
        tensor && tensor.getRank() == 1)
      arg.setType(withRows(tensor, ShapedType::kDynamic));
  Block &block = func.getBody().front();
  for (auto op : llvm::make_early_inc_range(block.getOps<LastRowOp>())) {
    op.getResult().replaceAllUsesWith(op.getX());
    op.erase();
  }
  auto hasManyRows = [](Value value) {
    auto tensor = dyn_cast<RankedTensorType>(value.getType());
    return tensor && tensor.getRank() == 2 && tensor.isDynamicDim(0);
  };
  // In order: what the last row alone went through has all rows now.
  for (Operation &op : block.without_terminator())
    if (llvm::any_of(op.getOperands(), hasManyRows))
      for (Value result : op.getResults())
        if (auto tensor = dyn_cast<RankedTensorType>(result.getType()))
          result.setType(withRows(tensor, ShapedType::kDynamic));
  func.setType(FunctionType::get(func.getContext(), block.getArgumentTypes(),
                                 block.getTerminator()->getOperandTypes()));
}

namespace {

struct SpecializeEntriesPass
    : public foresight::impl::SpecializeEntriesPassBase<SpecializeEntriesPass> {
  using SpecializeEntriesPassBase::SpecializeEntriesPassBase;

  func::FuncOp cloneAs(func::FuncOp step, StringRef name, int64_t tokens) {
    OpBuilder builder(step);
    auto clone = cast<func::FuncOp>(builder.clone(*step));
    clone.setSymName(name);
    clone->setAttr(kEntryAttr, builder.getStringAttr(name));
    clone->setAttr(kMaxTokensAttr, builder.getI64IntegerAttr(tokens));
    return clone;
  }

  void runOnOperation() override {
    func::FuncOp step = findEntry(getOperation(), "step");
    if (!step) {
      getOperation().emitError()
          << "has no function with foresight.entry = \"step\" to specialise";
      return signalPassFailure();
    }
    if (maxTokens < 1) {
      step.emitError() << "max-tokens must be at least 1, found "
                       << maxTokens.getValue();
      return signalPassFailure();
    }
    if (failed(checkOnlyTokensAreDynamic(step)))
      return signalPassFailure();
    // A prompt that does not fit in the caches is refused anyway.
    int64_t tokens = maxTokens, sequences = 1;
    for (Type type : step.getArgumentTypes())
      if (auto cache = dyn_cast<KvCacheType>(type)) {
        tokens = std::min(tokens, cache.getCapacity());
        sequences = cache.getSequences();
      }
    cloneAs(step, "prefill", tokens);
    specializeToOneToken(cloneAs(step, "decode", 1));
    if (denseDecode)
      specializeToOneToken(cloneAs(step, "decode_dense", 1));
    if (sequences > 1)
      specializeToSequences(cloneAs(step, "decode_batch", sequences));
    step.erase();
  }
};

} // namespace
