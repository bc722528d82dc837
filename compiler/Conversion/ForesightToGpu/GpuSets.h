//===- GpuSets.h - Sets that go from kernel to kernel -----------*- C++ -*-===//
//
// A set is a bit a candidate, in words of 32, lowest first. Who makes it writes
// whole bytes, who takes it lists the members in ascending order.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUSETS_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUSETS_H

#include "GpuKernel.h"

namespace foresight {

/// The members of a set in shared memory; all threads of a block make it.
class GpuMembers {
public:
  /// `set` is an argument of the kernel. With `blocks`, every so manieth member
  /// is listed, those of this block.
  GpuMembers(GpuFrame &frame, mlir::Value set, int64_t blocks = 1);

  /// Reads the set and lists its members; ends with a barrier.
  void read();
  mlir::Value count; ///< i64, of those that are listed, after `read`
  /// The member of that place in the list; `index` is below the count.
  mlir::Value at(mlir::Value index);
  /// Whether a candidate is a member; reads the set again.
  mlir::Value contains(mlir::Value candidate);
  /// Writes how many there are to the kernel's counter. One thread.
  void storeCount();

private:
  mlir::Value wordAt(mlir::Value index);

  GpuFrame &frame;
  GpuCode &c;
  int64_t universe, blocks;
  mlir::Value words, list, all;
};

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUSETS_H
