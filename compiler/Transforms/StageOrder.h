//===- StageOrder.h - What runs before what ---------------------*- C++ -*-===//
#ifndef FORESIGHT_TRANSFORMS_STAGEORDER_H
#define FORESIGHT_TRANSFORMS_STAGEORDER_H

#include "foresight/Dialect/Foresight.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>
#include <vector>

namespace foresight {

/// A partial order of `size` steps, given in an order that satisfies it.
class StepOrder {
public:
  /// `needs[i]` are the steps that must have finished before step i; all are
  /// below i.
  explicit StepOrder(llvm::ArrayRef<llvm::SmallVector<unsigned>> needs);

  /// Whether `a` has finished when `b` starts, for every execution.
  bool isBefore(unsigned a, unsigned b) const { return before[b].test(a); }

  /// The fewest steps that `step` must wait for.
  llvm::SmallVector<unsigned> reduced(unsigned step) const;

private:
  std::vector<llvm::SmallVector<unsigned>> needs;
  std::vector<llvm::BitVector> before;
};

/// The launches of a scheduled entry and the order that their tokens give. A
/// launch that waits for a later one is not in any order: `fromTokens` then
/// returns nothing.
struct LaunchOrder {
  llvm::SmallVector<LaunchOp> launches;
  StepOrder order;

  static std::optional<LaunchOrder> fromTokens(mlir::Block &block);
};

/// The argument of `body` that result `index` is the next state of (a KV cache
/// after some appends), or nothing.
std::optional<unsigned> stateArgument(mlir::Block &body, unsigned index);

/// The argument of `body` that result `index` may overwrite: what a residual
/// sum adds to, where nothing else in the body reads it. An element of it is
/// read by the unit that writes the same element of the result.
std::optional<unsigned> inPlaceArgument(mlir::Block &body, unsigned index);

} // namespace foresight

#endif // FORESIGHT_TRANSFORMS_STAGEORDER_H
