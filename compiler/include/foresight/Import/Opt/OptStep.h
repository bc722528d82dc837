//===- OptStep.h - The decoding step of an OPT model ------------*- C++ -*-===//
//
// Front ends that know that a model is OPT (a Hugging Face folder, a shape)
// share this builder of `@step`; docs/design/overview.md says what it looks
// like.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_IMPORT_OPT_OPTSTEP_H
#define FORESIGHT_IMPORT_OPT_OPTSTEP_H

#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/Opt/ModelFacts.h"
#include "foresight/support/ElementType.h"
#include "foresight/support/Json.h"
#include "foresight/support/Safetensors.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <optional>

namespace foresight {

/// What `config.json` says of the architecture.
struct OptConfig {
  int64_t vocabSize = 50272, hiddenSize = 768, layers = 12, heads = 12;
  int64_t maxPositions = 2048;
  /// Width of the embeddings; other than hiddenSize with project_in, _out.
  int64_t embedSize = 768;
  /// One a layer.
  std::vector<int64_t> ffnDim;
  bool normBefore = true; ///< LayerNorm before attention and MLP, not after
  bool finalNorm = true;  ///< LayerNorm before the head
  bool biases = true, normAffine = true;
  bool tiedHead = true; ///< a missing head is the token embedding
  double epsilon = 1e-5;
  std::string activation = "relu";
  TokenIds tokens;
  /// "float16" and so on, empty if the file does not say.
  std::string dtype;

  int64_t headDim() const { return hiddenSize / heads; }

  /// Reads a config; `source` names it in errors. Fails with Unsupported if it
  /// is not an OPT with a head.
  static Result<OptConfig> parse(const Json &json, const std::string &source);
};

struct ImportOptions {
  /// Element type of the weight matrices and KV caches; unset: as the matrices
  /// are stored, f32 if they differ.
  std::optional<ElementType> dtype;
  /// Tokens that a KV cache has room for; 0: as many as the model has
  /// positions.
  int64_t maxSeq = 0;
  /// Follow links of weight files that lead out of the model's folder.
  bool allowLinks = false;
};

/// A tensor that a front end has found or made.
struct WeightSource {
  /// `#foresight.external` or `#foresight.synthetic`.
  mlir::Attribute source;
  /// What errors and the manifest call it.
  std::string name;
};

/// The data of a tensor in a safetensors file.
ExternalAttr externalSource(mlir::MLIRContext &context,
                            const TensorInfo &tensor);

/// Gives the weight of a canonical name ("layers.0.fc1.weight",
/// "embed_tokens.weight"), which must have `shape`; unset if the model has
/// none. Only names that may be absent are asked for without being needed:
/// "lm_head.weight".
using WeightProvider = std::function<Result<std::optional<WeightSource>>(
    const std::string &name, llvm::ArrayRef<int64_t> shape)>;

/// Builds the module: weight symbols, `@step` and `foresight.model`. `facts`
/// gives name, source and `synthetic`; the rest is filled in. `options.dtype`
/// must be set.
Result<mlir::OwningOpRef<mlir::ModuleOp>>
buildOptStep(mlir::MLIRContext &context, const OptConfig &config,
             const ImportOptions &options, const WeightProvider &weights,
             ModelFacts facts);

} // namespace foresight
#endif
