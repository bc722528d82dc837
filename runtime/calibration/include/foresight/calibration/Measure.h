//===- Measure.h - Reading a text through a session -------------*- C++ -*-===//
#ifndef FORESIGHT_CALIBRATION_MEASURE_H
#define FORESIGHT_CALIBRATION_MEASURE_H

#include "foresight/calibration/Copy.h"
#include "foresight/runtime/Session.h"
#include "foresight/support/Profile.h"

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace foresight::calibration {

/// log(sum(exp(logits))), in f64.
double logSumExp(std::span<const float> logits);

/// Feeds `ids` to the session, one token a call of `decode`, starting a new
/// sequence every `window` tokens. After each token that has a successor in its
/// window, calls `onToken(index, logits, -log p(ids[index + 1]))`.
using OnLogits =
    std::function<Status(int64_t index, std::span<const float> logits,
                         double negativeLogLikelihood)>;
Status readText(Session &session, std::span<const int32_t> ids, int64_t window,
                const OnLogits &onToken);

/// Keeps the residual rows that every layer's MLP of the dense decoding entry
/// reads, of every `stride`-th token.
class ResidualRecorder : public StageObserver {
public:
  ResidualRecorder(const Manifest &manifest, int64_t stride, int64_t mostRows);
  Status afterStage(Program &program, int64_t entry, int64_t stage,
                    const Step &step) override;
  std::span<const float> rows(size_t selection) const {
    return kept[selection];
  }

private:
  const Manifest &manifest;
  int64_t denseEntry, stride, mostRows;
  std::vector<int64_t> seen;
  std::vector<std::vector<float>> kept;
};

/// Makes the dense decoding entry compute what a profile's choices would: after
/// fc1, activations of neurons that would not be selected become zero.
class SelectionSimulator : public StageObserver {
public:
  struct Counts {
    int64_t tokens = 0, selected = 0, active = 0;
  };

  /// `layers` outlive it, one for each of the manifest's selections.
  SelectionSimulator(const Manifest &manifest,
                     const std::vector<MlpLayer> &layers);
  /// What selection `index` does from now on.
  void set(size_t index, const LayerProfile &profile);
  Status afterStage(Program &program, int64_t entry, int64_t stage,
                    const Step &step) override;
  const Counts &counts(size_t index) const { return states[index].counts; }
  const LayerProfile &profile(size_t index) const {
    return states[index].profile;
  }
  void resetCounts();

private:
  struct State {
    LayerProfile profile{.rule = LayerProfile::Rule::Skip};
    const Copy *copy = nullptr;
    Counts counts;
  };
  const Manifest &manifest;
  const std::vector<MlpLayer> &layers;
  int64_t denseEntry;
  std::vector<State> states;
  std::map<std::pair<size_t, int64_t>, Copy> copies; ///< by selection and bits
  std::vector<float> normalised, rounded, products;
};

/// The first `columns` f32 of row 0 of a buffer.
Result<std::span<float>> rowOf(Program &program, int64_t buffer,
                               int64_t columns);

} // namespace foresight::calibration
#endif
