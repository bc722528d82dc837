//===- LowBit.h - Integer scores of a low-bit copy --------------*- C++ -*-===//
//
// The formulas are those of kernels/lowbit/include/foresight/lowbit/Layout.h.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOCPU_LOWBIT_H
#define FORESIGHT_LIB_FORESIGHTTOCPU_LOWBIT_H

#include "CodeBuilder.h"
#include "KernelPlan.h"

namespace foresight {

class Frame;

/// Scratch words that `prepare` leaves for the scores:
///   f32 0.5 * xscale, f32 |x|, f32 |x - xscale*xq|, i32 (2^B - 1) * sum xq
constexpr int64_t kLowBitHeaderBytes = 64;

/// Rounds the normalised row to integers, in the order that `emitScores` reads
/// them, and writes the header.
void emitQuantise(Frame &frame, const SparseOps &ops);

/// Leaves the integer sums of `units` units' neurons from `first` on in
/// scratch.
void emitUnitDots(Frame &frame, const SparseOps &ops, mlir::Value first,
                  mlir::Value units);

/// Scores the neurons [first, first + kNeuronsPerUnit), whose integer sums are
/// at `dots`, and returns which are kept, as bits of an i32. Neurons past the
/// last are not kept.
mlir::Value emitTest(Frame &frame, const SparseOps &ops, mlir::Value first,
                     mlir::Value dots);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOCPU_LOWBIT_H
