//===- Tensor.cpp - A value of the evaluator ------------------------------===//

#include "foresight/Import/Onnx/Tensor.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"

#include <atomic>
#include <cmath>
#include <limits>

using namespace llvm;
using namespace foresight::onnx;

int64_t foresight::onnx::times(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product)
             ? std::numeric_limits<int64_t>::max()
             : product;
}

int64_t foresight::onnx::countOf(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count = times(count, size);
  return is_contained(shape, 0) ? 0 : count;
}

/// Elements of all tensors there are.
static std::atomic<int64_t> liveElements = 0;

int64_t Tensor::liveCount() { return liveElements; }

/// Elements that are counted as long as a tensor has them.
template <typename T>
static std::shared_ptr<std::vector<T>> counted(std::vector<T> values) {
  liveElements += static_cast<int64_t>(values.size());
  return {new std::vector<T>(std::move(values)), [](std::vector<T> *gone) {
            liveElements -= static_cast<int64_t>(gone->size());
            delete gone;
          }};
}

std::string foresight::onnx::toString(ArrayRef<int64_t> shape) {
  // Sizes that a graph computes can be millions.
  constexpr size_t kShown = 64;
  return "[" +
         join(map_range(shape.take_front(kShown),
                        [](int64_t s) { return std::to_string(s); }),
              ", ") +
         (shape.size() > kShown ? ", ...]" : "]");
}

Tensor::Tensor(mlir::Type element, ArrayRef<int64_t> shape)
    : element_(element), shape_(shape) {
  size_t count = static_cast<size_t>(countOf(shape));
  if (mlir::isa<mlir::FloatType>(element))
    floats_ = counted(std::vector<double>(count));
  else
    ints_ = counted(std::vector<int64_t>(count));
}

Tensor Tensor::ofInts(mlir::Type element, ArrayRef<int64_t> shape,
                      std::vector<int64_t> values) {
  Tensor result;
  result.element_ = element;
  result.shape_ = Shape(shape);
  result.ints_ = counted(std::move(values));
  return result;
}

Tensor Tensor::ofFloats(mlir::Type element, ArrayRef<int64_t> shape,
                        std::vector<double> values) {
  Tensor result;
  result.element_ = element;
  result.shape_ = Shape(shape);
  result.floats_ = counted(std::move(values));
  return result;
}

int64_t Tensor::count() const { return countOf(shape_); }

std::vector<double> &Tensor::writeFloats() {
  if (floats_.use_count() > 1)
    floats_ = counted(std::vector<double>(*floats_));
  return *floats_;
}

std::vector<int64_t> &Tensor::writeInts() {
  if (ints_.use_count() > 1)
    ints_ = counted(std::vector<int64_t>(*ints_));
  return *ints_;
}

Tensor Tensor::reshaped(ArrayRef<int64_t> shape) const {
  Tensor result = *this;
  result.shape_ = Shape(shape);
  return result;
}

void Tensor::saturate() {
  if (!isFloat() || element_.isF64())
    return;
  // Half a unit beyond the largest number rounds to infinity.
  double limit = element_.isF16()    ? 65520.0
                 : element_.isBF16() ? 0x1.ffp127
                                     : 0x1.ffffffp127;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  bool over = false;
  for (double value : floats())
    over |= std::abs(value) >= limit && std::abs(value) != infinity;
  if (!over)
    return;
  for (double &value : writeFloats())
    if (std::abs(value) >= limit)
      value = std::copysign(infinity, value);
}

Expected<Shape> foresight::onnx::broadcast(ArrayRef<int64_t> a,
                                           ArrayRef<int64_t> b) {
  size_t rank = std::max(a.size(), b.size());
  Shape result(rank);
  for (size_t i = 0; i < rank; ++i) {
    int64_t x = i < rank - a.size() ? 1 : a[i - (rank - a.size())];
    int64_t y = i < rank - b.size() ? 1 : b[i - (rank - b.size())];
    if (x != y && x != 1 && y != 1)
      return createStringError(inconvertibleErrorCode(),
                               "shapes " + toString(a) + " and " + toString(b) +
                                   " do not broadcast");
    result[i] = x == 1 ? y : x;
  }
  return result;
}

std::vector<int64_t> foresight::onnx::broadcastIndices(ArrayRef<int64_t> from,
                                                       ArrayRef<int64_t> to) {
  // Steps in `from` for each dimension of `to`; a broadcast one stands still.
  Shape strides(to.size(), 0);
  int64_t stride = 1;
  for (size_t i = from.size(); i-- > 0;) {
    if (from[i] != 1)
      strides[i + to.size() - from.size()] = stride;
    stride *= from[i];
  }
  int64_t count = countOf(to);
  std::vector<int64_t> result(static_cast<size_t>(count));
  Shape at(to.size(), 0);
  int64_t index = 0;
  for (int64_t i = 0; i < count; ++i) {
    result[i] = index;
    for (size_t d = to.size(); d-- > 0;) {
      index += strides[d];
      if (++at[d] < to[d])
        break;
      index -= strides[d] * to[d];
      at[d] = 0;
    }
  }
  return result;
}
