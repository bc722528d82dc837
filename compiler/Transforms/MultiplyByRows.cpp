//===- MultiplyByRows.cpp - Dense second products by output rows ----------===//

#include "Utils.h"

#include "foresight/Target/TargetInfo.h"
#include "foresight/Transforms/Passes.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"

namespace foresight {
#define GEN_PASS_DEF_MULTIPLYBYROWSPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

/// The weight that `value` is the transpose of, or null.
static WeightOp transposeSource(Value value, SymbolTable &symbols) {
  auto get = value.getDefiningOp<GetWeightOp>();
  auto weight = get ? symbols.lookup<WeightOp>(get.getWeight()) : WeightOp();
  auto derived =
      weight ? dyn_cast<DerivedAttr>(weight.getSource()) : DerivedAttr();
  if (!derived || derived.getKind() != DerivedKind::Transpose)
    return {};
  return symbols.lookup<WeightOp>(derived.getSources()[0].getValue());
}

static void rewrite(StageOp stage, ColumnLinearOp column, SymbolTable &symbols,
                    IRRewriter &rewriter) {
  auto argument = dyn_cast<BlockArgument>(column.getWeight());
  if (!argument || !argument.hasOneUse())
    return;
  OpOperand &input =
      stage->getOpOperand(stage.getAfter().size() + argument.getArgNumber());
  Operation *transposed = input.get().getDefiningOp();
  WeightOp source = transposeSource(input.get(), symbols);
  if (!source ||
      cast<RankedTensorType>(source.getType()).getElementType() !=
          cast<RankedTensorType>(argument.getType()).getElementType())
    return;
  rewriter.setInsertionPoint(stage);
  input.set(GetWeightOp::create(rewriter, transposed->getLoc(),
                                source.getType(),
                                FlatSymbolRefAttr::get(source)));
  argument.setType(source.getType());
  rewriter.setInsertionPoint(column);
  rewriter.replaceOpWithNewOp<LinearOp>(column, column.getType(), column.getX(),
                                        argument, column.getBias(),
                                        Activation::None);
  if (transposed->use_empty())
    rewriter.eraseOp(transposed);
}

namespace {

struct MultiplyByRowsPass
    : public foresight::impl::MultiplyByRowsPassBase<MultiplyByRowsPass> {
  using MultiplyByRowsPassBase::MultiplyByRowsPassBase;

  void runOnOperation() override {
    std::unique_ptr<TargetInfo> info = createTargetInfo(target);
    if (!info) {
      getOperation().emitError() << "there is no target '" << target << "'";
      return signalPassFailure();
    }
    if (!info->multipliesByRows())
      return;
    if (leavesOutRows(getOperation()))
      return;
    SmallVector<std::pair<StageOp, ColumnLinearOp>> columns;
    getOperation().walk([&](ColumnLinearOp op) {
      if (auto stage = op->getParentOfType<StageOp>())
        columns.emplace_back(stage, op);
    });
    SymbolTable symbols(getOperation());
    IRRewriter rewriter(&getContext());
    for (auto [stage, column] : columns)
      rewrite(stage, column, symbols, rewriter);
  }
};

} // namespace
