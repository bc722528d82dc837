//===- KernelPlan.h - What a kernel is made of ------------------*- C++ -*-===//
//
// Sorts the ops of a kernel into prologue, body and epilogue, cuts the body
// into units and lays out the scratch memory of a worker. Nothing here depends
// on the variant, so that one manifest serves all.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOCPU_KERNELPLAN_H
#define FORESIGHT_LIB_FORESIGHTTOCPU_KERNELPLAN_H

#include "foresight/Conversion/ForesightToCpu/ForesightToCpu.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace foresight {

/// What walks the data.
enum class BodyKind {
  Rows,          ///< a unit is a token: op after op on its row
  RowProduct,    ///< a unit is a block of weight rows (T = 1)
  SparseProduct, ///< a unit is a block of neurons: score, select, multiply
  ColumnProduct, ///< a unit is a segment of weight rows that are added (T = 1)
  Attention,     ///< a unit is a head of a token
};

/// Weight rows of a unit of RowProduct; a multiple of 4.
constexpr int64_t kRowsPerUnit = 16;
/// Neurons of a unit of SparseProduct: one bit mask.
constexpr int64_t kNeuronsPerUnit = 32;
/// Listed weight rows that ColumnProduct adds between loads of its sums.
constexpr int64_t kColumnRows = 4;
/// Streams of rows that ColumnProduct adds side by side.
constexpr int64_t kColumnStreams = 4;
/// Rows of each stream that are looked at together when rows are listed.
constexpr int64_t kColumnMaskRows = 8;

/// One `linear` of a RowProduct and the units that are its.
struct ProductRange {
  LinearOp op;
  int64_t firstUnit, units;
};

/// The three ops of a SparseProduct.
struct SparseOps {
  PredictOp predict;
  SelectCertifiedOp select;
  GatherLinearOp product;
  // Scratch offsets.
  int64_t header = 0;      ///< see LowBit.h
  int64_t activations = 0; ///< i16, in the order the planes are unpacked
  int64_t dots = 0;        ///< i32, the integer sums of a claim
  int64_t kept = 0;        ///< i32, neurons that a claim keeps
};

struct KernelPlan {
  KernelOp kernel;
  BodyKind body = BodyKind::Rows;
  KernelInfo info;

  /// Ops on whole rows: run by `prepare`, or with BodyKind::Rows by each unit.
  llvm::SmallVector<mlir::Operation *> prologue;
  /// Scratch offsets of whole rows that are neither arguments nor results.
  llvm::DenseMap<mlir::Value, int64_t> rowSlots;

  /// Values that exist a unit at a time, and whose: results of the body, and of
  /// elementwise ops on them.
  llvm::DenseMap<mlir::Value, mlir::Operation *> productOf;
  llvm::SmallVector<ProductRange> products;
  /// RowProduct: rows that are read as four streams at a time, and the scratch
  /// offset of their sums, f32.
  int64_t streamRows = 0, sums = 0;
  SparseOps sparse;
  ColumnLinearOp column;
  /// ColumnProduct: rows of a stream.
  int64_t rowsPerStream = 0;
  /// With skip_zeros: what is not zero, rows as i32, values as f32, and where
  /// each unit's part of the list starts.
  int64_t listRows = 0, listValues = 0, listStarts = 0;

  AttentionOp attention;
  KvAppendOp append;
  int64_t query = 0, scores = 0;

  /// Index in `args` of the kernel's result `i`, of the memory that its workers
  /// share, and of its counters.
  int64_t resultArgument(int64_t i) const;
  int64_t sharedArgument() const;
  int64_t countsArgument() const;
};

/// Fails with a diagnostic on the op that no body covers.
mlir::FailureOr<KernelPlan> planKernel(KernelOp kernel);

/// The columns of `tensor<TxNxf32>`.
int64_t columnsOf(mlir::Value row);
/// Bytes of a weight row with its padding.
int64_t weightRowBytes(mlir::Value matrix);
/// Whether the op computes whole rows from whole rows.
bool isRowOp(mlir::Operation *op);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOCPU_KERNELPLAN_H
