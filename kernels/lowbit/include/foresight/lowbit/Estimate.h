//===- Estimate.h - What a copy will select, without running ----*- C++ -*-===//
#ifndef FORESIGHT_LOWBIT_ESTIMATE_H
#define FORESIGHT_LOWBIT_ESTIMATE_H

#include "foresight/lowbit/Pack.h"

namespace foresight::lowbit {

struct Density {
  double active; ///< expected share of neurons whose pre-activation is positive
  double kept;   ///< expected share that the test keeps
};

/// Expects x to be uniform on the sphere of radius sqrt(columns), where the
/// pre-activation of neuron i is close to normal with mean bias[i] and standard
/// deviation |w_i|. Text is not like that: real shares are mostly lower, so
/// this is for choosing bits, never for a promise.
Density expectedDensity(const RecordView &record, double kappa);

/// The same for rows [begin, end) alone, so that a sample can be enough.
Density expectedDensity(const RecordView &record, double kappa, int64_t begin,
                        int64_t end);

} // namespace foresight::lowbit
#endif
