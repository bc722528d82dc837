//===- ImportHuggingFace.h - Model folders to @step -------------*- C++ -*-===//
#ifndef FORESIGHT_IMPORT_HUGGINGFACE_IMPORTHUGGINGFACE_H
#define FORESIGHT_IMPORT_HUGGINGFACE_IMPORTHUGGINGFACE_H

#include "foresight/Import/Opt/OptStep.h"

namespace foresight {

/// Imports a folder of `config.json` and `*.safetensors`, sharded or not, with
/// any of the prefixes that OPT checkpoints use. Weights stay in their files.
/// Loads the dialects it needs into `context`.
Result<mlir::OwningOpRef<mlir::ModuleOp>>
importHuggingFace(mlir::MLIRContext &context, const std::string &folder,
                  const ImportOptions &options = {});

} // namespace foresight
#endif
