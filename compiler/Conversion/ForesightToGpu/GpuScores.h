//===- GpuScores.h - Integer scores of a low-bit copy -----------*- C++ -*-===//
//
// The formulas are those of kernels/lowbit/include/foresight/lowbit/Layout.h.
//
// Four lanes share a block of 128 codes: lane q has elements 16g + 4q + i, g =
// 0..7, i = 0..3, whose digits lie in one word of the 1-bit plane, two of the
// 2-bit plane, four of the 4-bit plane or eight of the 8-bit plane. So every
// word of a plane gives codes for some g in the four bytes of a word, and a dot
// product of bytes takes them as they are. Codes travel to shared memory
// without registers, `slots` pieces ahead; there a block takes an odd number of
// 16-byte chunks, so that lanes of eight blocks read from all banks.
//
// Rounded activations are 128 * high + low, both signed bytes, in words of the
// same elements. Sums wrap around, as Layout.h allows.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUSCORES_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUSCORES_H

#include "GpuKernel.h"

#include "foresight/lowbit/Layout.h"

namespace foresight {

/// 16-byte chunks of shared memory between two blocks of codes.
constexpr int64_t blockChunks(int64_t bits) { return bits | 1; }
/// Vectors of a record: scale and bias of f32, error and norm of f16.
constexpr int64_t kRecordVectors = 4;
/// Turns of all warps before what they kept is multiplied.
constexpr int64_t kScoredTurns = 16;

class GpuScores {
public:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;

  explicit GpuScores(GpuFrame &frame);

  /// Units of this warp: its `turn`th. A last turn may have none.
  Value unitOf(Value turn);
  Value turns();

  /// Starts to copy the warp's `item`th piece: pieces of its first unit, then
  /// those of the next. Needs nothing that another kernel computes.
  void request(Value item);

  /// Where elements k .. k + 3 of the product's input lie in shared memory.
  using Place = llvm::function_ref<Value(Value k)>;

  /// Rounds the row that is predicted from, and puts the product's own input
  /// where it lies. All threads; a barrier must follow before scores are
  /// computed.
  void round(Place placeOf);

  /// The row's neuron that this lane tested, if it did, and what came out.
  struct Tested {
    Value neuron, isMine, isKept;
  };
  Tested score(Value turn, Value unit);
  /// The neuron of `unit` that `lane` tests.
  Value neuronOf(Value unit, Value lane);

private:
  void forChunk(int64_t i, llvm::function_ref<void(Value)> body);
  Values readRow(Value row, Place placeOf);
  Values blockSums(llvm::ArrayRef<Value> parts);
  Value roundedAt(Value k);
  Values codesOf(Value block);
  Value neuronInUnit(Value lane);

  GpuFrame &frame;
  GpuCode &c;
  const GpuSparse &plan;
  const int64_t bits, columns, neurons, rowBytes, blocksPerRow;
  const int64_t rowsAtOnce; ///< groups of lanes
  const int64_t stride;     ///< bytes from block to block in shared memory
  const lowbit::Record record;
  Value codes, slots, first, total;
  Value group, part, block, quarter;
  // Of the row, as Layout.h names them.
  Value halfScale, norm, residual, levelSum;
};

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUSCORES_H
