//===- Tensor.h - A value of the evaluator ----------------------*- C++ -*-===//
#ifndef FORESIGHT_IMPORT_ONNX_TENSOR_H
#define FORESIGHT_IMPORT_ONNX_TENSOR_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace foresight::onnx {

using Shape = llvm::SmallVector<int64_t, 4>;

/// A small tensor. Floats of every type are kept in f64, so that two ways to
/// compute the same thing agree to about 1e-14 and two different things do
/// not; beyond a type's range they become infinite, as they do in the model.
/// Integers and booleans are exact. Copies share their elements.
class Tensor {
public:
  Tensor() = default;
  /// Zeros.
  Tensor(mlir::Type element, llvm::ArrayRef<int64_t> shape);

  static Tensor ofInts(mlir::Type element, llvm::ArrayRef<int64_t> shape,
                       std::vector<int64_t> values);
  static Tensor ofFloats(mlir::Type element, llvm::ArrayRef<int64_t> shape,
                         std::vector<double> values);

  explicit operator bool() const { return static_cast<bool>(element_); }
  mlir::Type element() const { return element_; }
  bool isFloat() const { return floats_ != nullptr; }
  const Shape &shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t dim(int64_t i) const { return shape_[i]; }
  int64_t count() const;

  const std::vector<double> &floats() const { return *floats_; }
  const std::vector<int64_t> &ints() const { return *ints_; }
  /// Elements for writing: a copy of its own if they are shared.
  std::vector<double> &writeFloats();
  std::vector<int64_t> &writeInts();

  /// An element as a number, whatever the type.
  double number(int64_t i) const {
    return isFloat() ? (*floats_)[i] : static_cast<double>((*ints_)[i]);
  }

  /// The same elements seen with another shape of equal count.
  Tensor reshaped(llvm::ArrayRef<int64_t> shape) const;

  /// Elements of all tensors there are, which a budget is kept of.
  static int64_t liveCount();

  /// Makes floats beyond the element type's range infinite.
  void saturate();

private:
  mlir::Type element_;
  Shape shape_;
  std::shared_ptr<std::vector<double>> floats_;
  std::shared_ptr<std::vector<int64_t>> ints_;
};

/// A product; the largest number if it overflows.
int64_t times(int64_t a, int64_t b);
/// How many elements a shape has; the largest number if that overflows.
int64_t countOf(llvm::ArrayRef<int64_t> shape);
/// "[2, 3]"
std::string toString(llvm::ArrayRef<int64_t> shape);

/// The shape that numpy's rules broadcast both to; fails if there is none.
llvm::Expected<Shape> broadcast(llvm::ArrayRef<int64_t> a,
                                llvm::ArrayRef<int64_t> b);
/// For each element of `to`, in order, the index in a tensor of shape `from`
/// that broadcasts to it.
std::vector<int64_t> broadcastIndices(llvm::ArrayRef<int64_t> from,
                                      llvm::ArrayRef<int64_t> to);

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_TENSOR_H
