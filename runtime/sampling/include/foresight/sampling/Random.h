//===- Random.h - Counter-based random numbers ------------------*- C++ -*-===//
#ifndef FORESIGHT_SAMPLING_RANDOM_H
#define FORESIGHT_SAMPLING_RANDOM_H

#include <cstdint>

namespace foresight::sampling {

/// Number `index` of the sequence that `seed` names: SplitMix64 (Steele, Lea,
/// Flood 2014), whose state after n steps is seed + n * 0x9E3779B97F4A7C15.
/// There is no state to keep: token n of a text always draws the same number,
/// whatever was drawn before.
constexpr uint64_t randomBits(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/// The same as a number in [0, 1), a multiple of 2^-53.
constexpr double randomUnit(uint64_t seed, uint64_t index) {
  return static_cast<double>(randomBits(seed, index) >> 11) * 0x1p-53;
}

} // namespace foresight::sampling
#endif
