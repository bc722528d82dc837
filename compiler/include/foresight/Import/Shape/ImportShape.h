//===- ImportShape.h - A size and a seed to @step ---------------*- C++ -*-===//
//
// Models for measuring speed: the shapes of OPT with weights made from a seed.
// Their text means nothing, and everything made from them says so.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_IMPORT_SHAPE_IMPORTSHAPE_H
#define FORESIGHT_IMPORT_SHAPE_IMPORTSHAPE_H

#include "foresight/Import/Opt/OptStep.h"

namespace foresight {

struct ShapeOptions {
  /// "opt-125m" .. "opt-175b", "opt-mini", or the path of a `config.json`.
  std::string shape;
  uint64_t seed = 0;
  /// The share of fc1 neurons that are active for a typical input.
  double density = 0.075;
  ImportOptions import;
};

/// f16 unless `import.dtype` or the config says otherwise.
Result<mlir::OwningOpRef<mlir::ModuleOp>>
importShape(mlir::MLIRContext &context, const ShapeOptions &options);

/// "synthetic:SEED" to the seed.
Result<uint64_t> parseSyntheticSeed(const std::string &text);

} // namespace foresight
#endif
