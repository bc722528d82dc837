//===- BlockedAvx512.cpp - Blocked products with AVX-512 ------------------===//
#include "Blocked.h"

#include <immintrin.h>

namespace foresight::gemm {
namespace {

using Vec = __m512;
constexpr int64_t kWidth = 16;
/// 12 rows of two vectors take 24 of 32 registers; 12 divides a block of 48.
constexpr int kMaxRows = 12;

inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec load(const float *from) { return _mm512_loadu_ps(from); }
inline void store(float *to, Vec value) { _mm512_storeu_ps(to, value); }
inline Vec splat(const float *from) { return _mm512_set1_ps(*from); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec fromHalf(const uint16_t *from) {
  return _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}
inline Vec fromBfloat(const uint16_t *from) {
  const __m512i wide = _mm512_cvtepu16_epi32(
      _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline float scalarHalf(uint16_t bits) { return _cvtsh_ss(bits); }
inline float scalarBfloat(uint16_t bits) {
  return _mm_cvtss_f32(
      _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits) << 16)));
}

#include "BlockedKernels.inc"

#include "FewTokens.inc"

} // namespace

const KernelSet kAvx512Kernels = {blockingOf, packTokens, computeUnit,
                                  fewScratch, computeFew};

} // namespace foresight::gemm
