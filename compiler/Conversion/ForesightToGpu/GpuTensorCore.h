//===- GpuTensorCore.h - Products of 16 x 8 tiles by a warp -----*- C++ -*-===//
//
// mma.sync m16n8k16, on every chip since sm_80. With g = lane / 4 and
// j = lane % 4, a lane of the warp holds
//   A (16 x 16): words of rows g, g + 8 at columns 2j, then at columns 2j + 8
//   B (16 x 8):  words of column g at rows 2j, 2j + 8
//   C (16 x 8):  row g at columns 2j, 2j + 1, then row g + 8
// A word is two neighbouring 16-bit elements.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUTENSORCORE_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUTENSORCORE_H

#include "GpuCode.h"

namespace foresight {

/// A 16 x 8 tile of f32: four values a lane.
using Tile = llvm::SmallVector<mlir::Value, 4>;

/// c + a b; `a` has four words, `b` two, as i32.
Tile multiplyTile(GpuCode &code, mlir::Type element,
                  llvm::ArrayRef<mlir::Value> a, llvm::ArrayRef<mlir::Value> b,
                  const Tile &c);
/// Two f32 values, rounded, as one word: the first is the lower half.
mlir::Value packPair(GpuCode &code, mlir::Type element, mlir::Value low,
                     mlir::Value high);
/// Four 8 x 8 matrices of 16-bit elements from shared memory. Lane l names row
/// l % 8 of matrix l / 8, 16 bytes. A lane gets, of each matrix, the word of
/// row g at columns 2j; transposed, the elements of rows 2j, 2j + 1 at column
/// g.
llvm::SmallVector<mlir::Value, 4> loadMatrices(GpuCode &code, mlir::Value row,
                                               bool isTransposed);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUTENSORCORE_H
