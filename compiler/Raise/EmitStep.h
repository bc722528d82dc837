//===- EmitStep.h - Parts to foresight ops ----------------------*- C++ -*-===//
#ifndef FORESIGHT_RAISE_EMITSTEP_H
#define FORESIGHT_RAISE_EMITSTEP_H

#include "OptBlocks.h"

#include "foresight/Raise/Raise.h"

namespace foresight::raising {

/// Adds weight symbols, `@step` and the model facts to `module`.
mlir::LogicalResult emitStep(mlir::ModuleOp module, const Program &program,
                             const OptModel &model,
                             const RaiseOptions &options);

} // namespace foresight::raising

#endif // FORESIGHT_RAISE_EMITSTEP_H
