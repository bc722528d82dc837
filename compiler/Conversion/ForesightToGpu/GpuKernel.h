//===- GpuKernel.h - What a kernel is made of, and its emitters -*- C++ -*-===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUKERNEL_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUKERNEL_H

#include "GpuCode.h"

#include "foresight/Conversion/ForesightToGpu/ForesightToGpu.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace foresight {

/// What walks the data.
enum class GpuBody {
  Rows,          ///< a block is a token: elementwise ops, LayerNorm, appends
  RowProduct,    ///< a warp is some weight rows (T = 1)
  ColumnProduct, ///< a block is 32 columns of every weight row (T = 1)
  Attention,     ///< a block is a head of a token
};

/// One `linear` and the units (weight rows of a warp) that are its.
struct GpuProduct {
  LinearOp op;
  int64_t firstUnit, units;
};

struct GpuPlan {
  KernelOp kernel;
  GpuBody body = GpuBody::Rows;
  GpuLaunch launch;

  llvm::SmallVector<GpuProduct> products;
  /// 16-byte loads of a lane for one weight row, and weight rows of a unit.
  int64_t loadsPerRow = 0, rowsPerUnit = 0;
  ColumnLinearOp column;
  AttentionOp attention;
  KvAppendOp append;

  /// Values that exist piece by piece: the body's, and what follows them.
  llvm::DenseMap<mlir::Value, mlir::Operation *> productOf;
  /// Shared memory: 128 bytes for reductions at 0, then this.
  int64_t rowAt = 0;
};

/// Fails with a diagnostic on the op that no body covers.
mlir::FailureOr<GpuPlan> planGpuKernel(KernelOp kernel);

/// The entry being emitted.
class GpuFrame {
public:
  GpuFrame(GpuCode &code, const GpuPlan &plan, mlir::ValueRange parameters,
           mlir::Value shared)
      : c(code), plan(plan), parameters(parameters), shared(shared),
        token(code.i64(0)) {}

  GpuCode &c;
  const GpuPlan &plan;
  mlir::ValueRange parameters;
  mlir::Value shared;
  /// The row that is computed.
  mlir::Value token;

  mlir::Value memoryOf(mlir::Value value);
  mlir::Value tokens();
  /// Row `token` of an argument, or the last row of one.
  mlir::Value rowOf(mlir::Value value);
  /// Results that are `value`, or that follow `product`: value and pointer.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>>
  resultsOf(llvm::function_ref<bool(mlir::Value)> which);
};

/// An activation of a scalar or vector. GpuRows.cpp.
mlir::Value emitGpuActivation(GpuCode &code, Activation kind, mlir::Value x);
/// Elements k .. k + 3 of an elementwise value. GpuRows.cpp.
mlir::Value emitElements(GpuFrame &frame, mlir::Value value, mlir::Value k);
/// Every thread gets parts of the row `value`, LayerNorm or elementwise:
/// `use(k, four elements)`; what lies behind its columns is zero.
void emitRow(GpuFrame &frame, mlir::Value value,
             llvm::function_ref<void(mlir::Value, mlir::Value)> use);
void emitRows(GpuFrame &frame);
/// `value`, which follows `product`, at `column`, where the product is `sum`.
mlir::Value emitGpuEpilogue(GpuFrame &frame, mlir::Value value,
                            mlir::Operation *product, mlir::Value sum,
                            mlir::Value column);
void emitRowProduct(GpuFrame &frame);
void emitColumnProduct(GpuFrame &frame);
void emitGpuAttention(GpuFrame &frame);

/// Columns of `tensor<TxNxf32>`, bytes of a weight row with its padding.
int64_t gpuColumns(mlir::Value row);
int64_t gpuRowBytes(mlir::Value matrix);
mlir::Type gpuElement(mlir::Value matrix);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUKERNEL_H
