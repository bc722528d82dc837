//===- Raise.h - onnx-level IR to @step -------------------------*- C++ -*-===//
//
// Replaces the `onnx.graph` of a module by `foresight.weight` symbols and one
// `func.func @step`, and gives the module its `foresight.model` facts.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RAISE_RAISE_H
#define FORESIGHT_RAISE_RAISE_H

#include "foresight/support/ElementType.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>
#include <optional>

namespace foresight {

struct RaiseOptions {
  /// Tokens that a KV cache has room for; 0: as many as the model has
  /// positions.
  int64_t maxSeq = 0;
  /// Element type of the weight matrices; unset: as they are stored.
  std::optional<ElementType> dtype;
  /// Report as remarks what each part of the graph was recognised as.
  bool explain = false;
  /// Give a graph that ends with hidden states a head, the token embedding.
  bool tieHead = false;
};

/// Raises in place. On failure the module is unchanged and diagnostics name
/// every node that was not understood, with the nearest candidate.
mlir::LogicalResult raise(mlir::ModuleOp module,
                          const RaiseOptions &options = {});

std::unique_ptr<mlir::Pass> createRaisePass(const RaiseOptions &options = {});

/// Makes `--foresight-raise` known to pass managers.
void registerRaisePass();

} // namespace foresight

#endif // FORESIGHT_RAISE_RAISE_H
