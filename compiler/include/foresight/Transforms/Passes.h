//===- Passes.h - foresight to foresight ------------------------*- C++ -*-===//
//
// The passes between a raised `@step` and scheduled kernels. Passes.td is their
// reference; compiler/Pipelines puts them in order.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TRANSFORMS_PASSES_H
#define FORESIGHT_TRANSFORMS_PASSES_H

#include "foresight/Dialect/Foresight.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace foresight {

#define GEN_PASS_DECL
#include "foresight/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "foresight/Transforms/Passes.h.inc"

struct Profile;

/// `--foresight-sparsify` with a profile that is not a file. A layer that it
/// does not list stays dense.
std::unique_ptr<mlir::Pass> createSparsifyPass(const Profile &profile);

/// Says how each layer of a scheduled module is decoded and why, which kernels
/// its entries run, and what memory is planned.
void explainSchedule(mlir::ModuleOp module, llvm::raw_ostream &os);

} // namespace foresight

#endif // FORESIGHT_TRANSFORMS_PASSES_H
