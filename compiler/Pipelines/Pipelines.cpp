//===- Pipelines.cpp - Passes in order, a function a phase ----------------===//

#include "foresight/Pipelines/Pipelines.h"

#include "foresight/Target/TargetInfo.h"
#include "foresight/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace foresight;

void foresight::buildPreparePipeline(OpPassManager &pm,
                                     const PipelineOptions &options) {
  SetTypesPassOptions types;
  types.dtype = options.dtype;
  types.maxSeq = options.maxSeq;
  pm.addPass(createSetTypesPass(types));
  pm.addPass(createFormMlpPass());
  pm.addPass(createHoistLastRowPass());
  AddSequencesPassOptions sequences;
  sequences.maxBatch = options.maxBatch;
  pm.addPass(createAddSequencesPass(sequences));
}

void foresight::buildEntriesPipeline(OpPassManager &pm,
                                     const PipelineOptions &options) {
  SpecializeEntriesPassOptions entries;
  entries.maxTokens = options.maxPromptTokens;
  if (entries.maxTokens == 0)
    if (std::unique_ptr<TargetInfo> info = createTargetInfo(options.target))
      entries.maxTokens = info->promptTokens();
  entries.denseDecode = options.profile.has_value();
  pm.addPass(createSpecializeEntriesPass(entries));
  if (options.profile) {
    pm.addPass(createSparsifyPass(*options.profile));
    pm.addPass(createFoldNormPass());
    pm.addPass(createLookaheadPass());
  }
  pm.addPass(createVerifyEntriesPass());
}

void foresight::buildSchedulePipeline(OpPassManager &pm,
                                      const PipelineOptions &options) {
  pm.addPass(createExpandMlpPass());
  FormStagesPassOptions stages;
  stages.target = options.target;
  pm.addPass(createFormStagesPass(stages));
  MultiplyByRowsPassOptions rows;
  rows.target = options.target;
  pm.addPass(createMultiplyByRowsPass(rows));
  NarrowRowsPassOptions narrow;
  narrow.target = options.target;
  pm.addPass(createNarrowRowsPass(narrow));
  pm.addPass(createSchedulePass());
  pm.addPass(createOutlineKernelsPass());
  PlanBuffersPassOptions buffers;
  buffers.target = options.target;
  pm.addPass(createPlanBuffersPass(buffers));
  pm.addPass(createVerifySchedulePass());
}

void foresight::buildCompilePipeline(OpPassManager &pm,
                                     const PipelineOptions &options) {
  buildPreparePipeline(pm, options);
  buildEntriesPipeline(pm, options);
  buildSchedulePipeline(pm, options);
}

namespace {

/// PipelineOptions on a command line.
struct CommandLineOptions : public PassPipelineOptions<CommandLineOptions> {
  Option<std::string> dtype{*this, "dtype", llvm::cl::init("auto"),
                            llvm::cl::desc("auto, f32, f16 or bf16")};
  Option<int64_t> maxSeq{*this, "max-seq", llvm::cl::init(0),
                         llvm::cl::desc("tokens in a KV cache")};
  Option<int64_t> maxBatch{*this, "max-batch", llvm::cl::init(1),
                           llvm::cl::desc("sequences in a KV cache")};
  Option<int64_t> maxPromptTokens{
      *this, "max-prompt-tokens", llvm::cl::init(0),
      llvm::cl::desc("most tokens of one call of @prefill; 0: the target's"
                     " choice")};
  Option<std::string> target{*this, "target", llvm::cl::init("cpu"),
                             llvm::cl::desc("whose rules to follow")};

  PipelineOptions get() const {
    PipelineOptions options;
    options.dtype = dtype;
    options.maxSeq = maxSeq;
    options.maxBatch = maxBatch;
    options.maxPromptTokens = maxPromptTokens;
    options.target = target;
    return options;
  }
};

} // namespace

static void registerPhase(StringRef name, StringRef description,
                          void (*build)(OpPassManager &,
                                        const PipelineOptions &)) {
  PassPipelineRegistration<CommandLineOptions>(
      name, description,
      [build](OpPassManager &pm, const CommandLineOptions &options) {
        build(pm, options.get());
      });
}

void foresight::registerForesightPipelines() {
  registerPhase("foresight-prepare-pipeline",
                "Choose types and recognise MLPs in @step",
                buildPreparePipeline);
  registerPhase("foresight-entries-pipeline",
                "Make @prefill and @decode of @step", buildEntriesPipeline);
  registerPhase("foresight-schedule-pipeline",
                "Turn entries into kernels, launches and buffers",
                buildSchedulePipeline);
  registerPhase("foresight-compile-pipeline",
                "All phases from @step to a scheduled module",
                buildCompilePipeline);
}
