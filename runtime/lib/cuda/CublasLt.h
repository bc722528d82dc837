//===- CublasLt.h - Prompt products by cuBLASLt -----------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_CUDA_CUBLASLT_H
#define FORESIGHT_RUNTIME_CUDA_CUBLASLT_H

#include "Driver.h"

#include "foresight/runtime/Manifest.h"

#include <memory>

namespace foresight::cuda {

/// One product of rows of x with a weight matrix, all on the GPU:
/// y = activation(x W^T + bias) or x W^T + bias + residual, f32 sums.
struct Product {
  int64_t n = 0, k = 0, tokens = 0;
  bool inOut = false; ///< W is [k, n]
  Element element = Element::F16;
  /// Products of the same x in one: elements from one W, bias and y to the
  /// next.
  int64_t count = 1, weightStep = 0, biasStep = 0, yStep = 0;
  /// x in the weight's element type; y in f32 or in that type, and residual and
  /// bias in the type of y.
  Element yElement = Element::F32;
  Pointer x = 0, weight = 0, bias = 0, residual = 0, y = 0;
  int64_t xStride = 0, weightStride = 0, residualStride = 0, yStride = 0;
  Activation activation = Activation::None;
};

class CublasLt {
public:
  /// Opens the library; fails with Resource where there is none.
  static Result<std::unique_ptr<CublasLt>> open(const Driver &driver);
  virtual ~CublasLt() = default;
  /// Queues the product.
  virtual Status multiply(const Product &product, Stream stream) = 0;
  /// Whether the library computes this activation.
  static bool supports(Activation activation) {
    return activation == Activation::None || activation == Activation::Relu;
  }
};

} // namespace foresight::cuda
#endif
