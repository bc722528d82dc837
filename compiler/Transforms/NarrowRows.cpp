//===- NarrowRows.cpp - Rows of a prompt in 16 bits -----------------------===//

#include "foresight/Target/TargetInfo.h"
#include "foresight/Transforms/Passes.h"

#include "foresight/Dialect/Foresight.h"

namespace foresight {
#define GEN_PASS_DEF_NARROWROWSPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

/// What `use` in a stage's body rounds the value to, or null if it does not.
static Type roundedTo(StageOp stage, OpOperand &use) {
  Operation *op = use.getOwner();
  if (auto linear = dyn_cast<LinearOp>(op))
    return use.get() == linear.getX()
               ? cast<RankedTensorType>(linear.getWeight().getType())
                     .getElementType()
               : Type();
  if (auto append = dyn_cast<KvAppendOp>(op))
    return cast<KvCacheType>(append.getCache().getType()).getElementType();
  if (auto attention = dyn_cast<AttentionOp>(op))
    return cast<KvCacheType>(attention.getCache().getType()).getElementType();
  return {};
}

/// Whether what computes `yielded` can round it.
static bool canRound(StageOp stage, Value yielded) {
  if (!yielded.hasOneUse())
    return false;
  Operation *op = yielded.getDefiningOp();
  if (auto linear = dyn_cast_or_null<LinearOp>(op))
    return linear.getActivation() == Activation::None ||
           linear.getActivation() == Activation::Relu;
  return isa_and_nonnull<LayerNormOp, AttentionOp>(op) &&
         !stage.getLibraryAttr();
}

/// The 16-bit type that all readers of `result` round it to, or null. Collects
/// the arguments of stages that it becomes.
static Type narrowType(Value result, SmallVectorImpl<BlockArgument> &readers) {
  Type narrow;
  for (OpOperand &use : result.getUses()) {
    auto stage = dyn_cast<StageOp>(use.getOwner());
    if (!stage || use.getOperandNumber() < stage.getAfter().size())
      return {};
    BlockArgument argument = stage.getBody().getArgument(
        use.getOperandNumber() - stage.getAfter().size());
    for (OpOperand &inner : argument.getUses()) {
      Type type = roundedTo(stage, inner);
      if (!type || type.isF32() || (narrow && type != narrow))
        return {};
      narrow = type;
    }
    readers.push_back(argument);
  }
  return narrow;
}

static void narrow(StageOp stage, unsigned index) {
  Value result = stage.getResults()[index];
  auto type = dyn_cast<RankedTensorType>(result.getType());
  if (!type || type.getRank() != 2 || !type.isDynamicDim(0) ||
      !type.getElementType().isF32())
    return;
  Value yielded = stage.getBody().front().getTerminator()->getOperand(index);
  SmallVector<BlockArgument> readers;
  Type element = narrowType(result, readers);
  if (!element || !canRound(stage, yielded))
    return;
  RankedTensorType narrowed = type.clone(element);
  yielded.setType(narrowed);
  result.setType(narrowed);
  for (BlockArgument reader : readers)
    reader.setType(narrowed);
}

namespace {

struct NarrowRowsPass
    : public foresight::impl::NarrowRowsPassBase<NarrowRowsPass> {
  using NarrowRowsPassBase::NarrowRowsPassBase;

  void runOnOperation() override {
    std::unique_ptr<TargetInfo> info = createTargetInfo(target);
    if (!info) {
      getOperation().emitError() << "there is no target '" << target << "'";
      return signalPassFailure();
    }
    if (!info->narrowsPromptRows())
      return;
    getOperation().walk([](StageOp stage) {
      for (unsigned i = 0; i < stage.getResults().size(); ++i)
        narrow(stage, i);
    });
  }
};

} // namespace
