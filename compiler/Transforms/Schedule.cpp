//===- Schedule.cpp - Order and tokens of stages --------------------------===//
//
// Data flow gives most of the order. The rest comes from KV caches, whose
// versions will all be the same memory: who reads a version must do so before
// the next one is made. Memory of other values is shared later, and only where
// the order given here allows it.
//
//===----------------------------------------------------------------------===//

#include "StageOrder.h"
#include "Utils.h"

#include "foresight/Transforms/Passes.h"

#include "llvm/ADT/SetVector.h"

#include <queue>

namespace foresight {
#define GEN_PASS_DEF_SCHEDULEPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

namespace {

/// The stages of an entry and what each needs.
class StageGraph {
public:
  static FailureOr<StageGraph> create(Block &block);
  LogicalResult schedule(Block &block);

private:
  void addDataDependences();
  LogicalResult addStateDependences();
  FailureOr<SmallVector<unsigned>> order() const;

  SmallVector<StageOp> stages;
  llvm::DenseMap<Operation *, unsigned> indexOf;
  std::vector<llvm::SmallSetVector<unsigned, 4>> needs;
};

} // namespace

FailureOr<StageGraph> StageGraph::create(Block &block) {
  StageGraph graph;
  for (Operation &op : block.without_terminator()) {
    if (isa<GetWeightOp>(op))
      continue;
    auto stage = dyn_cast<StageOp>(op);
    if (!stage)
      return op.emitError()
             << "is not in a stage; run foresight-form-stages first";
    graph.indexOf[stage] = graph.stages.size();
    graph.stages.push_back(stage);
  }
  graph.needs.resize(graph.stages.size());
  graph.addDataDependences();
  if (failed(graph.addStateDependences()))
    return failure();
  return graph;
}

void StageGraph::addDataDependences() {
  for (auto [index, stage] : llvm::enumerate(stages))
    for (Value operand : stage->getOperands())
      if (Operation *def = operand.getDefiningOp(); indexOf.contains(def))
        needs[index].insert(indexOf.lookup(def));
}

LogicalResult StageGraph::addStateDependences() {
  for (auto [index, stage] : llvm::enumerate(stages)) {
    Block &body = stage.getBody().front();
    for (unsigned result = 0; result < stage.getResults().size(); ++result) {
      std::optional<unsigned> arg = stateArgument(body, result);
      if (!arg)
        continue;
      Value old = stage.getInputs()[*arg];
      for (OpOperand &use : old.getUses()) {
        Operation *reader = use.getOwner();
        if (reader == stage)
          continue;
        if (!indexOf.contains(reader))
          return stage.emitError()
                 << "'" << stage.getName()
                 << "' makes the next version of a cache whose old version "
                    "the entry returns";
        auto readerStage = cast<StageOp>(reader);
        for (unsigned r = 0; r < readerStage.getResults().size(); ++r)
          if (auto other = stateArgument(readerStage.getBody().front(), r);
              other && readerStage.getInputs()[*other] == old)
            return stage.emitError()
                   << "'" << stage.getName() << "' and '"
                   << readerStage.getName()
                   << "' both append to the same version of a cache";
        needs[index].insert(indexOf.lookup(reader));
      }
    }
  }
  return success();
}

/// The stages so that what each needs comes before it; otherwise as they were.
FailureOr<SmallVector<unsigned>> StageGraph::order() const {
  std::priority_queue<unsigned, std::vector<unsigned>, std::greater<unsigned>>
      ready;
  SmallVector<unsigned> waitsFor;
  SmallVector<SmallVector<unsigned>> neededBy(stages.size());
  for (auto [index, list] : llvm::enumerate(needs)) {
    waitsFor.push_back(list.size());
    for (unsigned other : list)
      neededBy[other].push_back(index);
    if (list.empty())
      ready.push(index);
  }
  SmallVector<unsigned> result;
  while (!ready.empty()) {
    unsigned next = ready.top();
    ready.pop();
    result.push_back(next);
    for (unsigned other : neededBy[next])
      if (--waitsFor[other] == 0)
        ready.push(other);
  }
  if (result.size() == stages.size())
    return result;
  for (auto [index, count] : llvm::enumerate(waitsFor))
    if (count)
      return StageOp(stages[index]).emitError()
             << "'" << StageOp(stages[index]).getName()
             << "' waits, by way of others, for itself: a stage reads a cache "
                "as it was before an append that it needs";
  return failure();
}

LogicalResult StageGraph::schedule(Block &block) {
  FailureOr<SmallVector<unsigned>> sequence = order();
  if (failed(sequence))
    return failure();
  SmallVector<unsigned> position(stages.size());
  for (auto [place, index] : llvm::enumerate(*sequence))
    position[index] = place;
  std::vector<SmallVector<unsigned>> needsByPlace;
  for (unsigned index : *sequence) {
    SmallVector<unsigned> list;
    for (unsigned other : needs[index])
      list.push_back(position[other]);
    needsByPlace.push_back(std::move(list));
  }
  StepOrder steps(needsByPlace);
  for (auto [place, index] : llvm::enumerate(*sequence)) {
    StageOp stage = stages[index];
    stage->moveBefore(block.getTerminator());
    SmallVector<Value> tokens;
    for (unsigned other : steps.reduced(place))
      tokens.push_back(stages[(*sequence)[other]].getDone());
    stage.getAfterMutable().assign(tokens);
  }
  return success();
}

namespace {

struct SchedulePass : public foresight::impl::SchedulePassBase<SchedulePass> {
  void runOnOperation() override {
    for (func::FuncOp entry : entriesOf(getOperation())) {
      Block &block = entry.getBody().front();
      FailureOr<StageGraph> graph = StageGraph::create(block);
      if (failed(graph) || failed(graph->schedule(block)))
        return signalPassFailure();
    }
  }
};

} // namespace
