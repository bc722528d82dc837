//===- ImportOnnx.h - ONNX files to onnx-level IR ---------------*- C++ -*-===//
//
// Reads a model file and its external data into a module with one
// `onnx.graph`. Weight data stay in their files: a constant names a range of
// bytes.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_IMPORT_ONNX_IMPORTONNX_H
#define FORESIGHT_IMPORT_ONNX_IMPORTONNX_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>

namespace foresight {

struct OnnxImportOptions {
  /// Where to look for external data; empty: the model's own folder.
  std::string externalDataDir;
  /// Follow links of data files that lead out of that folder.
  bool allowLinks = false;
};

/// Imports `path`. Reports every problem as a diagnostic that names the file
/// and the node or tensor. Loads the dialects it needs into `context`.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importOnnx(mlir::MLIRContext &context, llvm::StringRef path,
           const OnnxImportOptions &options = {});

} // namespace foresight

#endif // FORESIGHT_IMPORT_ONNX_IMPORTONNX_H
