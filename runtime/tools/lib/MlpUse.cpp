//===- MlpUse.cpp - What MLPs read, layer by layer ------------------------===//
#include "MlpUse.h"

#include "Model.h"
#include "Statistics.h"

#include "foresight/calibration/MlpBytes.h"

namespace foresight::tools {

using calibration::denseMlpBytes;

std::vector<MlpUse> mlpUse(const Manifest &manifest,
                           const SessionTrace &trace) {
  std::vector<MlpUse> out;
  if (trace.entry < 0 || trace.steps == 0)
    return out;
  const std::vector<StageInfo> &stages = manifest.entries[trace.entry].stages;
  for (size_t i = 0; i < trace.selections.size(); ++i) {
    const SessionTrace::Selection &counts = trace.selections[i];
    const SelectionInfo &selection = manifest.selections[i];
    const auto most =
        static_cast<double>(counts.neurons) * static_cast<double>(trace.steps);
    int64_t bytes = 0;
    for (size_t s = 0; s < stages.size(); ++s)
      if (stages[s].layer == counts.layer &&
          (stages[s].role == "fc1" || stages[s].role == "fc2"))
        bytes += trace.stages[s].weightBytes;
    MlpUse use;
    use.layer = counts.layer;
    const bool dense = manifest.entries[trace.entry].name == "decode_dense";
    use.rule = dense ? "dense" : selection.rule;
    use.bits = dense ? 0 : selection.bits;
    use.selected = static_cast<double>(counts.selected) / most;
    use.active = static_cast<double>(counts.active) / most;
    use.bytes = static_cast<double>(bytes) /
                (static_cast<double>(denseMlpBytes(manifest, selection)) *
                 static_cast<double>(trace.steps));
    out.push_back(use);
  }
  return out;
}

MlpUse totalUse(const Manifest &manifest, const std::vector<MlpUse> &layers) {
  MlpUse total;
  double neurons = 0, bytes = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const SelectionInfo &selection = manifest.selections[i];
    const auto count = static_cast<double>(selection.neurons);
    const auto size = static_cast<double>(denseMlpBytes(manifest, selection));
    neurons += count;
    bytes += size;
    total.selected += layers[i].selected * count;
    total.active += layers[i].active * count;
    total.bytes += layers[i].bytes * size;
  }
  if (!layers.empty()) {
    total.selected /= neurons;
    total.active /= neurons;
    total.bytes /= bytes;
  }
  return total;
}

std::string mlpUseTable(const std::vector<MlpUse> &layers,
                        const MlpUse &total) {
  Table table({"layer", "rule", "bits", "selected", "active", "MLP bytes"});
  for (const MlpUse &use : layers)
    table.add({std::to_string(use.layer), use.rule,
               use.bits ? std::to_string(use.bits) : "-", percent(use.selected),
               percent(use.active), percent(use.bytes)});
  table.add({"all", "", "", percent(total.selected), percent(total.active),
             percent(total.bytes)});
  return table.text();
}

OrderedJson mlpUseJson(const std::vector<MlpUse> &layers) {
  OrderedJson out = OrderedJson::array();
  for (const MlpUse &use : layers)
    out.push_back({{"layer", use.layer},
                   {"rule", use.rule},
                   {"bits", use.bits},
                   {"selected", use.selected},
                   {"active", use.active},
                   {"mlp_bytes", use.bytes}});
  return out;
}

const SessionTrace *decodeTrace(const Session &session) {
  for (const SessionTrace &trace : session.traces())
    if (trace.entry == session.decodeEntry() && trace.steps > 0)
      return &trace;
  return nullptr;
}

} // namespace foresight::tools
