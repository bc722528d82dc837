//===- Reference.h - What a low-bit kernel must compute ---------*- C++ -*-===//
#ifndef FORESIGHT_LOWBIT_REFERENCE_H
#define FORESIGHT_LOWBIT_REFERENCE_H

#include "foresight/lowbit/Pack.h"

#include <vector>

namespace foresight::lowbit {

/// A normalised row rounded to integers: x ~ scale * values.
struct Activations {
  std::vector<int16_t> values;
  float scale = 0;
  int32_t sum = 0;    ///< of the values
  float norm = 0;     ///< |x|
  float residual = 0; ///< |x - scale * values|
};

/// `x` is what LayerNorm gives without gamma and beta, times the copy's balance
/// if it has one: |x| is at most
/// 1.01 sqrt(x.size()), which the slack relies on.
Activations quantiseActivations(std::span<const float> x, int bits);

float score(const RecordView &record, int64_t row, const Activations &x);

/// Whether a neuron with this score is kept at `kappa`.
bool keeps(const RecordView &record, int64_t row, const Activations &x,
           float score, float kappa);

/// The neurons kept, ascending.
std::vector<int32_t> select(const RecordView &record, const Activations &x,
                            float kappa);

} // namespace foresight::lowbit
#endif
