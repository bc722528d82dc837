//===- Compile.cpp - From a model to what was asked for -------------------===//

#include "Compile.h"

#include "Companions.h"
#include "Register.h"

#include "foresight/Conversion/ForesightToCpu/ForesightToCpu.h"
#include "foresight/Import/Opt/ModelFacts.h"
#include "foresight/Import/Predictors/Predictors.h"
#include "foresight/Transforms/Passes.h"
#include "foresight/support/AtomicFile.h"
#include "foresight/support/MappedFile.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"

#include <filesystem>
#include <map>
#include <set>
#include <unistd.h>

using namespace foresight;
using namespace mlir;
namespace fs = std::filesystem;

static MLIRContext::Threading threadingFor(const CompileOptions &options) {
  // Passes print one after the other into --dump.
  return options.dump.empty() ? MLIRContext::Threading::ENABLED
                              : MLIRContext::Threading::DISABLED;
}

static DialectRegistry dialects() {
  DialectRegistry registry;
  registerForesightDialects(registry);
  return registry;
}

Compilation::Compilation(const CompileOptions &options, std::string program)
    : options(options), program(std::move(program)),
      progress(options.quiet || options.check),
      context(dialects(), threadingFor(options)),
      diagnostics(context, progress, options.explain) {
  context.loadAllAvailableDialects();
}

Status Compilation::run() {
  Status status = runPhases();
  if (status.ok())
    return status;
  // Every error says what was compiled, be it found deep inside: a message that
  // does not start with a file gets this one.
  Error error = std::move(status).error();
  std::error_code ignored;
  std::string start = error.message.substr(0, error.message.find(": "));
  if (error.code != ErrorCode::Usage && error.code != ErrorCode::Resource &&
      start != options.inputName() && start != options.profile &&
      start != options.verify && !fs::exists(start, ignored))
    error.message = options.inputName() + ": " + error.message;
  return error;
}

/// No file that is read may be written over: weights are read last, from the
/// model itself.
Status Compilation::checkOutput() {
  std::set<std::string> inputs = {options.input, options.profile};
  for (auto weight : module->getOps<WeightOp>())
    if (auto source = dyn_cast<ExternalAttr>(weight.getSource()))
      inputs.insert(source.getFile().str());
  for (const char *name : {"tokenizer.json", "vocab.json", "merges.txt",
                           "config.json", "generation_config.json"})
    if (options.shape.empty())
      inputs.insert(folderOf(options.input) + "/" + name);
  for (const std::string &input : inputs) {
    std::error_code failure;
    if (fs::equivalent(input, options.output, failure))
      return makeError(ErrorCode::Usage, "-o ", options.output, ": is ", input,
                       ", which is read; name another file");
  }
  return {};
}

Status Compilation::runPhases() {
  if (options.check)
    return check();
  if (!options.dump.empty()) {
    std::error_code error;
    fs::create_directories(options.dump, error);
    if (error)
      return makeError(ErrorCode::Resource, options.dump,
                       ": cannot make this folder: ", error.message());
  }
  // Found out before the work, not after it.
  for (const std::string &file : {options.profile, options.verify})
    if (!file.empty())
      FORESIGHT_CHECK(MappedFile::open(file));
  if (options.emit >= Emit::Bundle) {
    FORESIGHT_CHECK(AtomicFile::create(options.output));
  }
  FORESIGHT_CHECK(import());
  FORESIGHT_CHECK(checkOutput());
  if (options.emit == Emit::Onnx)
    return emitText();
  FORESIGHT_CHECK(describeModel());
  FORESIGHT_CHECK(dumpModule("foresight"));
  if (options.emit == Emit::Foresight)
    return emitText();
  if (options.emit >= Emit::Bundle)
    FORESIGHT_CHECK(importTokenizer());
  FORESIGHT_CHECK(schedule());
  FORESIGHT_CHECK(dumpModule("scheduled"));
  if (options.emit == Emit::Scheduled)
    return emitText();
  if (options.emit == Emit::Llvm || options.emit == Emit::Object)
    return emitCode();
  FORESIGHT_CHECK(emitBundle());
  return options.verify.empty() ? Status() : verifyBundle();
}

//===----------------------------------------------------------------------===//
// Passes
//===----------------------------------------------------------------------===//

Status Compilation::runPipeline(
    const std::string &name,
    llvm::function_ref<void(OpPassManager &, const PipelineOptions &)> build,
    const PipelineOptions &pipeline) {
  PassManager passes(&context);
  // Each pipeline ends with a check of its own contract; ops that break their
  // own rules are found after the pass that made them.
  passes.enableVerifier(true);
  build(passes, pipeline);
  if (!options.dump.empty())
    passes.enableIRPrintingToFileTree(
        [](Pass *, Operation *) { return false; },
        [](Pass *, Operation *) { return true; }, /*printModuleScope=*/true,
        /*printAfterOnlyOnChange=*/true, /*printAfterOnlyOnFailure=*/false,
        options.dump + "/passes-" + name);
  if (failed(passes.run(*module)))
    return diagnostics.take(failureCode(), options.inputName() + ": phase '" +
                                               name + "' failed");
  return {};
}

/// "3..5", or "4" where all are the same.
static std::string rangeText(int64_t least, int64_t most) {
  return least == most ? std::to_string(least)
                       : std::to_string(least) + ".." + std::to_string(most);
}

Status Compilation::chooseProfile() {
  if (options.sparsity == Sparsity::None)
    return {};
  if (options.predictorRank || !options.predictors.empty()) {
    PredictorOptions predictors;
    predictors.file = options.predictors;
    predictors.rank = options.predictorRank;
    predictors.seed = options.seed;
    predictors.density = options.density;
    FORESIGHT_TRY(profile, addPredictors(*module, predictors));
    progress.note(std::to_string(profile->layers.size()) + " layers low_rank");
    return {};
  }
  std::optional<Profile> given;
  if (!options.profile.empty()) {
    FORESIGHT_TRY(given, Profile::readFile(options.profile));
    FORESIGHT_TRY(ModelFacts facts, getModelFacts(*module));
    FORESIGHT_CHECK(
        given->checkModel(options.profile, facts.hiddenSize, facts.ffnDim));
  }
  DeriveOptions deriveOptions;
  deriveOptions.sparsity = options.sparsity;
  deriveOptions.margin = options.margin;
  FORESIGHT_TRY(
      DerivedProfile derived,
      deriveProfile(*module, deriveOptions, given ? &*given : nullptr));
  if (options.explain)
    explainProfile(derived);
  std::map<LayerProfile::Rule, int64_t> rules;
  int64_t least = 8, most = 0;
  for (const auto &[layer, choice] : derived.profile.layers) {
    ++rules[choice.rule];
    if (choice.usesCopy()) {
      least = std::min(least, choice.bits);
      most = std::max(most, choice.bits);
    }
  }
  if (rules[LayerProfile::Rule::Dense] ==
      static_cast<int64_t>(derived.profile.layers.size())) {
    progress.warn(options.inputName() +
                  ": no layer can be made sparse, so the bundle is dense; only "
                  "ReLU has neurons that are exactly zero");
    return {};
  }
  std::string text;
  for (const auto &[rule, count] : rules)
    if (count > 0)
      text += (text.empty() ? "" : ", ") + std::to_string(count) +
              (count == 1 ? " layer " : " layers ") +
              std::string(ruleName(rule));
  if (most > 0)
    text += "; copies of " + rangeText(least, most) + " bits";
  progress.note(text);
  profile = std::move(derived.profile);
  return {};
}

/// A line a layer: what each choice is expected to read of the dense MLP.
void Compilation::explainProfile(const DerivedProfile &derived) {
  auto percent = [](double share) {
    char text[16];
    snprintf(text, sizeof text, "%.1f %%", share * 100);
    return std::string(text);
  };
  for (const auto &[layer, considered] : llvm::enumerate(derived.considered)) {
    const LayerProfile *chosen = derived.profile.find(layer);
    std::string line = "layer " + std::to_string(layer) + " reads";
    std::string after;
    for (const LayerEstimate &estimate : considered) {
      line += &estimate == &considered.front() ? " " : ", ";
      line += percent(estimate.share) + " by " +
              std::string(ruleName(estimate.choice.rule));
      if (estimate.choice.usesCopy())
        line += " " + std::to_string(estimate.choice.bits) + " bits";
      if (chosen && *chosen == estimate.choice) {
        line += " (chosen)";
        after = "; " + percent(estimate.active) + " of neurons active, " +
                percent(estimate.kept) + " kept";
      }
    }
    progress.explain(line + after);
  }
}

Status Compilation::schedule() {
  // A module from an .mlir file may be past some phases.
  if (!module->getOps<KernelOp>().empty())
    return {};
  PipelineOptions pipeline;
  pipeline.dtype = options.dtype;
  pipeline.maxSeq = options.maxSeq;
  pipeline.maxBatch = options.maxBatch;
  pipeline.target = options.cuda ? "cuda" : "cpu";
  if (module->lookupSymbol("step")) {
    FORESIGHT_TRY(ModelFacts facts, getModelFacts(*module));
    if (options.maxSeq > facts.maxSeq)
      return makeError(ErrorCode::Usage, "--max-seq=", options.maxSeq, ": ",
                       options.inputName(), " has positions for ", facts.maxSeq,
                       " tokens");
    progress.phase("sparsify", nameOf(options.sparsity));
    FORESIGHT_CHECK(runPipeline("prepare", buildPreparePipeline, pipeline));
    FORESIGHT_CHECK(chooseProfile());
    pipeline.profile = profile;
    FORESIGHT_CHECK(runPipeline("entries", buildEntriesPipeline, pipeline));
  }
  progress.phase("schedule", "stages for " + options.target);
  FORESIGHT_CHECK(runPipeline("schedule", buildSchedulePipeline, pipeline));
  if (options.explain) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    explainSchedule(*module, stream);
    progress.print(text);
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

static std::string printed(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return text;
}

/// A pipe or a device is written as it is, a file as a whole or not at all.
Status Compilation::writeOutput(std::string_view bytes) {
  std::error_code error;
  bool standard = options.output == "-";
  if (!standard && !(fs::exists(options.output, error) &&
                     !fs::is_regular_file(options.output, error) &&
                     !fs::is_directory(options.output, error)))
    return writeFileAtomically(options.output, bytes);
  FILE *file = standard ? stdout : fopen(options.output.c_str(), "wb");
  bool written =
      file && fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  written = file && (standard ? fflush(file) : fclose(file)) == 0 && written;
  if (!written)
    return makeError(ErrorCode::Resource,
                     standard ? "standard output" : options.output,
                     ": cannot be written");
  return {};
}

Status Compilation::emitText() { return writeOutput(printed(*module)); }

Status Compilation::dumpText(const std::string &name, std::string_view text) {
  if (options.dump.empty())
    return {};
  return writeFileAtomically(options.dump + "/" + name, text);
}

Status Compilation::dumpModule(const std::string &name) {
  if (options.dump.empty())
    return {};
  return dumpText(name + ".mlir", printed(*module));
}

/// `--emit=llvm` and `object`: the last variant, which is the best.
Status Compilation::emitCode() {
  if (options.cuda) {
    FORESIGHT_TRY(std::string ptx, compilePtx());
    return writeOutput(ptx);
  }
  const CpuVariant &variant = options.variants.back();
  progress.phase("code", variant.name);
  OwningOpRef<ModuleOp> code;
  SmallVector<char> bytes;
  CpuOutput output =
      options.emit == Emit::Llvm ? CpuOutput::LlvmIr : CpuOutput::Object;
  if (failed(lowerToCpu(*module, variant, code)) ||
      failed(emitCpuCode(*code, variant, output, bytes)))
    return diagnostics.take(failureCode(), "no code for " + variant.name +
                                               " could be generated");
  return writeOutput(std::string_view(bytes.data(), bytes.size()));
}
