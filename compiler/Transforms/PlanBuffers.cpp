//===- PlanBuffers.cpp - Memory of every value ----------------------------===//

#include "BufferPlan.h"
#include "StageOrder.h"
#include "Utils.h"

#include "foresight/Target/TargetInfo.h"
#include "foresight/Transforms/Passes.h"

namespace foresight {
#define GEN_PASS_DEF_PLANBUFFERSPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

#include <array>

using namespace mlir;
using namespace foresight;

namespace {

/// Assigns the values of one entry to the buffers of a plan.
class EntryPlanner {
public:
  EntryPlanner(func::FuncOp entry, BufferPlan &plan, LaunchOrder order,
               SymbolTable &symbols)
      : entry(entry), plan(plan), order(std::move(order)), symbols(symbols) {
    auto tokens = entry->getAttrOfType<IntegerAttr>(kMaxTokensAttr);
    maxTokens = tokens ? tokens.getInt() : 1;
  }

  LogicalResult run();

private:
  LogicalResult planArguments();
  LogicalResult planLaunch(unsigned step, LaunchOp launch);
  std::optional<unsigned> reusableBuffer(unsigned step, LaunchOp launch,
                                         Block &body, unsigned result);
  FlatSymbolRefAttr symbolOf(Value value) {
    return FlatSymbolRefAttr::get(entry.getContext(),
                                  plan.at(bufferOf.lookup(value)).name);
  }
  LogicalResult assign(Value value, StringRef name, StringRef kind) {
    FailureOr<unsigned> buffer =
        plan.get(name, kind, value.getType(), maxTokens, entry.getLoc());
    if (failed(buffer))
      return failure();
    bufferOf[value] = *buffer;
    return success();
  }

  func::FuncOp entry;
  BufferPlan &plan;
  LaunchOrder order;
  SymbolTable &symbols;
  int64_t maxTokens;
  llvm::DenseMap<Value, unsigned> bufferOf;
  /// By buffer: the steps of this entry that read or write it.
  std::map<unsigned, SmallVector<unsigned>> touches;
};

} // namespace

LogicalResult EntryPlanner::planArguments() {
  unsigned ids = 0, caches = 0, others = 0;
  for (BlockArgument arg : entry.getArguments()) {
    std::string name;
    StringRef kind = "input";
    auto tensor = dyn_cast<RankedTensorType>(arg.getType());
    if (isa<KvCacheType>(arg.getType())) {
      name = "kv." + std::to_string(caches++);
      kind = "state";
    } else if (tensor && tensor.getElementType().isInteger(32)) {
      constexpr std::array names = {"ids", "positions", "sequences"};
      name = ids < names.size() ? names[ids] : "ids_" + std::to_string(ids);
      ++ids;
    } else {
      name = "input." + std::to_string(others++);
    }
    if (failed(assign(arg, name, kind)))
      return failure();
    entry.setArgAttr(arg.getArgNumber(), kBufferAttr, symbolOf(arg));
  }
  return success();
}

std::optional<unsigned> EntryPlanner::reusableBuffer(unsigned step,
                                                     LaunchOp launch,
                                                     Block &body,
                                                     unsigned result) {
  std::optional<unsigned> arg = inPlaceArgument(body, result);
  if (!arg)
    return std::nullopt;
  Value old = launch.getInputs()[*arg];
  auto found = bufferOf.find(old);
  if (found == bufferOf.end() ||
      old.getType() != launch.getResults()[result].getType())
    return std::nullopt;
  unsigned buffer = found->second;
  if (plan.at(buffer).kind != "work")
    return std::nullopt;
  // Whoever else reads the old value, or wrote it, must have finished.
  for (OpOperand &use : old.getUses()) {
    auto reader = dyn_cast<LaunchOp>(use.getOwner());
    if (!reader)
      return std::nullopt;
    if (reader == launch)
      continue;
    unsigned readerStep =
        llvm::find(order.launches, reader) - order.launches.begin();
    if (!order.order.isBefore(readerStep, step))
      return std::nullopt;
  }
  return buffer;
}

LogicalResult EntryPlanner::planLaunch(unsigned step, LaunchOp launch) {
  auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
  if (!kernel)
    return launch.emitError() << "names an unknown kernel";
  Block &body = kernel.getBody().front();
  unsigned unnamed = 0;
  SmallVector<Attribute> outs;
  Operation *terminator = entry.getBody().front().getTerminator();
  for (Value result : launch.getResults()) {
    unsigned index = cast<OpResult>(result).getResultNumber();
    if (std::optional<unsigned> arg = stateArgument(body, index)) {
      bufferOf[result] = bufferOf.lookup(launch.getInputs()[*arg]);
    } else if (!isa<RankedTensorType, IndexSetType>(result.getType())) {
      return launch.emitError()
             << "'" << launch.getName() << "' makes a value of type "
             << result.getType() << ", which has no place in memory";
    } else if (llvm::is_contained(terminator->getOperands(), result)) {
      unsigned place = llvm::find(terminator->getOperands(), result) -
                       terminator->operand_begin();
      std::string name =
          place == 0 ? "logits" : "output." + std::to_string(place);
      if (failed(assign(result, name, "output")))
        return failure();
    } else if (auto buffer = reusableBuffer(step, launch, body, index)) {
      bufferOf[result] = *buffer;
    } else {
      // Entries share what has the same name, and so must have its type.
      std::string name = (launch.getName() + ".out").str();
      if (Type element = getElementTypeOrSelf(result.getType());
          element.isF16() || element.isBF16())
        name += element.isF16() ? ".f16" : ".bf16";
      if (unnamed++)
        name += std::to_string(unnamed - 1);
      if (failed(assign(result, name, "work")))
        return failure();
    }
    touches[bufferOf.lookup(result)].push_back(step);
    outs.push_back(symbolOf(result));
  }
  for (Value input : launch.getInputs())
    if (auto found = bufferOf.find(input); found != bufferOf.end())
      touches[found->second].push_back(step);
  launch.setOutsAttr(ArrayAttr::get(entry.getContext(), outs));
  return success();
}

LogicalResult EntryPlanner::run() {
  if (failed(planArguments()))
    return failure();
  for (auto [step, launch] : llvm::enumerate(order.launches))
    if (failed(planLaunch(step, launch)))
      return failure();
  for (OpOperand &operand :
       entry.getBody().front().getTerminator()->getOpOperands()) {
    if (!bufferOf.contains(operand.get()))
      return entry.emitError() << "returns a value that no launch makes: "
                               << operand.get().getType();
    entry.setResultAttr(operand.getOperandNumber(), kBufferAttr,
                        symbolOf(operand.get()));
  }
  plan.addConflicts(touches, order.order);
  return success();
}

namespace {

struct PlanBuffersPass
    : public foresight::impl::PlanBuffersPassBase<PlanBuffersPass> {
  using PlanBuffersPassBase::PlanBuffersPassBase;

  void runOnOperation() override {
    std::unique_ptr<TargetInfo> info = createTargetInfo(target);
    if (!info) {
      getOperation().emitError() << "no stage rules for target '" << target
                                 << "'; there are: cpu, cuda";
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> entries = entriesOf(getOperation());
    if (entries.empty())
      return;
    SymbolTable symbols(getOperation());
    BufferPlan plan(*info);
    for (func::FuncOp entry : entries) {
      std::optional<LaunchOrder> order =
          LaunchOrder::fromTokens(entry.getBody().front());
      if (!order) {
        entry.emitError() << "has a launch that waits for a later one";
        return signalPassFailure();
      }
      if (failed(EntryPlanner(entry, plan, std::move(*order), symbols).run()))
        return signalPassFailure();
    }
    plan.placeWork();
    OpBuilder builder(entries.front());
    // Beside the weights: before the kernels.
    for (auto kernel : getOperation().getOps<KernelOp>()) {
      builder.setInsertionPoint(kernel);
      break;
    }
    if (failed(plan.emit(builder, entries.front().getLoc(), symbols)))
      return signalPassFailure();
  }
};

} // namespace
