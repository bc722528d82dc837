//===- FormStages.cpp - Ops to stages -------------------------------------===//
//
// StageGroups.cpp decides what goes together and StageNames.cpp what it is
// called; here groups become regions.
//
//===----------------------------------------------------------------------===//

#include "StageGroups.h"
#include "Utils.h"

#include "foresight/Transforms/Passes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace foresight {
#define GEN_PASS_DEF_FORMSTAGESPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

/// Puts one `get_weight` a weight at the start of the entry: stages take them
/// as arguments, whatever order they run in.
static void gatherWeights(func::FuncOp entry) {
  Block &block = entry.getBody().front();
  llvm::MapVector<Attribute, GetWeightOp> first;
  for (auto get : llvm::make_early_inc_range(block.getOps<GetWeightOp>())) {
    auto [found, inserted] = first.insert({get.getWeightAttr(), get});
    if (inserted)
      continue;
    get.getResult().replaceAllUsesWith(found->second.getResult());
    get.erase();
  }
  Operation *last = nullptr;
  for (auto &[symbol, get] : first) {
    if (last)
      get->moveAfter(last);
    else
      get->moveBefore(&block, block.begin());
    last = get;
  }
}

/// Whether `op` computes the first half of a sparse MLP.
static bool isSparseFc1(Operation *op) {
  if (isa<GatherLinearOp>(op))
    return true;
  return isa<LinearOp>(op) && llvm::any_of(op->getUsers(), [](Operation *user) {
           auto fc2 = dyn_cast<ColumnLinearOp>(user);
           return fc2 && fc2.getSkipZeros();
         });
}

/// Gives each sparse fc1 a LayerNorm of its own where others read it too. Its
/// stage normalises the residual stream in any case, to predict.
static void ownNorms(func::FuncOp entry) {
  for (Operation &op : llvm::make_early_inc_range(entry.getBody().front())) {
    if (!isSparseFc1(&op))
      continue;
    auto norm = op.getOperand(0).getDefiningOp<LayerNormOp>();
    if (norm && !norm.getResult().hasOneUse())
      op.setOperand(0, OpBuilder(&op).clone(*norm)->getResult(0));
  }
}

/// Lets fc2 take its rows from a set that is known before fc1 has run, instead
/// of looking for what is not zero.
static void shareSets(func::FuncOp entry) {
  for (auto gather : entry.getBody().front().getOps<GatherLinearOp>()) {
    if (!attentionBeside(gather))
      continue;
    for (Operation *user : gather.getResult().getUsers())
      if (auto fc2 = dyn_cast<ColumnLinearOp>(user);
          fc2 && fc2.getSkipZeros() && !fc2.getRows()) {
        fc2.getRowsMutable().assign(gather.getRows());
        fc2.setSkipZeros(false);
      }
  }
}

/// Moves the ops of `group` into a new stage at the end of the entry.
static StageOp makeStage(const StageGroup &group, Block &block) {
  llvm::SmallPtrSet<Operation *, 8> members(group.ops.begin(), group.ops.end());
  llvm::SetVector<Value> inputs;
  SmallVector<Value> results;
  SmallVector<Location> locations;
  for (Operation *op : group.ops) {
    locations.push_back(op->getLoc());
    for (Value operand : op->getOperands())
      if (!members.contains(operand.getDefiningOp()))
        inputs.insert(operand);
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) {
            return !members.contains(user);
          }))
        results.push_back(result);
  }

  OpBuilder builder(block.getTerminator());
  MLIRContext *context = builder.getContext();
  Location loc = FusedLoc::get(context, locations);
  auto stage = StageOp::create(
      builder, loc, ValueRange(results).getTypes(), TokenType::get(context),
      group.name, /*after=*/ValueRange(), inputs.getArrayRef(),
      group.library.empty() ? StringAttr()
                            : builder.getStringAttr(group.library),
      group.role, group.layer);
  Block &body = stage.getBody().emplaceBlock();
  for (Value input : inputs) {
    BlockArgument arg = body.addArgument(input.getType(), input.getLoc());
    input.replaceUsesWithIf(
        arg, [&](OpOperand &use) { return members.contains(use.getOwner()); });
  }
  for (Operation *op : group.ops) {
    op->moveBefore(&body, body.end());
    // Notes that others left must not keep equal stages apart.
    op->setDiscardableAttrs(builder.getDictionaryAttr({}));
  }
  builder.setInsertionPointToEnd(&body);
  YieldOp::create(builder, loc, results);
  for (auto [inner, outer] : llvm::zip(results, stage.getResults()))
    inner.replaceUsesWithIf(outer, [&](OpOperand &use) {
      return use.getOwner()->getBlock() != &body;
    });
  return stage;
}

namespace {

struct FormStagesPass
    : public foresight::impl::FormStagesPassBase<FormStagesPass> {
  using FormStagesPassBase::FormStagesPassBase;

  LogicalResult runOnEntry(func::FuncOp entry, const TargetInfo &info) {
    if (!entry.getBody().hasOneBlock())
      return entry.emitError() << "must be one block";
    // Results of pure ops that nobody reads would be stages of their own.
    for (Operation &op : llvm::make_early_inc_range(
             llvm::reverse(entry.getBody().front().without_terminator())))
      if (isOpTriviallyDead(&op))
        op.erase();
    gatherWeights(entry);
    if (info.recomputesNorm(RowCount::One))
      ownNorms(entry);
    if (info.predictsBesideAttention())
      shareSets(entry);
    FailureOr<std::vector<StageGroup>> groups = groupStages(entry, info);
    if (failed(groups))
      return failure();
    nameStages(entry, *groups);
    // Code for a batch is made for how many rows there may be.
    bool areFew = hasFewRows(entry, info);
    for (const StageGroup &group : *groups) {
      StageOp stage = makeStage(group, entry.getBody().front());
      if (areFew && group.library.empty())
        stage->setAttr(kMaxTokensAttr, entry->getAttr(kMaxTokensAttr));
    }
    return success();
  }

  void runOnOperation() override {
    std::unique_ptr<TargetInfo> info = createTargetInfo(target);
    if (!info) {
      getOperation().emitError() << "no stage rules for target '" << target
                                 << "'; there are: cpu, cuda";
      return signalPassFailure();
    }
    for (func::FuncOp entry : entriesOf(getOperation()))
      if (failed(runOnEntry(entry, *info)))
        return signalPassFailure();
  }
};

} // namespace
