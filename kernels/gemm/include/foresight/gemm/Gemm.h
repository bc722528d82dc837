//===- Gemm.h - Products of prompt tokens with weights ----------*- C++ -*-===//
//
//   y[t, i] = activation(sum_k x[t, k] * W[i, k] + bias[i]) + residual[t, i]
//
// for T tokens. x, y, residual and bias are f32; W is f32, f16 or bf16 and is
// converted to f32 exactly, a panel at a time, while it is multiplied: there is
// never an f32 copy of a whole matrix. Sums are f32 fused multiply-adds over
// ascending k, in blocks; how work is cut into units changes no result.
//
// A product is cut into units (blocks of outputs). Whoever runs it calls
// `prepare` once with scratch memory of its own, then `compute` on ranges of
// units, from as many threads as it likes.
//
// Layout: rows of x, y, residual and W start `...Stride` elements apart. y may
// be the same memory as residual; it must not overlap x. No alignment is
// needed. What lies between the end of a row and its stride is neither read nor
// written.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_GEMM_GEMM_H
#define FORESIGHT_GEMM_GEMM_H

#include <cstdint>
#include <string>
#include <string_view>

namespace foresight::gemm {

enum class WeightType { F32, F16, BF16 };
enum class Layout {
  OutIn, ///< W is [n, k]: a row an output
  InOut, ///< W is [k, n]: a row an input
};
enum class Activation { None, Relu, Gelu, GeluTanh };

struct Product {
  int64_t n = 0, k = 0;
  Layout layout = Layout::OutIn;
  WeightType type = WeightType::F32;
  Activation activation = Activation::None;
  const void *weight = nullptr;
  int64_t weightStride = 0;
  const float *x = nullptr;
  int64_t xStride = 0;
  const float *bias = nullptr;     ///< may be null
  const float *residual = nullptr; ///< may be null
  int64_t residualStride = 0;
  float *y = nullptr;
  int64_t yStride = 0;
};

/// One way to compute products.
class Engine {
public:
  virtual ~Engine() = default;
  virtual std::string_view name() const = 0;

  /// Units of a product of `tokens` tokens.
  virtual int64_t units(const Product &product, int64_t tokens) const = 0;
  /// Scratch memory of one thread, 64-byte aligned, for up to `tokens` tokens.
  virtual int64_t scratchBytes(const Product &product,
                               int64_t tokens) const = 0;
  virtual void prepare(const Product &product, int64_t tokens,
                       void *scratch) const = 0;
  virtual void compute(const Product &product, int64_t tokens, void *scratch,
                       int64_t begin, int64_t end) const = 0;
};

/// Engines by name:
///   "avx512", "avx2"  loops of our own, blocked, weights converted on the fly
///   "own"             the best of them that this CPU runs
///   "reference"       plain loops, any CPU
///   "onednn"          libdnnl, opened at run time
/// Empty means "own", which measured fastest:
/// docs/rationale/prompt-products.md. Returns null, with a reason, if there is
/// none or it cannot run here.
const Engine *findEngine(std::string_view name, std::string *reason = nullptr);

} // namespace foresight::gemm
#endif
