//===- Float.cpp - f16 and bf16 -------------------------------------------===//

#include "foresight/support/Float.h"

#include <cstring>
#include <immintrin.h>

using namespace foresight;

float foresight::halfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) // zero or subnormal: the value is fraction * 2^-24
    return std::bit_cast<float>(
        sign |
        std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
  if (exponent == 31) {
    // A quiet NaN, as the conversion instruction gives.
    const uint32_t quiet = fraction ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (fraction << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                              (fraction << 13));
}

uint16_t foresight::floatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) // 2^16 and above, and what rounds to it
    return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) { // below 2^-14: subnormal
    // Adding 0.5 aligns the unit in the last place with 2^-24, and rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(
        sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude + 0xfffu + odd - (112u << 23);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

namespace {

bool hasF16c() {
  static const bool value =
      __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx");
  return value;
}

__attribute__((target("avx,f16c"))) size_t halfToFloatWide(const uint16_t *from,
                                                           float *to,
                                                           size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                 reinterpret_cast<const __m128i *>(from + i))));
  return i;
}

__attribute__((target("avx,f16c"))) size_t floatToHalfWide(const float *from,
                                                           uint16_t *to,
                                                           size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(
        reinterpret_cast<__m128i *>(to + i),
        _mm256_cvtps_ph(_mm256_loadu_ps(from + i),
                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  return i;
}

} // namespace

void foresight::halfToFloat(const uint16_t *from, float *to, size_t count) {
  size_t i = hasF16c() ? halfToFloatWide(from, to, count) : 0;
  for (; i < count; ++i)
    to[i] = halfToFloat(from[i]);
}

void foresight::floatToHalf(const float *from, uint16_t *to, size_t count) {
  size_t i = hasF16c() ? floatToHalfWide(from, to, count) : 0;
  for (; i < count; ++i)
    to[i] = floatToHalf(from[i]);
}

void foresight::bfloatToFloat(const uint16_t *from, float *to, size_t count) {
  for (size_t i = 0; i < count; ++i)
    to[i] = bfloatToFloat(from[i]);
}

void foresight::floatToBfloat(const float *from, uint16_t *to, size_t count) {
  for (size_t i = 0; i < count; ++i)
    to[i] = floatToBfloat(from[i]);
}
