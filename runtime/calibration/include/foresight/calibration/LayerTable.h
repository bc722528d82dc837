//===- LayerTable.h - What a choice costs in one layer ----------*- C++ -*-===//
#ifndef FORESIGHT_CALIBRATION_LAYERTABLE_H
#define FORESIGHT_CALIBRATION_LAYERTABLE_H

#include "foresight/calibration/MlpBytes.h"
#include "foresight/calibration/MlpLayer.h"
#include "foresight/support/Profile.h"

#include <array>
#include <span>
#include <vector>

namespace foresight::calibration {

constexpr int kMinBits = 2, kMaxBits = 8;

/// One way to compute a layer and what it means for the tokens that were seen.
struct Candidate {
  LayerProfile profile;
  double bytes = 0; ///< weight bytes a token reads: copy, fc1 rows, fc2 rows
  /// Mean over tokens of sum_j (act_j |fc2_j|)^2 / |residual|^2 over the active
  /// neurons j that are missed. Zero for a proof.
  double error = 0;
  double selected = 0; ///< neurons a token
  double found = 0;    ///< active ones among them
};

/// Counts, for one layer, how many neurons would be selected and missed at
/// every margin of a grid, for every number of bits.
class LayerTable {
public:
  static constexpr double kStep = 1.0 / 16;
  static constexpr int kBins = 8 * 16; ///< margins 0 .. 8

  explicit LayerTable(const MlpBytes &bytes);

  /// A neuron of one token. `needed` is the margin it takes to select it
  /// (infinity: none does), `energy` what missing it adds to the error.
  void add(int bits, double needed, bool active, double energy);
  /// Neurons that the proof keeps.
  void addProof(int bits, int64_t kept) { at(bits).proofKept += kept; }
  void addTokens(int64_t count, int64_t activeNeurons) {
    tokens += count;
    active += activeNeurons;
  }
  void merge(const LayerTable &other);

  double activeShare() const;
  double denseBytes() const { return sizes.dense(); }
  const MlpBytes &bytes() const { return sizes; }
  /// All ways to compute the layer.
  std::vector<Candidate> candidates() const;
  /// Those that some trade of bytes against error prefers: from the fewest
  /// bytes without error to the fewest bytes, each step buying less bytes for
  /// its error than the one before.
  std::vector<Candidate> hull() const;

private:
  struct Bin {
    int64_t neurons = 0, active = 0;
    double energy = 0;
  };
  struct ForBits {
    /// Bin i: selected by margin i * kStep and not by one step less; the last
    /// bin: by no margin of the grid.
    std::array<Bin, kBins + 2> bins;
    int64_t proofKept = 0;
  };
  ForBits &at(int bits) { return byBits[bits - kMinBits]; }

  MlpBytes sizes;
  int64_t tokens = 0, active = 0;
  std::vector<ForBits> byBits;
};

/// Fills a table from the residual rows [tokens, hidden] that the layer's MLP
/// normalises. `fc2Norms` are |fc2_j|. Uses `threads` threads.
LayerTable tabulate(const MlpLayer &layer, std::span<const float> residuals,
                    std::span<const float> fc2Norms, const MlpBytes &bytes,
                    int threads);

} // namespace foresight::calibration
#endif
