//===- ExpandMlp.cpp - MLPs to their two products -------------------------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"

#include "mlir/IR/PatternMatch.h"

namespace foresight {
#define GEN_PASS_DEF_EXPANDMLPPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

/// The type of an MLP's hidden values: `x`'s rows, a column a neuron.
static RankedTensorType hiddenType(Value x, Value fc1) {
  int64_t neurons = cast<RankedTensorType>(fc1.getType()).getDimSize(0);
  auto type = cast<RankedTensorType>(x.getType());
  return type.clone(SmallVector<int64_t>{type.getDimSize(0), neurons});
}

static void expand(MlpOp op, IRRewriter &rewriter) {
  rewriter.setInsertionPoint(op);
  Value hidden = LinearOp::create(
      rewriter, op.getLoc(), hiddenType(op.getX(), op.getFc1()), op.getX(),
      op.getFc1(), op.getBias1(), op.getActivation());
  rewriter.replaceOpWithNewOp<ColumnLinearOp>(
      op, op.getType(), hidden, op.getFc2(), op.getBias2(), /*rows=*/Value(),
      /*skip_zeros=*/false);
}

static void expand(SparseMlpOp op, IRRewriter &rewriter) {
  rewriter.setInsertionPoint(op);
  Type type = hiddenType(op.getX(), op.getFc1());
  Value hidden;
  if (op.getRows())
    hidden = GatherLinearOp::create(rewriter, op.getLoc(), type, op.getX(),
                                    op.getFc1(), op.getBias1(), op.getRows(),
                                    op.getActivation());
  else
    hidden = LinearOp::create(rewriter, op.getLoc(), type, op.getX(),
                              op.getFc1(), op.getBias1(), op.getActivation());
  // Neurons outside the set are 0 in `hidden`: to skip zeros covers the set, so
  // the set need not leave the stage that selects.
  bool skipZeros = op.getSkipZeros() || op.getRows();
  rewriter.replaceOpWithNewOp<ColumnLinearOp>(op, op.getType(), hidden,
                                              op.getFc2(), op.getBias2(),
                                              /*rows=*/Value(), skipZeros);
}

/// `activate(linear(x))` with no other use of the linear.
static void fuseActivation(ActivationOp op, IRRewriter &rewriter) {
  auto linear = op.getX().getDefiningOp<LinearOp>();
  if (!linear || !linear.getResult().hasOneUse() ||
      linear.getActivation() != Activation::None)
    return;
  linear.setActivation(op.getActivation());
  linear->setLoc(rewriter.getFusedLoc({linear.getLoc(), op.getLoc()}));
  rewriter.replaceOp(op, linear);
}

namespace {

struct ExpandMlpPass
    : public foresight::impl::ExpandMlpPassBase<ExpandMlpPass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<MlpOp, SparseMlpOp, ActivationOp>(op))
        ops.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (Operation *op : ops) {
      if (auto mlp = dyn_cast<MlpOp>(op))
        expand(mlp, rewriter);
      else if (auto sparse = dyn_cast<SparseMlpOp>(op))
        expand(sparse, rewriter);
      else
        fuseActivation(cast<ActivationOp>(op), rewriter);
    }
  }
};

} // namespace
