//===- DeriveProfile.h - Bits chosen from the weights -----------*- C++ -*-===//
#ifndef FORESIGHT_TARGET_PACKING_DERIVEPROFILE_H
#define FORESIGHT_TARGET_PACKING_DERIVEPROFILE_H

#include "foresight/support/Profile.h"

#include "mlir/IR/BuiltinOps.h"

namespace foresight {

enum class Sparsity { None, Exact, Predicted };

struct DeriveOptions {
  Sparsity sparsity = Sparsity::Exact;
  /// Standard errors, for Predicted.
  double margin = 4;
};

/// What one choice for a layer is expected to read, as a share of its dense
/// MLP.
struct LayerEstimate {
  LayerProfile choice;
  double active = 0, kept = 0, share = 0;
};

struct DerivedProfile {
  Profile profile;
  /// For each layer, what was considered; the choice is the one of least share.
  std::vector<std::vector<LayerEstimate>> considered;
};

/// Chooses rule and bits of each layer from its fc1 (a sample of rows), without
/// text. `given` wins where it has a layer. Expects `foresight.mlp` ops in
/// `@step` or `@decode` (after --foresight-form-mlp), in layer order.
Result<DerivedProfile> deriveProfile(mlir::ModuleOp module,
                                     const DeriveOptions &options,
                                     const Profile *given = nullptr);

} // namespace foresight
#endif
