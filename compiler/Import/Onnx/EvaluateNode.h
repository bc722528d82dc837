//===- EvaluateNode.h - Shared by the operators of the evaluator *- C++ -*-===//
#ifndef FORESIGHT_IMPORT_ONNX_EVALUATENODE_H
#define FORESIGHT_IMPORT_ONNX_EVALUATENODE_H

#include "foresight/Import/Onnx/Evaluator.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"

#include <optional>

namespace foresight::onnx {

/// A node with its inputs, as an operator sees them.
struct NodeView {
  mutable NodeOp node; // accessors of ops are not const
  llvm::ArrayRef<Tensor> inputs;
  int64_t opset;

  size_t size() const { return inputs.size(); }
  bool has(size_t i) const { return i < inputs.size() && inputs[i]; }
  const Tensor &operator[](size_t i) const { return inputs[i]; }

  mlir::Attribute param(llvm::StringRef name) const {
    mlir::DictionaryAttr params = node.getParamsAttr();
    return params ? params.get(name) : mlir::Attribute();
  }
  int64_t integer(llvm::StringRef name, int64_t otherwise) const {
    auto value = llvm::dyn_cast_or_null<mlir::IntegerAttr>(param(name));
    return value ? value.getInt() : otherwise;
  }
  double real(llvm::StringRef name, double otherwise) const {
    auto value = llvm::dyn_cast_or_null<mlir::FloatAttr>(param(name));
    return value ? value.getValueAsDouble() : otherwise;
  }
  llvm::StringRef text(llvm::StringRef name, llvm::StringRef otherwise) const {
    auto value = llvm::dyn_cast_or_null<mlir::StringAttr>(param(name));
    return value ? value.getValue() : otherwise;
  }
  /// Integers of an attribute, or of input `i` of newer versions; whatever the
  /// opset says, since exporters have mixed them up.
  std::optional<llvm::SmallVector<int64_t>> integers(llvm::StringRef name,
                                                     size_t i) const {
    if (auto value =
            llvm::dyn_cast_or_null<mlir::DenseI64ArrayAttr>(param(name)))
      return llvm::SmallVector<int64_t>(value.asArrayRef());
    if (has(i) && !inputs[i].isFloat())
      return llvm::SmallVector<int64_t>(inputs[i].ints().begin(),
                                        inputs[i].ints().end());
    return std::nullopt;
  }
};

inline llvm::Error evaluationError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

using Evaluated = llvm::Expected<Tensors>;
inline Evaluated one(Tensor tensor) { return Tensors{std::move(tensor)}; }

/// What an operator computes. `least` is how many inputs must be there. Tables
/// have names as "Add" and, of other domains, "com.microsoft.FusedMatMul".
struct Operator {
  Evaluated (*compute)(const NodeView &);
  size_t least;
};
using OperatorTable = llvm::StringMap<Operator>;

void addBroadcastOperators(OperatorTable &table);
void addElementwiseOperators(OperatorTable &table);
void addReductionOperators(OperatorTable &table);
void addShapeOperators(OperatorTable &table);
void addIndexOperators(OperatorTable &table);
void addAttentionOperators(OperatorTable &table);

/// `axis` counted from the front; fails if it is outside.
llvm::Expected<int64_t> normalizedAxis(int64_t axis, int64_t rank);

/// The elements of a dense attribute.
Tensor fromDense(mlir::DenseElementsAttr dense);

/// Sums and products as machines compute them: integers wrap around.
inline double plus(double a, double b) { return a + b; }
inline int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) +
                              static_cast<uint64_t>(b));
}
inline double product(double a, double b) { return a * b; }
inline int64_t product(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) *
                              static_cast<uint64_t>(b));
}

/// A float as an integer. What a conversion beyond the range gives is the
/// machine's business; no model relies on it, so it is only kept defined here.
int64_t toInteger(double value);

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_EVALUATENODE_H
