//===- Compile.h - From a model to what was asked for -----------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_COMPILE_COMPILE_H
#define FORESIGHT_TOOLS_COMPILE_COMPILE_H

#include "Diagnostics.h"
#include "Options.h"
#include "Progress.h"

#include "foresight/Import/Opt/ModelFacts.h"
#include "foresight/Pipelines/Pipelines.h"
#include "foresight/Target/Packing/Packing.h"
#include "foresight/support/Json.h"
#include "foresight/support/Profile.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>

namespace foresight {

/// One run of foresight-compile. The phases are its methods, in order; `run`
/// stops after the one that `--emit` names.
class Compilation {
public:
  Compilation(const CompileOptions &options, std::string program);

  Status run();

private:
  Status runPhases();

  // Check.cpp
  Status check();
  void checkGraph(const std::string &path);
  void checkStep(const ModelFacts &facts);

  // Import.cpp
  enum class InputKind { Missing, Shape, Folder, Onnx, Mlir };
  InputKind kindOfInput() const;
  Status import();
  Status checkOutput();
  Status importOnnxFile(const std::string &path);
  Status importMlir();
  Status raiseGraph();
  Status describeModel();
  Status importTokenizer();
  void warnOfTokens(const ModelFacts &facts, int64_t tokenizerIds);

  // Compile.cpp
  Status schedule();
  Status chooseProfile();
  void explainProfile(const DerivedProfile &derived);
  Status runPipeline(
      const std::string &name,
      llvm::function_ref<void(mlir::OpPassManager &, const PipelineOptions &)>
          build,
      const PipelineOptions &pipeline);
  Status emitText();
  Status emitCode();

  // EmitBundle.cpp
  Status emitBundle();
  Result<OrderedJson> manifest(const Packing &packing);
  Status announceWeights(const Packing &packing);
  struct CodeSection {
    std::string name, bytes;
  };
  Result<std::vector<CodeSection>> compileVariants();
  Result<std::string> compilePtx();
  Result<std::vector<CodeSection>> compileGpu();
  Status verifyBundle();
  /// Whether the bundle holds no weights but says how a GPU makes them.
  bool generatesWeights() const {
    return options.cuda && !options.shape.empty();
  }

  /// What a failure of a phase after import is: the fault of an .mlir file
  /// that was given, otherwise ours.
  ErrorCode failureCode() const {
    return fromModel ? ErrorCode::Internal : ErrorCode::BadInput;
  }
  /// `foresight`, beside this tool.
  std::string runtimePath() const;
  Status checkRuntime() const;
  Status writeOutput(std::string_view bytes);
  Status dumpModule(const std::string &name);
  Status dumpText(const std::string &name, std::string_view text);

  const CompileOptions &options;
  std::string program; ///< path of this tool: `foresight` lies beside it
  Progress progress;
  mlir::MLIRContext context;
  DiagnosticCollector diagnostics;
  mlir::OwningOpRef<mlir::ModuleOp> module;

  /// Whether the module came from a model rather than from an .mlir file:
  /// what fails in it later is not the user's fault.
  bool fromModel = true;
  bool scheduled = false;
  std::string tokenizer; ///< tokenizer.json, empty if none
  /// How each layer is made sparse; none in a dense bundle.
  std::optional<Profile> profile;
};

/// "125.2 M", "1.3 G".
std::string countText(int64_t count);

} // namespace foresight
#endif
