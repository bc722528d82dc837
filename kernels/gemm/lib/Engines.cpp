//===- Engines.cpp - Blocked engines and the choice of an engine ----------===//
#include "Engines.h"

#include "Blocked.h"

namespace foresight::gemm {
namespace {

class BlockedEngine final : public Engine {
public:
  BlockedEngine(std::string_view label, const KernelSet &set)
      : label(label), set(set) {}

  std::string_view name() const override { return label; }

  int64_t units(const Product &product, int64_t) const override {
    const int64_t outputs = unitOutputs(product);
    return (product.n + outputs - 1) / outputs;
  }

  int64_t scratchBytes(const Product &product, int64_t tokens) const override {
    // Those that are many use more memory a token.
    const int64_t few =
        set.fewScratch(product, tokens < kFewTokens ? tokens : kFewTokens);
    const int64_t many =
        isFew(tokens)
            ? 0
            : scratchLayout(product, tokens, set.blocking(product, tokens))
                  .total;
    return (few > many ? few : many) * static_cast<int64_t>(sizeof(float));
  }

  void prepare(const Product &product, int64_t tokens,
               void *scratch) const override {
    if (!isFew(tokens))
      set.prepare(product, tokens, static_cast<float *>(scratch));
  }

  void compute(const Product &product, int64_t tokens, void *scratch,
               int64_t begin, int64_t end) const override {
    const auto run = isFew(tokens) ? set.computeFew : set.compute;
    for (int64_t unit = begin; unit < end; ++unit)
      run(product, tokens, static_cast<float *>(scratch), unit);
  }

private:
  static bool isFew(int64_t tokens) { return tokens <= kFewTokens; }

  std::string_view label;
  const KernelSet &set;
};

bool hasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
bool hasAvx512() { return hasAvx2() && __builtin_cpu_supports("avx512f"); }

} // namespace

const Engine *findEngine(std::string_view name, std::string *reason) {
  static const BlockedEngine avx2("avx2", kAvx2Kernels);
  static const BlockedEngine avx512("avx512", kAvx512Kernels);
  if (name.empty() || name == "own") {
    if (hasAvx512())
      return &avx512;
    return hasAvx2() ? &avx2 : referenceEngine();
  }
  if (name == "reference")
    return referenceEngine();
  if (name == "onednn")
    return oneDnnEngine(reason);
  if (name == "avx2" && hasAvx2())
    return &avx2;
  if (name == "avx512" && hasAvx512())
    return &avx512;
  if (reason)
    *reason = name == "avx2" || name == "avx512"
                  ? "this CPU does not have " + std::string(name)
                  : "no such engine; there are own, avx2, avx512, onednn, "
                    "reference";
  return nullptr;
}

} // namespace foresight::gemm
