//===- Pipelines.h - Passes in order, a function a phase --------*- C++ -*-===//
//
// What stands between a raised `@step` and a scheduled module. Each function
// appends the passes of one phase and ends with what checks its contract.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_PIPELINES_PIPELINES_H
#define FORESIGHT_PIPELINES_PIPELINES_H

#include "foresight/support/Profile.h"

#include <cstdint>
#include <optional>
#include <string>

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace foresight {

struct PipelineOptions {
  /// Element type of matrices and KV caches: auto, f32, f16 or bf16.
  std::string dtype = "auto";
  /// Tokens that a KV cache has room for; 0: as many as the model has.
  int64_t maxSeq = 0;
  /// Sequences that are decoded together at most.
  int64_t maxBatch = 1;
  /// How sparse each layer of `@decode` is made; a layer that is not listed
  /// stays dense. None: a dense bundle.
  std::optional<Profile> profile;
  /// Most prompt tokens of one call of `@prefill`; 0: the target's choice.
  int64_t maxPromptTokens = 0;
  /// Whose rules stages and buffers follow.
  std::string target = "cpu";
};

/// `@step` with types chosen and MLPs seen as such.
void buildPreparePipeline(mlir::OpPassManager &pm,
                          const PipelineOptions &options);

/// `@step` to `@prefill` and `@decode`; with a profile `@decode` is sparse and
/// there is a `@decode_dense` too. The profile may be derived from the module
/// that buildPreparePipeline leaves.
void buildEntriesPipeline(mlir::OpPassManager &pm,
                          const PipelineOptions &options);

/// Entries to kernels, launches and buffers.
void buildSchedulePipeline(mlir::OpPassManager &pm,
                           const PipelineOptions &options);

/// All of the above.
void buildCompilePipeline(mlir::OpPassManager &pm,
                          const PipelineOptions &options);

/// Makes `--foresight-compile-pipeline` and the phases known by name.
void registerForesightPipelines();

} // namespace foresight

#endif // FORESIGHT_PIPELINES_PIPELINES_H
