//===- Synthetic.cpp - Weights made from a seed ---------------------------===//

#include "foresight/support/Synthetic.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace foresight;

/// Mixes all bits of a counter into all bits of the result (the finaliser of
/// splitmix64).
static uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

uint64_t foresight::deriveSeed(uint64_t seed, uint64_t which) {
  return mix(mix(seed + kGolden) + (which + 1) * kGolden);
}

double foresight::normalQuantile(double p) {
  // Newton on the distribution function, from a logistic guess; erfc is
  // accurate in both tails.
  double x = 1.6 * std::atanh(2 * p - 1) * 0.70;
  for (int i = 0; i < 60; ++i) {
    const double below = 0.5 * std::erfc(-x / std::sqrt(2.0));
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    const double step = std::clamp((below - p) / density, -0.5, 0.5);
    x -= step;
    if (std::fabs(step) < 1e-14)
      break;
  }
  return x;
}

/// The quantiles in the middle of 65536 equal shares, scaled to variance 1.
static const float *quantiles() {
  static const std::vector<float> table = [] {
    constexpr int kCount = 1 << 16;
    std::vector<double> values(kCount);
    double squares = 0;
    for (int i = kCount / 2; i < kCount; ++i) {
      values[i] = normalQuantile((i + 0.5) / kCount);
      values[kCount - 1 - i] = -values[i];
      squares += 2 * values[i] * values[i];
    }
    const double scale = 1 / std::sqrt(squares / kCount);
    std::vector<float> result(kCount);
    for (int i = 0; i < kCount; ++i)
      result[i] = static_cast<float>(values[i] * scale);
    return result;
  }();
  return table.data();
}

void Synthetic::fill(uint64_t first, float *out, size_t count) const {
  const float *table = quantiles();
  const uint64_t start = deriveSeed(seed, 0);
  // Four elements come from one counter value.
  auto word = [&](uint64_t index) { return mix(start + index / 4 * kGolden); };
  auto value = [&](uint64_t bits) {
    return mean + deviation * table[bits & 0xffff];
  };
  size_t i = 0;
  for (; i < count && (first + i) % 4; ++i)
    out[i] = value(word(first + i) >> (first + i) % 4 * 16);
  for (; i + 4 <= count; i += 4) {
    const uint64_t bits = word(first + i);
    out[i] = value(bits);
    out[i + 1] = value(bits >> 16);
    out[i + 2] = value(bits >> 32);
    out[i + 3] = value(bits >> 48);
  }
  for (; i < count; ++i)
    out[i] = value(word(first + i) >> (first + i) % 4 * 16);
}
