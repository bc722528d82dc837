//===- Profile.h - How sparse each layer is made ----------------*- C++ -*-===//
//
// The JSON that `foresight-compile --profile` takes, `foresight calibrate`
// writes and a bundle keeps; docs/design/bundle.md is its reference.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_SUPPORT_PROFILE_H
#define FORESIGHT_SUPPORT_PROFILE_H

#include "foresight/support/Result.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foresight {

/// How one layer's MLP is computed while decoding.
struct LayerProfile {
  enum class Rule {
    Proof,  ///< neurons that the error bound proves inactive are left out
    Margin, ///< the same with a bound of `margin` standard errors
    /// Neurons that a low-rank predictor scores above zero; it is a pair of
    /// matrices beside the model's weights.
    LowRank,
    Skip, ///< fc1 dense; fc2 rows of inactive neurons are not read
    Dense,
  };
  enum class Lookahead { Here, HalfBlock, Block, TwoBlocks };

  Rule rule = Rule::Dense;
  /// Bits of the low-bit copy of fc1; Proof and Margin only.
  int64_t bits = 0;
  /// In standard errors of rounding; Margin only.
  double margin = 0;
  Lookahead lookahead = Lookahead::Here;

  /// The factor on the error bound: 1 is the proof.
  double kappa(int64_t hiddenSize) const {
    return rule == Rule::Proof
               ? 1.0
               : margin / std::sqrt(static_cast<double>(hiddenSize));
  }
  bool usesCopy() const { return rule == Rule::Proof || rule == Rule::Margin; }
  bool operator==(const LayerProfile &) const = default;
};

std::string_view ruleName(LayerProfile::Rule rule);
std::string_view lookaheadName(LayerProfile::Lookahead lookahead);

struct Profile {
  struct Calibration {
    std::string text;
    int64_t tokens = 0;
    double budget = 0, densePerplexity = 0, perplexity = 0;
  };

  /// The model it is for.
  int64_t hiddenSize = 0;
  std::vector<int64_t> ffnDim;
  /// By layer; a layer that is not here follows the compiler's options.
  std::map<int64_t, LayerProfile> layers;
  std::optional<Calibration> calibration;

  const LayerProfile *find(int64_t layer) const {
    auto found = layers.find(layer);
    return found == layers.end() ? nullptr : &found->second;
  }

  /// `source` names the text in errors.
  static Result<Profile> parse(std::string_view text,
                               const std::string &source);
  static Result<Profile> readFile(const std::string &path);
  std::string toJson() const;
  /// BadInput unless the profile was made for a model of these sizes.
  Status checkModel(const std::string &source, int64_t hiddenSize,
                    const std::vector<int64_t> &ffnDim) const;
};

} // namespace foresight
#endif
