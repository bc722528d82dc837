//===- GpuWarp.h - Short words for warps that score -------------*- C++ -*-===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUWARP_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUWARP_H

#include "GpuCode.h"

namespace foresight {

// 32-bit words, and vectors of them.
mlir::Value bitAnd(GpuCode &c, mlir::Value a, int64_t mask);
mlir::Value bitOr(GpuCode &c, mlir::Value a, mlir::Value b);
/// Bits moved up by `by`, or down where it is negative; zeros come in.
mlir::Value moveBits(GpuCode &c, mlir::Value a, int64_t by);
/// Four integers that fit bytes, lowest first, as one word.
mlir::Value packBytes(GpuCode &c, mlir::Value vector);
/// sum + the products of four unsigned bytes with four signed bytes.
mlir::Value dotBytes(GpuCode &c, mlir::Value codes, mlir::Value steps,
                     mlir::Value sum);
mlir::Value narrow(GpuCode &c, mlir::Value wide); ///< i64 to i32
mlir::Value popCount(GpuCode &c, mlir::Value word);

/// One bit a lane of the warp.
mlir::Value ballot(GpuCode &c, mlir::Value condition);
void syncWarp(GpuCode &c);
/// A sum of i32 over the lanes of each group of `lanes`.
mlir::Value sumLanesOf(GpuCode &c, mlir::Value x, int64_t lanes);

/// The same of lower lanes and this one.
mlir::Value sumLanesBelow(GpuCode &c, mlir::Value x);
/// The word that `lane` has.
mlir::Value lanesFrom(GpuCode &c, mlir::Value x, mlir::Value lane);
/// One word of all lanes' bits.
mlir::Value orLanes(GpuCode &c, mlir::Value x);

/// Copies 4 or 16 bytes from weights to shared memory, without registers; a
/// group of copies is waited for with all but the `newer` last groups.
/// Where `read` is given, only so many bytes are read, zeros follow.
void copyAsync(GpuCode &c, mlir::Value to, mlir::Value from, int64_t bytes,
               mlir::Value read = {});
void endGroup(GpuCode &c);
void waitForGroups(GpuCode &c, int64_t newer);
/// The offset of the slot behind `offset`, in a ring of `depth` slots.
mlir::Value nextSlot(GpuCode &c, mlir::Value offset, int64_t slotBytes,
                     int64_t depth);
void prefetchLine(GpuCode &c, mlir::Value pointer);
/// Adds to a word in shared memory and returns what it was.
mlir::Value atomicAdd(GpuCode &c, mlir::Value pointer, mlir::Value x);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUWARP_H
