//===- Sampler.cpp - Which token comes next -------------------------------===//
#include "foresight/sampling/Sampler.h"

#include "foresight/sampling/Random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace foresight::sampling {

Status checkOptions(const SamplerOptions &options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature))
    return makeError(ErrorCode::Usage, "temperature is ", options.temperature,
                     ": expected 0 (greedy) or a positive number");
  if (options.topK < 0)
    return makeError(ErrorCode::Usage, "top-k is ", options.topK,
                     ": expected 0 (all tokens) or a positive number");
  if (!(options.topP > 0) || options.topP > 1)
    return makeError(ErrorCode::Usage, "top-p is ", options.topP,
                     ": expected a number above 0, at most 1");
  return {};
}

/// The largest logit's index; checks all of them.
static Result<int32_t> largest(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  int32_t best = -1;
  float value = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < kInfinity))
      return makeError(ErrorCode::BadBundle, "the logit of token ", i, " is ",
                       logits[i],
                       ": the model's weights are damaged or out "
                       "of range");
    if (logits[i] > value) {
      best = static_cast<int32_t>(i);
      value = logits[i];
    }
  }
  if (best < 0)
    return makeError(ErrorCode::BadBundle,
                     "no token has a finite logit: the model's weights are "
                     "damaged or out of range");
  return best;
}

foresight_sampling deviceOptions(const SamplerOptions &options) {
  foresight_sampling out{};
  out.seed = options.seed;
  if (options.temperature == 0 || options.topK == 1)
    return out;
  // Finite, so that the largest logit's power is 0 and not NaN.
  out.scale = static_cast<float>(
      std::min(std::numbers::log2e / options.temperature, 1e30));
  // A scale of 0 would mean greedy.
  out.scale = std::max(out.scale, std::numeric_limits<float>::min());
  out.kept = options.topK;
  if (options.topP < 1)
    out.share =
        std::max<uint64_t>(static_cast<uint64_t>(options.topP * 0x1p64), 1);
  return out;
}

// Built without contraction: a product and a sum are two roundings.
uint64_t tokenWeight(float below, float scale) {
  constexpr float kTerms[] = FORESIGHT_POWER_TERMS;
  const float x = below * scale;
  if (!(x >= FORESIGHT_LEAST_POWER))
    return 0;
  const float shifted = x + FORESIGHT_ROUNDER;
  const float fraction = x - (shifted - FORESIGHT_ROUNDER);
  const int32_t power = std::bit_cast<int32_t>(shifted) -
                        std::bit_cast<int32_t>(FORESIGHT_ROUNDER);
  float value = kTerms[5];
  for (int i = 4; i >= 0; --i)
    value = value * fraction + kTerms[i];
  value = value * fraction + 1.0f;
  // Times 2^power, by the exponent: all results are normal numbers.
  value =
      std::bit_cast<float>(std::bit_cast<int32_t>(value) + power * (1 << 23));
  return static_cast<uint64_t>(value * FORESIGHT_WEIGHT_ONE);
}

/// a * b / 2^64.
static uint64_t upperProduct(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

Result<int32_t> Sampler::sample(std::span<const float> logits, uint64_t index) {
  FORESIGHT_TRY(const int32_t best, largest(logits));
  const foresight_sampling numbers = deviceOptions(options);
  if (numbers.scale == 0)
    return best;

  candidates.clear();
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    candidates.push_back({logits[i], static_cast<int32_t>(i), 0});
  const auto before = [](const Candidate &a, const Candidate &b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (numbers.kept > 0 &&
      static_cast<uint64_t>(numbers.kept) < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + numbers.kept,
                     candidates.end(), before);
    candidates.resize(static_cast<size_t>(numbers.kept));
  }

  uint64_t total = 0;
  for (Candidate &candidate : candidates) {
    candidate.weight = tokenWeight(
        candidate.logit - logits[static_cast<size_t>(best)], numbers.scale);
    total += candidate.weight;
  }
  // The order decides which token a random number means: always that of logits.
  std::sort(candidates.begin(), candidates.end(), before);
  // The first whose sum with those before it is above `limit`.
  uint64_t sum = 0;
  const auto find = [&](uint64_t limit) {
    sum = 0;
    for (const Candidate &candidate : candidates)
      if ((sum += candidate.weight) > limit)
        return candidate.id;
    return best; // not reached: `limit` is below the sum of all
  };
  if (numbers.share != 0) {
    find(upperProduct(numbers.share, total));
    total = sum;
  }
  return find(upperProduct(randomBits(options.seed, index), total));
}

} // namespace foresight::sampling
