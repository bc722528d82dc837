//===- MlpBytes.cpp - Weight bytes of a layer's MLP -----------------------===//
#include "foresight/calibration/MlpBytes.h"

#include "foresight/calibration/MlpLayer.h"
#include "foresight/lowbit/Layout.h"

namespace foresight::calibration {

int64_t denseMlpBytes(const Manifest &manifest,
                      const SelectionInfo &selection) {
  const int64_t dense = manifest.entryIndex("decode_dense");
  int64_t bytes = 0;
  for (const StageInfo &stage : manifest.entries[dense].stages)
    if (stage.layer == selection.layer &&
        (stage.role == "fc1" || stage.role == "fc2"))
      bytes += stage.weightBytes;
  return bytes;
}

Result<int64_t> fc2WeightOf(const Bundle &bundle,
                            const SelectionInfo &selection) {
  const Manifest &manifest = bundle.manifest();
  const EntryInfo &dense =
      manifest.entries[manifest.entryIndex("decode_dense")];
  for (const StageInfo &stage : dense.stages)
    if (stage.layer == selection.layer && stage.role == "fc2")
      for (const StageArg &arg : stage.args)
        if (arg.isWeight) {
          const std::vector<int64_t> &shape = manifest.weights[arg.index].shape;
          if (shape.size() == 2 && shape[0] == selection.neurons &&
              shape[1] == selection.hidden)
            return arg.index;
        }
  return makeError(ErrorCode::BadBundle, bundle.path(), ": layer ",
                   selection.layer, " has no fc2 weight of shape [",
                   selection.neurons, ", ", selection.hidden, "]");
}

Result<MlpBytes> MlpBytes::of(const Bundle &bundle,
                              const SelectionInfo &selection) {
  const Manifest &manifest = bundle.manifest();
  FORESIGHT_TRY(const int64_t fc2, fc2WeightOf(bundle, selection));
  MlpBytes bytes{.neurons = selection.neurons,
                 .hidden = selection.hidden,
                 .fc1Row = storedRowBytes(manifest.weights[selection.fc1]),
                 .fc2Row = storedRowBytes(manifest.weights[fc2])};
  bytes.vectors = denseMlpBytes(manifest, selection) -
                  bytes.neurons * (bytes.fc1Row + bytes.fc2Row);
  bytes.balance =
      paddedColumns(selection.hidden) * static_cast<int64_t>(sizeof(float));
  return bytes;
}

double MlpBytes::sparse(int64_t bits, double selected, double active) const {
  const int64_t copy =
      bits ? lowbit::record(neurons, hidden, bits).bytes + balance : 0;
  return static_cast<double>(copy + vectors) +
         selected * static_cast<double>(fc1Row) +
         active * static_cast<double>(fc2Row);
}

} // namespace foresight::calibration
