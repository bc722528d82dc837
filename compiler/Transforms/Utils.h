//===- Utils.h - What several transforms need -------------------*- C++ -*-===//
#ifndef FORESIGHT_TRANSFORMS_UTILS_H
#define FORESIGHT_TRANSFORMS_UTILS_H

#include "foresight/Dialect/Foresight.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace foresight {

constexpr llvm::StringLiteral kEntryAttr = "foresight.entry";
constexpr llvm::StringLiteral kMaxTokensAttr = "foresight.max_tokens";
constexpr llvm::StringLiteral kBufferAttr = "foresight.buffer";
constexpr llvm::StringLiteral kModelAttr = "foresight.model";
/// On @decode: what was decided for each layer, a dictionary each.
constexpr llvm::StringLiteral kSparsityAttr = "foresight.sparsity";

/// The functions that carry `foresight.entry`, in order.
llvm::SmallVector<mlir::func::FuncOp> entriesOf(mlir::ModuleOp module);

/// The entry of that name, or null.
mlir::func::FuncOp findEntry(mlir::ModuleOp module, llvm::StringRef name);

/// Whether some product of columns reads only some rows of its weight.
bool leavesOutRows(mlir::ModuleOp module);

/// The weight that `value` is, or null if it is not a `get_weight`.
WeightOp weightOf(mlir::Value value, mlir::SymbolTable &symbols);

/// What is derived from `sources` in their order, where null is none.
DerivedAttr derivedFrom(mlir::MLIRContext *context, DerivedKind kind,
                        llvm::ArrayRef<WeightOp> sources);

/// The weight of that name, type and source: the one that exists, or a new one
/// behind `origin`.
WeightOp deriveWeight(WeightOp origin, const llvm::Twine &name, mlir::Type type,
                      DerivedAttr source, mlir::SymbolTable &symbols);

/// What a set is in memory: a bit a candidate in words of 32, lowest first, of
/// one token's row.
mlir::RankedTensorType setWords(IndexSetType set);

/// `type` with `rows` rows.
mlir::RankedTensorType withRows(mlir::RankedTensorType type, int64_t rows);

} // namespace foresight

#endif // FORESIGHT_TRANSFORMS_UTILS_H
