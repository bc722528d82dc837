//===- OneDnn.cpp - Products by oneDNN ------------------------------------===//
// libdnnl is opened at run time, so that a binary works where it is missing.
// Its release here multiplies neither f16 nor (without AVX-512) bf16 weights:
// blocks of them are converted to f32 first. Every unit is one single-threaded
// call, so that the caller's threads do the work rather than a second team.
#include "Engines.h"

#include <dlfcn.h>
#include <dnnl.h>

#include <algorithm>

namespace foresight::gemm {
namespace {

constexpr int64_t kBlock = 256;

class OneDnnEngine final : public Engine {
public:
  OneDnnEngine(decltype(&dnnl_sgemm) sgemm, void (*setThreads)(int))
      : sgemm(sgemm), setThreads(setThreads) {}

  std::string_view name() const override { return "onednn"; }

  int64_t units(const Product &product, int64_t) const override {
    return (product.n + kBlock - 1) / kBlock;
  }

  int64_t scratchBytes(const Product &product, int64_t tokens) const override {
    return (kBlock * product.k + tokens * kBlock) * 4;
  }

  void prepare(const Product &, int64_t, void *) const override {
    setThreads(1); // of this thread only
  }

  void compute(const Product &product, int64_t tokens, void *scratch,
               int64_t begin, int64_t end) const override {
    for (int64_t unit = begin; unit < end; ++unit)
      block(product, tokens, static_cast<float *>(scratch), unit * kBlock);
  }

private:
  void block(const Product &product, int64_t tokens, float *scratch,
             int64_t first) const {
    const bool outIn = product.layout == Layout::OutIn;
    const int64_t count = std::min(kBlock, product.n - first);
    const float *weight = scratch;
    int64_t stride = outIn ? product.k : count;
    if (product.type == WeightType::F32) {
      stride = product.weightStride;
      weight = static_cast<const float *>(product.weight) +
               (outIn ? first * stride : first);
    } else if (outIn) {
      for (int64_t i = 0; i < count; ++i)
        convertWeights(product, (first + i) * product.weightStride, product.k,
                       scratch + i * product.k);
    } else {
      for (int64_t k = 0; k < product.k; ++k)
        convertWeights(product, k * product.weightStride + first, count,
                       scratch + k * count);
    }
    float *sums = scratch + kBlock * product.k;
    // Fails only for wrong arguments: the test runs every layout and type.
    sgemm('N', outIn ? 'T' : 'N', tokens, count, product.k, 1.0f, product.x,
          product.xStride, weight, stride, 0.0f, sums, kBlock);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < count; ++i) {
        float value = sums[t * kBlock + i] +
                      (product.bias ? product.bias[first + i] : 0.0f);
        value = activate(value, product.activation);
        if (product.residual)
          value += product.residual[t * product.residualStride + first + i];
        product.y[t * product.yStride + first + i] = value;
      }
  }

  decltype(&dnnl_sgemm) sgemm;
  void (*setThreads)(int);
};

} // namespace

const Engine *oneDnnEngine(std::string *reason) {
  static std::string failure;
  static const Engine *engine = []() -> const Engine * {
    void *library = nullptr;
    for (const char *name : {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"})
      if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL)))
        break;
    if (!library) {
      failure = "libdnnl is not installed";
      return nullptr;
    }
    auto sgemm =
        reinterpret_cast<decltype(&dnnl_sgemm)>(dlsym(library, "dnnl_sgemm"));
    auto setThreads =
        reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
    if (!sgemm || !setThreads) {
      failure = "this libdnnl has no dnnl_sgemm or does not use OpenMP";
      return nullptr;
    }
    return new OneDnnEngine(sgemm, setThreads);
  }();
  if (!engine && reason)
    *reason = failure;
  return engine;
}

} // namespace foresight::gemm
