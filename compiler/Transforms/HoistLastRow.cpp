//===- HoistLastRow.cpp - The head of a prompt for one row ----------------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"

namespace foresight {
#define GEN_PASS_DEF_HOISTLASTROWPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

/// Moves `op` in front of what makes its argument, if that works row by row and
/// nobody needs its other rows.
static bool hoist(LastRowOp op) {
  Operation *producer = op.getX().getDefiningOp();
  if (!isa_and_nonnull<LinearOp, LayerNormOp, ActivationOp>(producer) ||
      !op.getX().hasOneUse())
    return false;
  // `x` is the first operand of all three.
  Value x = producer->getOperand(0);
  auto xType = cast<RankedTensorType>(x.getType());
  OpBuilder builder(producer);
  auto row = LastRowOp::create(builder, op.getLoc(), withRows(xType, 1), x);
  producer->setOperand(0, row);
  producer->getResult(0).setType(op.getType());
  op.getResult().replaceAllUsesWith(producer->getResult(0));
  op.erase();
  hoist(row);
  return true;
}

namespace {

struct HoistLastRowPass
    : public foresight::impl::HoistLastRowPassBase<HoistLastRowPass> {
  void runOnOperation() override {
    SmallVector<LastRowOp> ops;
    getOperation().walk([&](LastRowOp op) { ops.push_back(op); });
    for (LastRowOp op : ops)
      hoist(op);
  }
};

} // namespace
