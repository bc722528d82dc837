//===- Estimate.cpp - Densities under a spherical input -------------------===//

#include "foresight/lowbit/Estimate.h"

#include <cmath>
#include <limits>

using namespace foresight;
using namespace foresight::lowbit;

namespace {

/// How far the largest element of a normalised row stands out: sets the step
/// that the row is rounded with. Only a share of a percent hangs on it.
constexpr double kPeak = 8;

/// The probability that a normal variable is positive.
double positive(double mean, double deviation) {
  if (deviation == 0)
    return mean > 0 ? 1 : 0;
  return 0.5 * std::erfc(-mean / (deviation * std::sqrt(2.0)));
}

} // namespace

Density lowbit::expectedDensity(const RecordView &record, double kappa,
                                const Inputs &inputs) {
  const double root = std::sqrt(static_cast<double>(record.getColumns()));
  const double radius = inputs.length > 0 ? inputs.length : root;
  const double spread = inputs.spread * radius / root;
  const double residual =
      radius * kPeak /
      (activationMax(record.getColumns(), record.getBits()) * std::sqrt(12.0));
  Density sum{0, 0};
  for (int64_t i = 0; i < record.getRows(); ++i) {
    const double shift = inputs.shift.empty() ? 0 : inputs.shift[i];
    const double bias = record.bias(i) + shift, error = record.error(i),
                 norm = record.norm(i);
    if (!std::isfinite(bias) || !std::isfinite(error)) {
      sum.active += 0.5;
      sum.kept += 1;
      continue;
    }
    // The best scale makes the error orthogonal to the rounded row.
    const double folded = std::hypot(norm, error);
    // What the record's bias has besides the bias; beta's part is not known.
    const double slack = slackOf(record.getColumns(), folded, norm, error,
                                 std::fabs(record.bias(i)));
    sum.active += positive(bias - slack, spread * folded);
    sum.kept += positive(bias + kappa * error * radius + norm * residual,
                         spread * norm);
  }
  const auto count = static_cast<double>(record.getRows());
  return {sum.active / count, sum.kept / count};
}
