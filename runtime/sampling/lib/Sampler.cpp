//===- Sampler.cpp - Which token comes next -------------------------------===//
#include "foresight/sampling/Sampler.h"

#include "foresight/sampling/Random.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

Result<int32_t> Sampler::sample(std::span<const float> logits, uint64_t index) {
  FORESIGHT_TRY(const int32_t best, largest(logits));
  if (options.temperature == 0 || options.topK == 1)
    return best;

  candidates.clear();
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    candidates.push_back({logits[i], static_cast<int32_t>(i), 0});
  const auto before = [](const Candidate &a, const Candidate &b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (options.topK > 0 &&
      static_cast<uint64_t>(options.topK) < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + options.topK,
                     candidates.end(), before);
    candidates.resize(options.topK);
  }

  double total = 0;
  for (Candidate &candidate : candidates) {
    candidate.weight =
        std::exp((static_cast<double>(candidate.logit) - logits[best]) /
                 options.temperature);
    total += candidate.weight;
  }
  // The order decides which token a random number means: always that of logits.
  std::sort(candidates.begin(), candidates.end(), before);
  if (options.topP < 1) {
    double sum = 0;
    size_t kept = 0;
    while (kept < candidates.size() && sum < options.topP * total)
      sum += candidates[kept++].weight;
    candidates.resize(std::max<size_t>(kept, 1));
    total = sum;
  }

  double left = randomUnit(options.seed, index) * total;
  for (const Candidate &candidate : candidates) {
    left -= candidate.weight;
    if (left < 0)
      return candidate.id;
  }
  // Rounding can leave a crumb: it belongs to the last one that has a weight.
  for (auto last = candidates.rbegin(); last != candidates.rend(); ++last)
    if (last->weight > 0)
      return last->id;
  return best;
}

} // namespace foresight::sampling
