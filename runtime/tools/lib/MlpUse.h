//===- MlpUse.h - What MLPs read, layer by layer ----------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_MLPUSE_H
#define FORESIGHT_TOOLS_MLPUSE_H

#include "foresight/runtime/Session.h"
#include "foresight/support/Json.h"

#include <vector>

namespace foresight::tools {

/// Of one layer, over the steps of a trace.
struct MlpUse {
  int64_t layer = 0;
  std::string rule;
  int64_t bits = 0;
  double selected = 0; ///< share of neurons whose fc1 row was read
  double active = 0;   ///< share of neurons that were not zero
  double bytes = 0;    ///< of the dense MLP's bytes, prediction included
};

/// Empty for a dense bundle or a trace of another entry.
std::vector<MlpUse> mlpUse(const Manifest &manifest, const SessionTrace &trace);
/// The mean over layers, weighted by their size.
MlpUse totalUse(const Manifest &manifest, const std::vector<MlpUse> &layers);

std::string mlpUseTable(const std::vector<MlpUse> &layers, const MlpUse &total);
OrderedJson mlpUseJson(const std::vector<MlpUse> &layers);

/// The trace of the entry that `session` decodes with, or null.
const SessionTrace *decodeTrace(const Session &session);

} // namespace foresight::tools
#endif
