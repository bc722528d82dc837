//===- Manifest.h - The manifest of a scheduled module ----------*- C++ -*-===//
//
// docs/design/bundle.md is the reference of what is written here.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TARGET_BUNDLE_MANIFEST_H
#define FORESIGHT_TARGET_BUNDLE_MANIFEST_H

#include "foresight/Conversion/ForesightToCpu/ForesightToCpu.h"
#include "foresight/Conversion/ForesightToGpu/ForesightToGpu.h"
#include "foresight/Target/Packing/Packing.h"
#include "foresight/support/Json.h"

#include "llvm/ADT/StringMap.h"

namespace foresight {

struct ManifestInputs {
  /// Of every kernel, by its symbol.
  llvm::StringMap<KernelInfo> kernels;
  /// Of every generated kernel, for a GPU.
  llvm::StringMap<GpuLaunch> launches;
  /// What the weights section holds.
  std::vector<PackedWeight> weights;
  /// Whether the device makes synthetic weights itself: the bundle has none.
  bool generateWeights = false;
  uint64_t weightBytes = 0;
  std::string device = "cpu";
  std::vector<CpuVariant> variants;
  /// Option and value, as given.
  std::vector<std::pair<std::string, std::string>> options;
  std::string producer;
  std::string version, llvm, commit;
  /// Facts that the module does not know; they replace its own of that name.
  OrderedJson model = OrderedJson::object();
};

/// Writes the manifest, or says on the op what is not as a scheduled module
/// must be.
mlir::FailureOr<OrderedJson> buildManifest(mlir::ModuleOp module,
                                           const ManifestInputs &inputs);

} // namespace foresight
#endif
