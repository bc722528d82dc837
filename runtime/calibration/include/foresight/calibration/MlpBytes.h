//===- MlpBytes.h - Weight bytes of a layer's MLP ---------------*- C++ -*-===//
#ifndef FORESIGHT_CALIBRATION_MLPBYTES_H
#define FORESIGHT_CALIBRATION_MLPBYTES_H

#include "foresight/runtime/Bundle.h"

namespace foresight::calibration {

/// What a layer's MLP reads a token, counted as the stages of the decoding
/// entries count it: matrices row by row, all else whole.
struct MlpBytes {
  int64_t neurons = 0, hidden = 0;
  int64_t fc1Row = 0, fc2Row = 0; ///< of one neuron
  int64_t vectors = 0;            ///< biases and what LayerNorm has
  int64_t balance = 0;            ///< what a copy needs besides its record

  static Result<MlpBytes> of(const Bundle &bundle,
                             const SelectionInfo &selection);

  double dense() const {
    return static_cast<double>(neurons * (fc1Row + fc2Row) + vectors);
  }
  /// With a copy of `bits` bits, or none if 0; means over tokens.
  double sparse(int64_t bits, double selected, double active) const;
};

/// What fc1 and fc2 of a selection's layer read in `decode_dense`.
int64_t denseMlpBytes(const Manifest &manifest, const SelectionInfo &selection);

/// The index of fc2's weight, neuron-major.
Result<int64_t> fc2WeightOf(const Bundle &bundle,
                            const SelectionInfo &selection);

} // namespace foresight::calibration
#endif
