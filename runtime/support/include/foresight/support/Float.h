//===- Float.h - f16 and bf16 -----------------------------------*- C++ -*-===//
//
// Conversions round to nearest, ties to even. A NaN stays a NaN. What is too
// large for f16 becomes infinity.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_SUPPORT_FLOAT_H
#define FORESIGHT_SUPPORT_FLOAT_H

#include <bit>
#include <cstddef>
#include <cstdint>

namespace foresight {

float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);

inline float bfloatToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline uint16_t floatToBfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Arrays; source and destination must not overlap. Fast where the machine has
/// F16C.
void halfToFloat(const uint16_t *from, float *to, size_t count);
void floatToHalf(const float *from, uint16_t *to, size_t count);
void bfloatToFloat(const uint16_t *from, float *to, size_t count);
void floatToBfloat(const float *from, uint16_t *to, size_t count);

} // namespace foresight
#endif
