//===- Calibrate.h - A profile from text ------------------------*- C++ -*-===//
//
// docs/design/calibration.md tells the method.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_CALIBRATION_CALIBRATE_H
#define FORESIGHT_CALIBRATION_CALIBRATE_H

#include "foresight/calibration/Choice.h"
#include "foresight/calibration/Measure.h"

#include <functional>
#include <string>

namespace foresight::calibration {

struct CalibrateOptions {
  double budget = 0.003; ///< relative increase of perplexity
  int64_t window = 1024;
  int threads = 1; ///< for the statistics
  /// Called with a line about every phase.
  std::function<void(const std::string &)> progress = [](const auto &) {};
};

struct LayerReport {
  int64_t layer = 0;
  Candidate chosen;
  double neurons = 0;
  double activeShare = 0, denseBytes = 0;
  double weight = 0;       ///< nats a unit of error
  double heldOutBytes = 0; ///< weight bytes a token on the second half
};

struct TextReport {
  int64_t tokens = 0; ///< predicted
  double densePerplexity = 0, perplexity = 0;
  double divergence = 0;    ///< mean KL(dense || sparse), nats
  double standardError = 0; ///< of log(perplexity / densePerplexity)
  double bytesShare = 0;    ///< of the dense MLP's
  double increase() const { return perplexity / densePerplexity - 1; }
};

/// What one margin for all layers would read and cost.
struct UniformMargin {
  double margin = 0, bytesShare = 0;
  double cost = 0; ///< expected increase of the loss, nats
};

struct Calibration {
  Profile profile;
  std::vector<UniformMargin> uniform;
  std::vector<LayerReport> layers;
  TextReport heldIn, heldOut;
};

/// Chooses on the first half of `ids`, checks on the second. The session's
/// bundle must be sparse. Usage if the text is too short or the budget is out
/// of range.
Result<Calibration> calibrate(const Bundle &bundle, Session &session,
                              std::span<const int32_t> ids,
                              const CalibrateOptions &options);

} // namespace foresight::calibration
#endif
