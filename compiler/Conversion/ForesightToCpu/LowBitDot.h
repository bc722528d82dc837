//===- LowBitDot.h - Integer products of a low-bit copy ---------*- C++ -*-===//
#ifndef FORESIGHT_LIB_FORESIGHTTOCPU_LOWBITDOT_H
#define FORESIGHT_LIB_FORESIGHTTOCPU_LOWBITDOT_H

#include "CodeBuilder.h"

namespace foresight {

/// Stores the rounded activations of elements 32m .. 32m + 31 of a block, as
/// `emitDots` for codes of `bits` bits reads them. `integers` are registers of
/// i32 in order; a block takes 2 bytes an element from `to` on.
void storeActivations(CodeBuilder &c, int64_t bits, int64_t m,
                      llvm::ArrayRef<mlir::Value> integers, mlir::Value to);

/// The products of rows of `blocks` blocks, a register of i32 sums for each
/// row. Sums may wrap.
CodeBuilder::Values emitDots(CodeBuilder &c, int64_t bits,
                             llvm::ArrayRef<mlir::Value> rows,
                             mlir::Value activations, int64_t blocks);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOCPU_LOWBITDOT_H
