//===- AddSequences.cpp - Caches of several sequences ---------------------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"

namespace foresight {
#define GEN_PASS_DEF_ADDSEQUENCESPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

static void setSequences(Value value, int64_t count) {
  if (auto type = dyn_cast<KvCacheType>(value.getType()))
    value.setType(KvCacheType::get(type.getContext(), type.getHeads(),
                                   type.getHeadDim(), type.getCapacity(),
                                   type.getElementType(), count));
}

namespace {

struct AddSequencesPass
    : public foresight::impl::AddSequencesPassBase<AddSequencesPass> {
  using AddSequencesPassBase::AddSequencesPassBase;

  void runOnOperation() override {
    if (maxBatch < 1) {
      getOperation().emitError()
          << "max-batch must be at least 1, found " << maxBatch.getValue();
      return signalPassFailure();
    }
    func::FuncOp step = findEntry(getOperation(), "step");
    if (!step || maxBatch == 1)
      return;
    Block &block = step.getBody().front();
    Type i32 = IntegerType::get(&getContext(), 32);
    // Behind ids and positions, in front of the caches.
    unsigned index = 0;
    while (index < block.getNumArguments() &&
           !isa<KvCacheType>(block.getArgument(index).getType()))
      ++index;
    BlockArgument sequences = block.insertArgument(
        index, RankedTensorType::get({1}, i32), step.getLoc());
    for (BlockArgument argument : block.getArguments())
      setSequences(argument, maxBatch);
    step.walk([&](Operation *op) {
      for (Value result : op->getResults())
        setSequences(result, maxBatch);
      if (auto append = dyn_cast<KvAppendOp>(op))
        append.getSequencesMutable().assign(sequences);
      else if (auto attention = dyn_cast<AttentionOp>(op))
        attention.getSequencesMutable().assign(sequences);
    });
    step.setType(FunctionType::get(&getContext(), block.getArgumentTypes(),
                                   block.getTerminator()->getOperandTypes()));
  }
};

} // namespace
