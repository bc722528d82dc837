//===- GpuPickToken.h - The next token, where the logits are ----*- C++ -*-===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUPICKTOKEN_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUPICKTOKEN_H

#include "mlir/IR/Builders.h"

namespace foresight {

/// The entries that foresight/abi/Sampling.h names. Where the logits are, they
/// find the next token and leave it for the next step.
/// `sharedMemory` gives the address of a block's.
void emitPickEntries(
    mlir::OpBuilder &b, mlir::Location loc,
    llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location)>
        sharedMemory);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUPICKTOKEN_H
