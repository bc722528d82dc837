//===- Reference.cpp - Products as plain loops ----------------------------===//
#include "Engines.h"

#include "foresight/support/Float.h"

#include <algorithm>
#include <cmath>

namespace foresight::gemm {

float activate(float value, Activation activation) {
  switch (activation) {
  case Activation::None:
    return value;
  case Activation::Relu:
    return value < 0.0f ? 0.0f : value; // a NaN stays one
  case Activation::Gelu:
    return 0.5f * value * (1.0f + std::erf(value * 0.70710678118654752f));
  case Activation::GeluTanh:
    return 0.5f * value *
           (1.0f + std::tanh(0.79788456080286536f *
                             (value + 0.044715f * value * value * value)));
  }
  return value;
}

void convertWeights(const Product &product, int64_t index, int64_t count,
                    float *to) {
  if (product.type == WeightType::F32) {
    std::copy_n(static_cast<const float *>(product.weight) + index, count, to);
    return;
  }
  const auto *from = static_cast<const uint16_t *>(product.weight) + index;
  if (product.type == WeightType::F16)
    halfToFloat(from, to, static_cast<size_t>(count));
  else
    bfloatToFloat(from, to, static_cast<size_t>(count));
}

namespace {

class ReferenceEngine final : public Engine {
public:
  std::string_view name() const override { return "reference"; }
  int64_t units(const Product &product, int64_t) const override {
    return product.n;
  }
  int64_t scratchBytes(const Product &, int64_t) const override { return 0; }
  void prepare(const Product &, int64_t, void *) const override {}
  void compute(const Product &product, int64_t tokens, void *, int64_t begin,
               int64_t end) const override {
    const bool outIn = product.layout == Layout::OutIn;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = begin; i < end; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < product.k; ++k) {
          float weight;
          convertWeights(product,
                         outIn ? i * product.weightStride + k
                               : k * product.weightStride + i,
                         1, &weight);
          sum +=
              static_cast<double>(product.x[t * product.xStride + k]) * weight;
        }
        float value =
            static_cast<float>(sum) + (product.bias ? product.bias[i] : 0.0f);
        value = activate(value, product.activation);
        if (product.residual)
          value += product.residual[t * product.residualStride + i];
        product.y[t * product.yStride + i] = value;
      }
  }
};

} // namespace

const Engine *referenceEngine() {
  static const ReferenceEngine engine;
  return &engine;
}

} // namespace foresight::gemm
