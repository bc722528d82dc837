//===- Evaluate.h - One op at a time ----------------------------*- C++ -*-===//
#ifndef FORESIGHT_INTERPRETER_LIB_EVALUATE_H
#define FORESIGHT_INTERPRETER_LIB_EVALUATE_H

#include "foresight/Interpreter/Interpreter.h"

#include "llvm/ADT/DenseMap.h"

namespace foresight::interpreter {

/// The values of one function or region while it runs.
class Scope {
public:
  void set(mlir::Value value, Data data) { held[value] = std::move(data); }
  const Data &get(mlir::Value value) const { return held.at(value); }

  // The verifier has seen to the types; whoever sets arguments checks them.
  const Matrix &matrix(mlir::Value value) const {
    return *get(value).getIf<Matrix>();
  }
  const Matrix *matrixOrNull(mlir::Value value) const {
    return value ? &matrix(value) : nullptr;
  }
  const Ids &ids(mlir::Value value) const { return *get(value).getIf<Ids>(); }
  const Ids *idsOrNull(mlir::Value value) const {
    return value ? &ids(value) : nullptr;
  }
  const IndexSets *setsOrNull(mlir::Value value) const {
    return value ? get(value).getIf<IndexSets>() : nullptr;
  }
  const KvCache &cache(mlir::Value value) const {
    return *get(value).getIf<KvCache>();
  }
  const LowBitCopy &copy(mlir::Value value) const {
    return *get(value).getIf<LowBitCopy>();
  }

private:
  llvm::DenseMap<mlir::Value, Data> held;
};

mlir::FailureOr<Data> evaluate(GatherRowsOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(LayerNormOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(LinearOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(ColumnLinearOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(MlpOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(ActivationOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(AddOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(LastRowOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(KvAppendOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(AttentionOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(PredictOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(SelectCertifiedOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(SelectThresholdOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(SelectTopkOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(GatherLinearOp op, const Scope &scope);
mlir::FailureOr<Data> evaluate(SparseMlpOp op, const Scope &scope);

/// `activation(x weight^T + bias)` for the members of `rows` (all if null), 0
/// elsewhere.
Matrix linear(const Matrix &x, const Matrix &weight, const Matrix *bias,
              const IndexSets *rows, Activation activation);
/// `bias + x weight` over the members of `rows` (all if null).
Matrix columnLinear(const Matrix &x, const Matrix &weight, const Matrix *bias,
                    const IndexSets *rows);

} // namespace foresight::interpreter
#endif
