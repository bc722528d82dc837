//===- Import.cpp - What a model on disk is -------------------------------===//

#include "Companions.h"
#include "Compile.h"

#include "foresight/Import/HuggingFace/ImportHuggingFace.h"
#include "foresight/Import/Onnx/ImportOnnx.h"
#include "foresight/Import/Onnx/Onnx.h"
#include "foresight/Import/Shape/ImportShape.h"
#include "foresight/Raise/Raise.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <filesystem>

using namespace foresight;
using namespace mlir;
namespace fs = std::filesystem;

/// The ONNX file of a folder that holds no safetensors, as Optimum exports it.
static std::string onnxIn(const std::string &folder) {
  std::error_code error;
  std::string onnx;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors" &&
        entry.path().filename() != "expected.safetensors")
      return "";
    if (entry.path().filename() == "model.onnx")
      onnx = entry.path();
  }
  return onnx;
}

std::string foresight::countText(int64_t count) {
  char text[32];
  if (count < 1000000)
    snprintf(text, sizeof text, "%.1f K", count / 1e3);
  else if (count < 1000000000)
    snprintf(text, sizeof text, "%.1f M", count / 1e6);
  else
    snprintf(text, sizeof text, "%.2f G", count / 1e9);
  return text;
}

Compilation::InputKind Compilation::kindOfInput() const {
  std::error_code error;
  if (!options.shape.empty())
    return InputKind::Shape;
  if (!fs::exists(options.input, error))
    return InputKind::Missing;
  if (fs::is_directory(options.input, error))
    return onnxIn(options.input).empty() ? InputKind::Folder : InputKind::Onnx;
  return fs::path(options.input).extension() == ".mlir" ? InputKind::Mlir
                                                        : InputKind::Onnx;
}

Status Compilation::import() {
  std::error_code error;
  const std::string &input = options.input;
  ImportOptions importOptions;
  importOptions.allowLinks = options.allowLinks;
  if (options.tieHead && kindOfInput() == InputKind::Folder)
    return makeError(ErrorCode::Usage, "--tie-head is for an ONNX file; in ",
                     input, " config.json decides (tie_word_embeddings)");
  switch (kindOfInput()) {
  case InputKind::Missing:
    return makeError(ErrorCode::BadInput, input,
                     ": there is no such file or folder");
  case InputKind::Shape: {
    progress.phase("import", options.shape + ", synthetic weights: speed only");
    ShapeOptions shape;
    shape.shape = options.shape;
    shape.seed = options.seed;
    // Whom a made-up predictor selects does not depend on fc1: to select a
    // share that is also active, nearly all neurons are.
    constexpr double kNearlyAll = 0.98;
    shape.density = options.predictorRank ? kNearlyAll : options.density;
    shape.import = importOptions;
    FORESIGHT_TRY(module, importShape(context, shape));
    break;
  }
  case InputKind::Folder: {
    progress.phase("import", input);
    FORESIGHT_TRY(module, importHuggingFace(context, input, importOptions));
    break;
  }
  case InputKind::Mlir:
    progress.phase("import", input);
    FORESIGHT_CHECK(importMlir());
    break;
  case InputKind::Onnx: {
    std::string onnx = fs::is_directory(input, error) ? onnxIn(input) : input;
    progress.phase("import", onnx);
    FORESIGHT_CHECK(importOnnxFile(onnx));
    break;
  }
  }
  if (options.emit == Emit::Onnx && module->getOps<onnx::GraphOp>().empty())
    return makeError(ErrorCode::Usage,
                     "--emit=onnx shows the graph of an ONNX "
                     "file, which ",
                     options.inputName(), " is not");
  return {};
}

/// Ids that the model has no rows for. `tokenizerIds` is 0 without a tokenizer.
void Compilation::warnOfTokens(const ModelFacts &facts, int64_t tokenizerIds) {
  const std::string vocabulary =
      " but the model's vocabulary has " + std::to_string(facts.vocabSize);
  for (int64_t id : facts.eosTokenIds)
    if (id >= facts.vocabSize)
      progress.warn(options.inputName() + ": eos_token_id is " +
                    std::to_string(id) + vocabulary +
                    " tokens: no text will end with it");
  if (tokenizerIds > facts.vocabSize)
    progress.warn(options.inputName() + ": the tokenizer has ids up to " +
                  std::to_string(tokenizerIds - 1) + vocabulary +
                  "; is it of another model?");
}

Status Compilation::importTokenizer() {
  if (!options.shape.empty())
    return {};
  FORESIGHT_TRY(ModelFacts facts, getModelFacts(*module));
  FORESIGHT_TRY(Companion found, readTokenizer(folderOf(options.input)));
  tokenizer = std::move(found.json);
  if (!found.unusable.empty())
    progress.warn(found.unusable +
                  "; the bundle takes and gives token ids only");
  warnOfTokens(facts, found.ids);
  if (tokenizer.empty() && found.unusable.empty())
    progress.note("no tokenizer.json beside the model: the bundle takes and "
                  "gives token ids only");
  return {};
}

Status Compilation::importMlir() {
  fromModel = false;
  ParserConfig config(&context);
  module = parseSourceFile<ModuleOp>(options.input, config);
  if (!module)
    return diagnostics.take(ErrorCode::BadInput,
                            options.input + ": cannot be parsed");
  if (!module->getOps<onnx::GraphOp>().empty())
    return raiseGraph();
  return {};
}

Status Compilation::importOnnxFile(const std::string &path) {
  OnnxImportOptions onnxOptions;
  onnxOptions.allowLinks = options.allowLinks;
  FailureOr<OwningOpRef<ModuleOp>> imported =
      importOnnx(context, path, onnxOptions);
  if (failed(imported))
    return diagnostics.take(ErrorCode::BadInput, path + ": cannot be imported");
  module = std::move(*imported);
  if (options.check)
    checkGraph(path);
  FORESIGHT_CHECK(raiseGraph());
  if (options.emit == Emit::Onnx)
    return {};
  // A graph does not say which ids start and end a text; files beside it do.
  FORESIGHT_TRY(ModelFacts facts, getModelFacts(*module));
  FORESIGHT_TRY(TokenIds ids, readTokenIds(folderOf(path)));
  facts.bosTokenId = ids.bos;
  facts.eosTokenIds = ids.eos;
  facts.padTokenId = ids.pad;
  std::error_code error;
  facts.name = fs::absolute(folderOf(path), error).filename();
  if (facts.name.empty())
    facts.name = fs::path(path).stem();
  facts.source = fs::path(path).filename();
  setModelFacts(*module, facts);
  return {};
}

Status Compilation::raiseGraph() {
  FORESIGHT_CHECK(dumpModule("onnx"));
  if (options.emit == Emit::Onnx)
    return {};
  progress.phase("raise", "the graph to a decoding step");
  RaiseOptions raiseOptions;
  raiseOptions.explain = options.explain;
  raiseOptions.tieHead = options.tieHead;
  if (failed(raise(*module, raiseOptions)))
    return diagnostics.take(ErrorCode::Unsupported,
                            options.input + ": is not an OPT model");
  return {};
}

Status Compilation::describeModel() {
  FORESIGHT_TRY(ModelFacts facts, getModelFacts(*module));
  int64_t least = facts.ffnDim.empty() ? 0 : llvm::min_element(facts.ffnDim)[0];
  int64_t most = facts.ffnDim.empty() ? 0 : llvm::max_element(facts.ffnDim)[0];
  std::string ffn = std::to_string(least);
  if (most != least)
    ffn += ".." + std::to_string(most);
  progress.note(facts.name + ": " + std::to_string(facts.layers) +
                " layers, hidden size " + std::to_string(facts.hiddenSize) +
                ", " + std::to_string(facts.heads) + " heads, MLP " + ffn +
                ", vocabulary " + std::to_string(facts.vocabSize) + ", " +
                countText(facts.parameters) + " parameters");
  return {};
}
