//===- Verify.h - What the ops' verifiers share -----------------*- C++ -*-===//
//
// Every rule compares two numbers and, when they differ, reports both with what
// they belong to: "x has 16 features but weight has 32 columns".
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_DIALECT_LIB_VERIFY_H
#define FORESIGHT_DIALECT_LIB_VERIFY_H

#include "foresight/Dialect/Foresight.h"

namespace foresight::verify {

/// A number of something, and what it is a number of.
struct Side {
  llvm::StringRef owner;
  int64_t count;
  llvm::StringRef what;
};

inline mlir::InFlightDiagnostic &operator<<(mlir::InFlightDiagnostic &diag,
                                            const Side &side) {
  diag << side.owner << " has ";
  if (mlir::ShapedType::isDynamic(side.count))
    return diag << "an unknown number of " << side.what;
  return diag << side.count << " " << side.what;
}

inline mlir::LogicalResult sameCount(mlir::Operation *op, const Side &lhs,
                                     const Side &rhs) {
  if (lhs.count == rhs.count)
    return mlir::success();
  mlir::InFlightDiagnostic diag = op->emitOpError();
  diag << lhs;
  diag << " but ";
  diag << rhs;
  return diag;
}

inline int64_t dim(mlir::Value value, unsigned index) {
  return mlir::cast<mlir::RankedTensorType>(value.getType()).getDimSize(index);
}

inline Side tokens(llvm::StringRef owner, mlir::Value rows) {
  return {owner, dim(rows, 0), "tokens"};
}
inline Side features(llvm::StringRef owner, mlir::Value rows) {
  return {owner, dim(rows, 1), "features"};
}
inline Side rows(llvm::StringRef owner, mlir::Value matrix) {
  return {owner, dim(matrix, 0), "rows"};
}
inline Side columns(llvm::StringRef owner, mlir::Value matrix) {
  return {owner, dim(matrix, 1), "columns"};
}
inline Side elements(llvm::StringRef owner, mlir::Value vector) {
  return {owner, dim(vector, 0), "elements"};
}
inline Side candidates(llvm::StringRef owner, mlir::Value set) {
  return {owner, mlir::cast<IndexSetType>(set.getType()).getUniverse(),
          "candidates"};
}

/// Rows of the same shape; the type of their elements may differ.
inline mlir::LogicalResult sameShape(mlir::Operation *op, llvm::StringRef owner,
                                     mlir::Value x, mlir::Value result) {
  if (mlir::cast<mlir::RankedTensorType>(x.getType()).getShape() ==
      mlir::cast<mlir::RankedTensorType>(result.getType()).getShape())
    return mlir::success();
  return op->emitOpError() << owner << " has type " << x.getType()
                           << " but the result has type " << result.getType();
}

/// A missing vector fits everything.
inline mlir::LogicalResult vectorFits(mlir::Operation *op,
                                      llvm::StringRef owner, mlir::Value vector,
                                      const Side &other) {
  return vector ? sameCount(op, elements(owner, vector), other)
                : mlir::success();
}

/// The same for a missing set.
inline mlir::LogicalResult setFits(mlir::Operation *op, llvm::StringRef owner,
                                   mlir::Value set, const Side &other) {
  return set ? sameCount(op, candidates(owner, set), other) : mlir::success();
}

} // namespace foresight::verify

#endif
