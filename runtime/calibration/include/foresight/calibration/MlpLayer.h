//===- MlpLayer.h - One layer's MLP, computed on the side -------*- C++ -*-===//
#ifndef FORESIGHT_CALIBRATION_MLPLAYER_H
#define FORESIGHT_CALIBRATION_MLPLAYER_H

#include "foresight/calibration/Panels.h"
#include "foresight/runtime/Bundle.h"

#include <span>
#include <vector>

namespace foresight::calibration {

/// The weights that choose a layer's active neurons, read from a bundle.
struct MlpLayer {
  int64_t neurons = 0, hidden = 0;
  double epsilon = 0;
  std::vector<float> gamma, beta; ///< of LayerNorm; empty: 1 and 0
  std::vector<float> balance;     ///< of low-bit copies; empty: 1
  std::vector<float> bias;        ///< of fc1
  Panels fc1;                     ///< as it is stored

  static Result<MlpLayer> read(const Bundle &bundle,
                               const SelectionInfo &selection);

  /// LayerNorm without gamma and beta: what a low-bit copy is applied to.
  void normalise(std::span<const float> residual, std::span<float> out) const;
  /// `normalised` with gamma and beta: what fc1 is applied to.
  void applyNorm(std::span<const float> normalised, std::span<float> out) const;
  /// fc1's results before ReLU of `tokens` rows that `applyNorm` made.
  void preActivations(std::span<const float> x, int64_t tokens,
                      std::span<float> out) const;
};

/// A weight of a bundle as f32 without padding: `rows` rows from `firstRow` on,
/// or all of a vector.
Result<std::vector<float>> readVector(const Bundle &bundle, int64_t weight);
Status readRows(const Bundle &bundle, int64_t weight, int64_t firstRow,
                int64_t rows, std::span<float> out);
/// Elements of a stored row, padding included.
int64_t paddedColumns(int64_t columns);
/// Bytes of one stored row of a matrix, padding included.
int64_t storedRowBytes(const WeightInfo &weight);

} // namespace foresight::calibration
#endif
