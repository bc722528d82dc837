//===- Measure.cpp - Reading a text through a session ---------------------===//
#include "foresight/calibration/Measure.h"

#include <algorithm>
#include <cmath>

namespace foresight::calibration {

double logSumExp(std::span<const float> logits) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(static_cast<double>(logit - most));
  return most + std::log(sum);
}

Status readText(Session &session, std::span<const int32_t> ids, int64_t window,
                const OnLogits &onToken) {
  const auto count = static_cast<int64_t>(ids.size());
  for (int64_t begin = 0; begin < count; begin += window) {
    FORESIGHT_CHECK(session.reset());
    const int64_t end = std::min(count, begin + window);
    // The last token of a window predicts nothing that is asked.
    for (int64_t i = begin; i + 1 < end; ++i) {
      FORESIGHT_TRY(const auto logits, session.decode(ids[i]));
      const double loss = logSumExp(logits) - logits[ids[i + 1]];
      if (!std::isfinite(loss))
        return makeError(ErrorCode::BadBundle, "the logits of token ", i,
                         " are not finite: the model's weights are damaged or "
                         "out of range");
      FORESIGHT_CHECK(onToken(i, logits, loss));
    }
  }
  return {};
}

Result<std::span<float>> rowOf(Program &program, int64_t buffer,
                               int64_t columns) {
  const BufferInfo &info = program.manifest().buffers[buffer];
  const std::span<std::byte> bytes = program.hostView(buffer);
  if (info.element != Element::F32 || info.columns < columns ||
      bytes.size() < columns * sizeof(float))
    return makeError(ErrorCode::Unsupported, "buffer '", info.name,
                     "' cannot be looked at: it is not f32 in host memory");
  return std::span(reinterpret_cast<float *>(bytes.data()),
                   static_cast<size_t>(columns));
}

/// Index of the selection whose dense stage this is, or -1.
static int64_t selectionOf(const Manifest &manifest, int64_t stage) {
  for (size_t i = 0; i < manifest.selections.size(); ++i)
    if (manifest.selections[i].denseStage == stage)
      return static_cast<int64_t>(i);
  return -1;
}

//===----------------------------------------------------------------------===//
// ResidualRecorder
//===----------------------------------------------------------------------===//

ResidualRecorder::ResidualRecorder(const Manifest &manifest, int64_t stride,
                                   int64_t mostRows)
    : manifest(manifest), denseEntry(manifest.entryIndex("decode_dense")),
      stride(stride), mostRows(mostRows), seen(manifest.selections.size()),
      kept(manifest.selections.size()) {}

Status ResidualRecorder::afterStage(Program &program, int64_t entry,
                                    int64_t stage, const Step &step) {
  const int64_t index = entry == denseEntry ? selectionOf(manifest, stage) : -1;
  if (index < 0)
    return {};
  const SelectionInfo &selection = manifest.selections[index];
  if (seen[index]++ % stride != 0 ||
      static_cast<int64_t>(kept[index].size()) >= mostRows * selection.hidden)
    return {};
  FORESIGHT_TRY(const std::span<float> row,
                rowOf(program, selection.input, selection.hidden));
  kept[index].insert(kept[index].end(), row.begin(), row.end());
  return {};
}

//===----------------------------------------------------------------------===//
// SelectionSimulator
//===----------------------------------------------------------------------===//

SelectionSimulator::SelectionSimulator(const Manifest &manifest,
                                       const std::vector<MlpLayer> &layers)
    : manifest(manifest), layers(layers),
      denseEntry(manifest.entryIndex("decode_dense")), states(layers.size()) {}

void SelectionSimulator::set(size_t index, const LayerProfile &profile) {
  State &state = states[index];
  state.profile = profile;
  state.copy = nullptr;
  if (!profile.usesCopy())
    return;
  const auto key = std::pair(index, profile.bits);
  auto found = copies.find(key);
  if (found == copies.end())
    found = copies
                .emplace(key, Copy::make(layers[index],
                                         static_cast<int>(profile.bits)))
                .first;
  state.copy = &found->second;
}

void SelectionSimulator::resetCounts() {
  for (State &state : states)
    state.counts = {};
}

Status SelectionSimulator::afterStage(Program &program, int64_t entry,
                                      int64_t stage, const Step &step) {
  const int64_t index = entry == denseEntry ? selectionOf(manifest, stage) : -1;
  if (index < 0)
    return {};
  const SelectionInfo &selection = manifest.selections[index];
  const MlpLayer &layer = layers[index];
  State &state = states[index];
  FORESIGHT_TRY(const std::span<float> activations,
                rowOf(program, selection.activations, layer.neurons));
  ++state.counts.tokens;
  if (state.copy) {
    FORESIGHT_TRY(const std::span<float> residual,
                  rowOf(program, selection.input, layer.hidden));
    normalised.resize(layer.hidden);
    rounded.resize(layer.hidden);
    products.resize(layer.neurons);
    layer.normalise(residual, normalised);
    const Copy::Rounded x = state.copy->round(normalised, rounded);
    state.copy->products(rounded, 1, products);
    const auto kappa =
        static_cast<float>(state.profile.kappa(selection.hidden));
    for (int64_t i = 0; i < layer.neurons; ++i) {
      const bool kept = state.copy->keeps(i, products[i], x, kappa);
      state.counts.selected += kept;
      if (!kept)
        activations[i] = 0;
    }
  } else {
    state.counts.selected += layer.neurons;
  }
  for (int64_t i = 0; i < layer.neurons; ++i)
    state.counts.active += activations[i] > 0;
  return {};
}

} // namespace foresight::calibration
