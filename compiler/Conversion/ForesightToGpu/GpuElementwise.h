//===- GpuElementwise.h - Entries over plain memory -------------*- C++ -*-===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUELEMENTWISE_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUELEMENTWISE_H

#include "foresight/Dialect/Foresight.h"

namespace foresight {

// What surrounds library products, on `count` elements, a multiple of 4, four
// a thread.

/// `foresight_cast_TYPE(from, to, count)`: f32 to what they read.
void emitCast(mlir::OpBuilder &b, mlir::Location loc, mlir::Type element);
/// `foresight_activate_KIND(memory, memory, count)`: activations they lack.
void emitActivate(mlir::OpBuilder &b, mlir::Location loc, Activation kind);

/// `foresight_fill_TYPE(memory, count, columns, stride, seed, mean,
/// deviation)`: synthetic weights, four elements a thread. A row has `columns`
/// values and zeros up to `stride`. A value is the sum of four uniform 16-bit
/// numbers that a hash of seed and index gives, scaled to the mean and
/// deviation asked for.
void emitFill(mlir::OpBuilder &b, mlir::Location loc, mlir::Type element);

/// `foresight_read(memory, vectors, out)`: reads so many vectors of 16 bytes,
/// for `foresight bench` to measure how fast memory can be read. What it makes
/// of them is written to `out`, four bytes, where it is one of 2^32 numbers:
/// the loads are not left out.
void emitRead(mlir::OpBuilder &b, mlir::Location loc);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUELEMENTWISE_H
