//===- Estimate.h - What a copy will select, without running ----*- C++ -*-===//
#ifndef FORESIGHT_LOWBIT_ESTIMATE_H
#define FORESIGHT_LOWBIT_ESTIMATE_H

#include "foresight/lowbit/Pack.h"

#include <span>

namespace foresight::lowbit {

struct Density {
  double active; ///< expected share of neurons whose pre-activation is positive
  double kept;   ///< expected share that the test keeps
};

/// What is assumed of x. The pre-activation of a neuron with folded row v and
/// folded bias b is taken as normal with mean b + shift and standard deviation
/// spread * |v| * length / sqrt(columns).
struct Inputs {
  /// |x| as the test sees it, where it is not sqrt(columns).
  double length = 0;
  /// 1: x is uniform on the sphere of radius `length`, which is exact for
  /// random weights without balance.
  double spread = 1;
  /// v . (mean of x), one a row; empty for 0.
  std::span<const double> shift;
};

/// The expected shares for all rows. Real inputs follow no such model: this is
/// for choosing bits, never for a promise.
Density expectedDensity(const RecordView &record, double kappa,
                        const Inputs &inputs = {});

} // namespace foresight::lowbit
#endif
