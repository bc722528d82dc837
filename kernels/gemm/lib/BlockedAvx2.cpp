//===- BlockedAvx2.cpp - Blocked products with AVX2, FMA and F16C ---------===//
#include "Blocked.h"

#include <immintrin.h>

namespace foresight::gemm {
namespace {

using Vec = __m256;
constexpr int64_t kWidth = 8;
/// 6 rows of two vectors leave 4 of 16 registers for operands.
constexpr int kMaxRows = 6;

inline Vec zero() { return _mm256_setzero_ps(); }
inline Vec load(const float *from) { return _mm256_loadu_ps(from); }
inline void store(float *to, Vec value) { _mm256_storeu_ps(to, value); }
inline Vec splat(const float *from) { return _mm256_broadcast_ss(from); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec fromHalf(const uint16_t *from) {
  return _mm256_cvtph_ps(
      _mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
}
inline Vec fromBfloat(const uint16_t *from) {
  const __m256i wide = _mm256_cvtepu16_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline float scalarHalf(uint16_t bits) { return _cvtsh_ss(bits); }
inline float scalarBfloat(uint16_t bits) {
  return _mm_cvtss_f32(
      _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits) << 16)));
}

#include "BlockedKernels.inc"

#include "FewTokens.inc"

} // namespace

const KernelSet kAvx2Kernels = {blockingOf, packTokens, computeUnit, fewScratch,
                                computeFew};

} // namespace foresight::gemm
