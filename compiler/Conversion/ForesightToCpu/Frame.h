//===- Frame.h - One function of a kernel while it is emitted ---*- C++ -*-===//
#ifndef FORESIGHT_LIB_FORESIGHTTOCPU_FRAME_H
#define FORESIGHT_LIB_FORESIGHTTOCPU_FRAME_H

#include "CodeBuilder.h"
#include "KernelPlan.h"

namespace foresight {

/// The function being emitted: its arguments, and where the kernel's values
/// lie.
class Frame {
public:
  Frame(CodeBuilder &code, const KernelPlan &plan, mlir::Value args,
        mlir::Value step, mlir::Value scratch);

  CodeBuilder &c;
  const KernelPlan &plan;

  /// Pointer of argument `i` of the kernel, results and counters counted on.
  mlir::Value argument(int64_t i) { return arguments[i]; }
  mlir::Value scratchAt(int64_t offset) { return c.at(scratch, offset); }
  /// Memory of a weight, cache, or of token ids.
  mlir::Value memoryOf(mlir::Value argument);
  /// Row `token` of an argument, result or row in scratch.
  mlir::Value rowOf(mlir::Value value);
  /// T of this call.
  mlir::Value tokens();
  /// Results that are `value`, as pointers to row `token`.
  llvm::SmallVector<mlir::Value> resultsOf(mlir::Value value);
  /// As above, with the value that is yielded, for those of one product.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>>
  resultsOfProduct(mlir::Operation *product);

  /// The row that a body of BodyKind::Rows computes; zero elsewhere.
  mlir::Value token;

private:
  mlir::Value step, scratch;
  llvm::SmallVector<mlir::Value> arguments;
};

// One emitter a group of ops.

/// An op on whole rows, on row `frame.token`. RowOps.cpp.
void emitRowOp(Frame &frame, mlir::Operation *op);
/// Applies an activation to a scalar or vector. Epilogue.cpp.
mlir::Value emitActivation(CodeBuilder &c, Activation kind, mlir::Value x);
/// Evaluates `value`, which follows `product`, where the product is `sums`:
/// a vector (or scalar) of columns from `column` on. Epilogue.cpp.
mlir::Value emitEpilogue(Frame &frame, mlir::Value value,
                         mlir::Operation *product, mlir::Value sums,
                         mlir::Value column);
/// Stores every result that follows `product`, columns past the last as zero.
void emitStores(Frame &frame, mlir::Operation *product, mlir::Value sums,
                mlir::Value column);

/// Units [begin, end). RowProduct.cpp, ColumnProduct.cpp, Attention.cpp.
void emitRowProducts(Frame &frame, mlir::Value begin, mlir::Value end);
void emitSparseProduct(Frame &frame, mlir::Value begin, mlir::Value end);
void emitColumnProduct(Frame &frame, mlir::Value begin, mlir::Value end);
void emitListNonZero(Frame &frame);
void emitAttention(Frame &frame, mlir::Value begin, mlir::Value end);
/// Writes head `head`'s part of row `token` into the cache.
void emitAppendHead(Frame &frame, KvAppendOp op, mlir::Value head);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOCPU_FRAME_H
