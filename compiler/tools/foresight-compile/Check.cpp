//===- Check.cpp - What a model is, without compiling it ------------------===//
//
// `--check` imports and raises, prints what it found on standard output, and
// fails with the error that compiling would give.
//
//===----------------------------------------------------------------------===//

#include "Companions.h"
#include "Compile.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/Onnx/Evaluator.h"
#include "foresight/Import/Onnx/Onnx.h"
#include "foresight/Import/Opt/ModelFacts.h"
#include "foresight/support/Json.h"
#include "foresight/support/Safetensors.h"
#include "foresight/text/Tokenizer.h"

#include "llvm/ADT/MapVector.h"

#include <cstdio>
#include <filesystem>

using namespace foresight;
using namespace mlir;
namespace fs = std::filesystem;

/// One line of the report; a long text goes on under itself.
static void tell(const char *label, const std::string &text) {
  static constexpr size_t kLabel = 12, kWidth = 100;
  size_t column = kLabel;
  std::string line = std::string(label);
  line.resize(kLabel, ' ');
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(' ', at), text.size());
    if (column > kLabel && column + 1 + (end - at) > kWidth) {
      line += "\n" + std::string(kLabel, ' ');
      column = kLabel;
    }
    line += (column > kLabel ? " " : "") + text.substr(at, end - at);
    column += (column > kLabel) + (end - at);
    at = end + 1;
  }
  std::printf("%s\n", line.c_str());
}

static std::string plural(int64_t count, const std::string &word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

static std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped) {
    stream << type;
    return text;
  }
  stream << shaped.getElementType();
  if (!shaped.hasRank())
    return text;
  stream << " [";
  llvm::interleaveComma(shaped.getShape(), stream, [&](int64_t size) {
    if (ShapedType::isDynamic(size))
      stream << "?";
    else
      stream << size;
  });
  stream << "]";
  return text;
}

/// The first of a list and how many more there are: caches are many.
static std::string shortList(const std::vector<std::string> &names) {
  static constexpr size_t kShown = 5;
  std::string text;
  for (const std::string &name : llvm::ArrayRef(names).take_front(kShown))
    text += (text.empty() ? "" : ", ") + name;
  if (names.size() > kShown)
    text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

//===----------------------------------------------------------------------===//
// ONNX
//===----------------------------------------------------------------------===//

/// Node names by operator, of those that the compiler does not know.
static llvm::MapVector<StringRef, std::vector<std::string>>
unsupportedNodes(onnx::GraphOp graph) {
  llvm::MapVector<StringRef, std::vector<std::string>> found;
  graph.walk([&](onnx::NodeOp node) {
    if (!onnx::isSupported(node))
      found[node.getOpType()].push_back(onnx::nameOf(node.getLoc()).str());
  });
  return found;
}

void Compilation::checkGraph(const std::string &path) {
  onnx::GraphOp graph = *module->getOps<onnx::GraphOp>().begin();
  int64_t nodes = 0;
  std::map<std::string, std::pair<int64_t, uint64_t>> weights;
  graph.walk([&](Operation *op) {
    nodes += isa<onnx::NodeOp>(op);
    auto constant = dyn_cast<onnx::ConstantOp>(op);
    if (!constant)
      return;
    if (auto at = dyn_cast<ExternalAttr>(constant.getSource())) {
      auto &[count, bytes] = weights[at.getFile().str()];
      ++count;
      bytes += at.getBytes();
    }
  });
  tell("graph", "ONNX, opset " + std::to_string(graph.getOpset()) + ", " +
                    plural(nodes, "node"));
  auto producer = (*module)->getAttrOfType<StringAttr>("onnx.producer");
  tell("exporter", producer ? producer.str() : "the file does not say");
  for (const auto &[file, held] : weights)
    tell("weights", plural(held.first, "tensor") + ", " +
                        bytesText(held.second) + ", in " +
                        (file == path ? "the file itself" : file));

  std::vector<std::string> inputs, outputs;
  for (auto [name, value] :
       llvm::zip(graph.getInputs(), graph.getBody().getArguments()))
    inputs.push_back(cast<StringAttr>(name).str() + " " +
                     typeText(value.getType()));
  auto output = cast<onnx::OutputOp>(graph.getBody().front().back());
  for (Attribute name : output.getNames())
    outputs.push_back(cast<StringAttr>(name).str());
  tell("inputs", shortList(inputs));
  tell("outputs", shortList(outputs));
}

/// What no part of the compiler knows, once all that stands for other operators
/// has been taken apart. The error that follows has a line an operator.
static void tellUnknown(onnx::GraphOp graph) {
  for (const auto &[type, names] : unsupportedNodes(graph)) {
    std::string text = type.str() + " x " + std::to_string(names.size()) + ":";
    for (const std::string &name : names)
      text += " " + (name.empty() ? "(no name)" : name);
    tell("unknown", text);
  }
}

/// What to change in the command that exported the graph.
static void adviseOnExport(onnx::GraphOp graph) {
  bool quantised = false, optimised = false, head = false;
  graph.walk([&](onnx::NodeOp node) {
    StringRef type = node.getOpType();
    quantised |= type.contains_insensitive("quantize") ||
                 type.contains("Integer") || type.contains("QLinear") ||
                 type.contains("NBits");
    optimised |= static_cast<bool>(node.getDomain());
  });
  auto output = cast<onnx::OutputOp>(graph.getBody().front().back());
  for (Attribute name : output.getNames())
    head |= cast<StringAttr>(name).getValue().contains("logits");
  if (quantised)
    tell("change", "compile the model from before quantisation (leave "
                   "quantize_dynamic, quantize_static or `optimum-cli "
                   "onnxruntime quantize` out), or quantise weights only; "
                   "--dtype=f16 or bf16 is how "
                   "Foresight makes weights smaller");
  else if (optimised)
    tell("change", "export without optimisation: no --optimize with "
                   "optimum-cli, and the file from before onnxruntime's "
                   "optimiser or ORTOptimizer");
  if (!head)
    tell("change", "no output is called logits: export the model with its "
                   "head, OPTForCausalLM or --task "
                   "text-generation-with-past, not OPTModel or --task "
                   "feature-extraction; --tie-head takes the embedding in its "
                   "place");
  tell("export", "optimum-cli export onnx --model MODEL --task "
                 "text-generation-with-past --opset 18 FOLDER");
  tell("", "or, in Python: torch.onnx.export(model.eval(), (ids, mask), "
           "\"model.onnx\", input_names=[\"input_ids\", \"attention_mask\"], "
           "output_names=[\"logits\"], dynamo=True)");
  tell("", "or none: a Hugging Face folder of config.json and *.safetensors "
           "is compiled as it is");
}

//===----------------------------------------------------------------------===//
// Hugging Face folders
//===----------------------------------------------------------------------===//

static void checkFolder(const std::string &folder, bool anyLinks) {
  tell("folder", "Hugging Face, config.json and safetensors");
  const std::string path = folder + "/config.json";
  std::error_code ignored;
  // What is wrong with these files is said by the import.
  if (fs::exists(path, ignored))
    if (auto config = readJsonFile(path)) {
      const JsonObject object{*config, path};
      if (auto version =
              readOr<std::string>(object, "transformers_version", "");
          version && !version->empty())
        tell("exporter", "transformers " + *version);
      if (auto names =
              readOr<std::vector<std::string>>(object, "architectures", {});
          names && !names->empty())
        tell("config", names->front());
    }
  auto weights = Safetensors::openFolder(folder, anyLinks);
  if (!weights)
    return;
  uint64_t bytes = 0;
  for (const auto &[name, tensor] : weights->tensors())
    bytes += tensor.bytes;
  tell("weights", plural(weights->tensors().size(), "tensor") + ", " +
                      bytesText(bytes) + ", in " +
                      plural(weights->files().size(), "file"));
}

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

/// The name of the weight that `op` multiplies by.
static StringRef weightOf(LinearOp op) {
  auto weight = op.getWeight().getDefiningOp<GetWeightOp>();
  return weight ? weight.getWeight() : StringRef();
}

/// What `@step` is made of.
void Compilation::checkStep(const ModelFacts &facts) {
  int64_t attentions = 0, norms = 0, products = 0, biases = 0;
  std::string activation = "none";
  bool normFirst = false, projected = false, ownHead = false, affine = true;
  bool finalNorm = false;
  double scale = 0, epsilon = 0;
  module->walk([&](Operation *op) {
    if (auto attention = dyn_cast<AttentionOp>(op)) {
      ++attentions;
      scale = attention.getScale().convertToDouble();
    } else if (auto norm = dyn_cast<LayerNormOp>(op)) {
      ++norms;
      epsilon = norm.getEpsilon().convertToDouble();
      affine &= static_cast<bool>(norm.getGamma());
      finalNorm |= isa_and_nonnull<LastRowOp>(norm.getX().getDefiningOp());
    } else if (auto activate = dyn_cast<ActivationOp>(op)) {
      activation = stringifyActivation(activate.getActivation()).str();
    } else if (auto linear = dyn_cast<LinearOp>(op)) {
      ++products;
      biases += static_cast<bool>(linear.getBias());
      StringRef weight = weightOf(linear);
      if (weight == "layers.0.self_attn.q_proj.weight")
        normFirst = isa_and_nonnull<LayerNormOp>(linear.getX().getDefiningOp());
      projected |= weight == "project_in.weight";
      ownHead |= weight == "lm_head.weight";
    }
  });
  std::string ffn;
  for (auto [layer, width] : llvm::enumerate(facts.ffnDim))
    if (layer == 0 || width != facts.ffnDim[layer - 1])
      ffn += (ffn.empty() ? "" : ", ") + std::to_string(width) +
             (layer == 0 ? "" : " from layer " + std::to_string(layer));
  tell("model", facts.name + ": OPT, " + plural(facts.layers, "layer") +
                    ", hidden size " + std::to_string(facts.hiddenSize) + ", " +
                    plural(facts.heads, "head") + " of " +
                    std::to_string(facts.headDim) + ", MLP " + ffn +
                    ", vocabulary " + std::to_string(facts.vocabSize) + ", " +
                    std::to_string(facts.maxSeq) + " positions, " +
                    countText(facts.parameters) + " parameters in " +
                    facts.dtype);
  char numbers[96];
  snprintf(numbers, sizeof numbers, "scale %.6g, epsilon %.3g", scale, epsilon);
  tell("recognised",
       plural(attentions, "attention") + ", " + plural(norms, "LayerNorm") +
           (affine ? "" : " without weights") + ", " +
           plural(products, "product") + (biases ? "" : " without biases") +
           "; " + numbers + "; LayerNorm " + (normFirst ? "before" : "after") +
           " attention and MLP" +
           (normFirst && !finalNorm ? ", none before the head" : "") +
           (projected ? ", narrow embeddings with project_in and project_out"
                      : "") +
           "; head " + (ownHead ? "of its own" : "tied to the embedding") +
           "; activation " + activation);
  tell("sparsity", activation == "relu"
                       ? "exact and predicted: ReLU makes neurons zero"
                       : "none: only ReLU has neurons that are exactly zero, "
                         "so the bundle will be dense");
  std::string ends;
  for (int64_t id : facts.eosTokenIds)
    ends += (ends.empty() ? "" : " or ") + std::to_string(id);
  tell("tokens", "text starts with " + std::to_string(facts.bosTokenId) +
                     ", ends with " + ends + ", padding is " +
                     std::to_string(facts.padTokenId));
}

static Result<Companion> checkTokenizer(const std::string &folder) {
  auto found = readTokenizer(folder);
  if (!found) {
    tell("tokenizer", "cannot be used: " + found.error().message);
    return std::move(found).error();
  }
  std::error_code ignored;
  bool whole = fs::exists(folder + "/tokenizer.json", ignored);
  if (!found->json.empty())
    tell("tokenizer",
         std::string(whole ? "tokenizer.json" : "vocab.json and merges.txt") +
             ", ids below " + std::to_string(found->ids));
  else
    tell("tokenizer",
         (found->unusable.empty()
              ? "none beside the model (tokenizer.json, or vocab.json and "
                "merges.txt)"
              : "not used: " + found->unusable) +
             ": the bundle takes and gives token ids only");
  return found;
}

Status Compilation::check() {
  tell("input", options.inputName());
  InputKind kind = kindOfInput();
  if (kind == InputKind::Folder)
    checkFolder(options.input, options.allowLinks);
  Status status = import();
  ModelFacts facts;
  if (status.ok()) {
    FORESIGHT_TRY(facts, getModelFacts(*module));
    checkStep(facts);
  }
  int64_t tokenizerIds = 0;
  if (kind == InputKind::Folder || kind == InputKind::Onnx) {
    auto tokenizer = checkTokenizer(folderOf(options.input));
    if (tokenizer)
      tokenizerIds = tokenizer->ids;
    else if (status.ok())
      status = std::move(tokenizer).error();
  }
  if (status.ok()) {
    tell("result", "can be compiled");
    std::fflush(stdout); // warnings come after the report
    warnOfTokens(facts, tokenizerIds);
    return {};
  }
  const bool isGraph = module && status.error().code == ErrorCode::Unsupported;
  if (isGraph)
    for (onnx::GraphOp graph : module->getOps<onnx::GraphOp>())
      tellUnknown(graph);
  tell("result", "cannot be compiled; the error says why");
  if (isGraph)
    for (onnx::GraphOp graph : module->getOps<onnx::GraphOp>())
      adviseOnExport(graph);
  std::fflush(stdout);
  return status;
}
