//===- Evaluator.h - What onnx nodes compute --------------------*- C++ -*-===//
//
// The meaning of the onnx-level IR on concrete shapes: constant folder, shape
// arithmetic, recogniser of masks, and oracle of tests.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_IMPORT_ONNX_EVALUATOR_H
#define FORESIGHT_IMPORT_ONNX_EVALUATOR_H

#include "foresight/Import/Onnx/Onnx.h"
#include "foresight/Import/Onnx/Tensor.h"

#include "llvm/ADT/DenseMap.h"

namespace foresight::onnx {

using Tensors = llvm::SmallVector<Tensor, 2>;

/// What running one graph may cost. A graph that was made to hurt is refused
/// before it takes all memory or time.
class Budget {
public:
  /// Counts the work of a node; an error once it is too much.
  llvm::Error charge(NodeOp node, llvm::ArrayRef<Tensor> inputs);
  /// Counts random numbers that stand for what a node computes.
  llvm::Error chargeNormals(NodeOp node, int64_t count);

private:
  llvm::Error overdrawn(NodeOp node) const;

  int64_t work = 0;
};

/// Refuses sizes that no small input leads to: negative, more than 2^24
/// elements, or more than all tensors together may have.
llvm::Error checkSize(llvm::ArrayRef<int64_t> shape);

/// What ONNX calls a type in `Cast`; null if it is not supported.
mlir::Type typeOf(int64_t dataType, mlir::MLIRContext *context);

/// Whether the evaluator knows the operator.
bool isSupported(NodeOp node);

/// Computes a node without subgraphs. An input that is left out is an empty
/// tensor. `opset` is the graph's.
llvm::Expected<Tensors> evaluate(NodeOp node, llvm::ArrayRef<Tensor> inputs,
                                 int64_t opset);

/// The elements of a constant, read from its file.
llvm::Expected<Tensor> load(ConstantOp constant);

/// Runs a whole graph, weights and all. For small models and for tests.
llvm::Expected<Tensors> evaluate(GraphOp graph, llvm::ArrayRef<Tensor> inputs);

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_EVALUATOR_H
