//===- GpuInputPlanes.h - What rows of weights multiply ---------*- C++ -*-===//
//
// The input of a product of rows lies in shared memory as planes of 16 bytes,
// one for each four elements that a lane has of 16 bytes of weights:
// neighbouring lanes read neighbouring words.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUINPUTPLANES_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUINPUTPLANES_H

#include "GpuKernel.h"

namespace foresight {

class GpuInputPlanes {
public:
  using Value = mlir::Value;

  /// `length`: 16-byte vectors of weights that a plane has room for.
  GpuInputPlanes(GpuFrame &frame, mlir::Type element, int64_t length)
      : count(elementsOf16(element) / 4), frame(frame), c(frame.c),
        length(length) {}

  const int64_t count; ///< of planes

  /// Where elements k .. k + 3 lie.
  Value at(Value k);
  /// Writes the row; behind it there may be room that nobody has written. All
  /// threads; a barrier must follow.
  void stage(Value row, llvm::ArrayRef<Value> normVectors = {},
             llvm::function_ref<void()> whileLoading = {});
  /// The plane's part of vector `v`; zero where the planes end, which is not
  /// asked if `isWithin`.
  Value load(Value v, int64_t plane, bool isWithin);

private:
  Value memory();

  GpuFrame &frame;
  GpuCode &c;
  int64_t length;
};

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUINPUTPLANES_H
