//===- Sampler.h - Which token comes next -----------------------*- C++ -*-===//
#ifndef FORESIGHT_SAMPLING_SAMPLER_H
#define FORESIGHT_SAMPLING_SAMPLER_H

#include "foresight/abi/Sampling.h"
#include "foresight/support/Result.h"

#include <cstdint>
#include <span>
#include <vector>

namespace foresight::sampling {

struct SamplerOptions {
  /// 0: greedy, the largest logit. Otherwise logits are divided by it.
  double temperature = 0;
  /// Only the `topK` largest logits take part; 0: all.
  int64_t topK = 0;
  /// Only the most probable tokens whose probabilities reach `topP` together
  /// take part, at least one; 1: all. Applied after `topK`.
  double topP = 1;
  uint64_t seed = 0;
};

/// Usage if an option is out of its range.
Status checkOptions(const SamplerOptions &options);

/// The options as devices that pick tokens themselves read them.
foresight_sampling deviceOptions(const SamplerOptions &options);

/// The weight of a token whose logit is `below` (0 or less) from the largest.
/// See Sampling.h: the same integer on every device.
uint64_t tokenWeight(float below, float scale);

/// Picks tokens as Sampling.h says. Of equal logits the one with the lower id
/// counts as larger. Allocates nothing after the first call. Not thread-safe.
class Sampler {
public:
  explicit Sampler(const SamplerOptions &options) : options(options) {}

  /// The token for `logits`; `index`, the number of the token in the text,
  /// picks the random number. Fails with BadBundle if a logit is NaN or
  /// +infinity or all are -infinity: such logits mean damaged weights.
  Result<int32_t> sample(std::span<const float> logits, uint64_t index);

private:
  struct Candidate {
    float logit;
    int32_t id;
    uint64_t weight;
  };
  SamplerOptions options;
  std::vector<Candidate> candidates;
};

} // namespace foresight::sampling
#endif
