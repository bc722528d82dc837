//===- StageGroups.h - Which ops become one stage ---------------*- C++ -*-===//
//
// The analysis behind FormStages: cuts an entry into groups of ops, orders them
// and says what each is in the model. Changes no IR.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TRANSFORMS_STAGEGROUPS_H
#define FORESIGHT_TRANSFORMS_STAGEGROUPS_H

#include "foresight/Dialect/Foresight.h"
#include "foresight/Target/TargetInfo.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>
#include <vector>

namespace foresight {

struct StageGroup {
  /// In program order.
  llvm::SmallVector<mlir::Operation *> ops;
  /// The library that computes it; empty: generated code.
  std::string library;
  /// Indices of the groups whose results it reads.
  llvm::SmallVector<unsigned> producers;

  std::string name;
  std::string role = "other";
  int64_t layer = -1;

  template <typename... OpTys> bool contains() const {
    return llvm::any_of(
        ops, [](mlir::Operation *op) { return mlir::isa<OpTys...>(op); });
  }
  template <typename OpTy> OpTy find() const {
    for (mlir::Operation *op : ops)
      if (auto found = mlir::dyn_cast<OpTy>(op))
        return found;
    return OpTy();
  }
};

/// The groups of `entry` in an order in which they can run. Every op but
/// weights and the return is in one. What cannot be grouped is a diagnostic.
mlir::FailureOr<std::vector<StageGroup>> groupStages(mlir::func::FuncOp entry,
                                                     const TargetInfo &target);

/// The attention that the rows of `gather` can be predicted and selected
/// beside: the last one in front of it, if they do not depend on it. Null if
/// there is none, or if others use the scores.
AttentionOp attentionBeside(GatherLinearOp gather);

/// Whether rows of an entry are those of a batch, for which the target has code
/// of its own.
bool hasFewRows(mlir::func::FuncOp entry, const TargetInfo &target);

/// Fills in `name`, `role` and `layer` of ordered groups.
void nameStages(mlir::func::FuncOp entry, std::vector<StageGroup> &groups);

} // namespace foresight

#endif // FORESIGHT_TRANSFORMS_STAGEGROUPS_H
