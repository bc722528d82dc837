//===- Copy.h - A low-bit copy for measuring --------------------*- C++ -*-===//
#ifndef FORESIGHT_CALIBRATION_COPY_H
#define FORESIGHT_CALIBRATION_COPY_H

#include "foresight/calibration/MlpLayer.h"

#include <span>
#include <vector>

namespace foresight::calibration {

/// The low-bit copy of a layer as the compiler would pack it, unpacked to f32
/// for fast products. Scores differ from the kernels' by f32 rounding only: x
/// is rounded to the same integers.
class Copy {
public:
  static Copy make(const MlpLayer &layer, int bits);

  int getBits() const { return bits; }

  struct Rounded {
    float norm = 0, residual = 0; ///< |x| and |x - rounded x|, balanced
  };
  /// Balances a normalised row and rounds it as the kernels do.
  Rounded round(std::span<const float> normalised, std::span<float> out) const;

  /// Scores of `tokens` rounded rows, without bias and slack.
  void products(std::span<const float> rounded, int64_t tokens,
                std::span<float> out) const {
    values.multiply(rounded, tokens, out);
  }

  /// The bound without its kappa term: positive keeps the neuron at kappa 0.
  float base(int64_t neuron, float product, const Rounded &x) const {
    return product + bias[neuron] + norm[neuron] * x.residual;
  }
  /// What kappa multiplies.
  float spread(int64_t neuron, const Rounded &x) const {
    return error[neuron] * x.norm;
  }
  bool keeps(int64_t neuron, float product, const Rounded &x,
             float kappa) const {
    return !(base(neuron, product, x) + kappa * spread(neuron, x) <= 0);
  }

private:
  Copy(int64_t neurons, int64_t hidden, int bits)
      : bits(bits), values(neurons, hidden) {}
  int bits;
  Panels values;
  std::vector<float> balance, bias, error, norm;
};

} // namespace foresight::calibration
#endif
