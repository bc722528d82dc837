//===- Synthetic.h - Weights made from a seed -------------------*- C++ -*-===//
//
// What `#foresight.synthetic` means: element i is mean + deviation * n(seed, i)
// with n normal to 16 bits (65536 equally likely values of a standard normal,
// none beyond 4.33). Any range can be made without the elements before it, on
// any thread, always with the same result.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_SUPPORT_SYNTHETIC_H
#define FORESIGHT_SUPPORT_SYNTHETIC_H

#include <cstddef>
#include <cstdint>

namespace foresight {

struct Synthetic {
  uint64_t seed = 0;
  float mean = 0, deviation = 0;

  /// Writes elements [first, first + count).
  void fill(uint64_t first, float *out, size_t count) const;
};

/// Another seed, for another tensor of the same model.
uint64_t deriveSeed(uint64_t seed, uint64_t which);

/// The standard normal quantile of `p` in (0, 1).
double normalQuantile(double p);

} // namespace foresight
#endif
