//===- ImportHuggingFace.cpp - Model folders to @step ---------------------===//

#include "foresight/Import/HuggingFace/ImportHuggingFace.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/support/Safetensors.h"

#include <filesystem>
#include <set>

using namespace mlir;
using namespace foresight;
namespace fs = std::filesystem;

namespace {

/// The tensors of a checkpoint under canonical names, and which of them were
/// asked for.
class Checkpoint {
public:
  static Result<Checkpoint> open(const std::string &folder, bool anyLinks);

  /// The tensor of a canonical name, or null.
  const TensorInfo *find(const std::string &name) const;
  /// Its name in the file.
  std::string nameInFile(const std::string &name) const;

  Status adjust(OptConfig &config) const;
  ElementType matrixType() const;
  Result<std::optional<WeightSource>> take(MLIRContext &context,
                                           const std::string &name,
                                           ArrayRef<int64_t> shape,
                                           const OptConfig &config);
  void warnOfOtherHead(MLIRContext &context, const TensorInfo &head) const;
  /// Fails if the folder has parameters that the model would ignore.
  Status checkAllTaken() const;

private:
  std::string folder;
  Safetensors file;
  /// "model.decoder.", "decoder.", "" or what else a tool put in front.
  std::string prefix;
  std::string head = "lm_head.weight";
  std::set<std::string> taken;
};

} // namespace

/// Why a folder has no safetensors, with the way out.
static Error noWeights(const std::string &folder, const Error &why) {
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string extension = it->path().extension().string();
    if (extension == ".bin" || extension == ".pt" || extension == ".pth")
      return makeError(
          ErrorCode::Unsupported, it->path().string(),
          ": pickled weights are not read: loading them runs code that is in "
          "the file\n  note: convert the folder with: python -c \"from "
          "transformers import AutoModelForCausalLM as M; "
          "M.from_pretrained('",
          folder, "', dtype='auto').save_pretrained('", folder,
          "', safe_serialization=True)\"");
  }
  return why;
}

Result<Checkpoint> Checkpoint::open(const std::string &folder, bool anyLinks) {
  Checkpoint result;
  result.folder = folder;
  auto file = Safetensors::openFolder(folder, anyLinks);
  if (!file)
    return noWeights(folder, file.error());
  result.file = std::move(*file);
  // Positions are the one table that every OPT has and that is stored once.
  const std::string positions = "embed_positions.weight";
  std::vector<std::string> prefixes;
  std::string found;
  int listed = 0;
  for (const auto &[name, tensor] : result.file.tensors()) {
    if (listed++ < 3)
      found += (found.empty() ? "'" : ", '") + name + "'";
    const bool whole = name == positions || name.ends_with("." + positions);
    if (whole)
      prefixes.push_back(name.substr(0, name.size() - positions.size()));
    if (name == "lm_head.weight" || name.ends_with(".lm_head.weight"))
      result.head = name;
  }
  if (prefixes.empty())
    return makeError(
        ErrorCode::BadInput, result.file.name(),
        ": has no tensor 'model.decoder.embed_positions.weight' (nor one of "
        "another prefix): not an OPT checkpoint",
        found.empty() ? "" : "; it starts with ", found);
  if (prefixes.size() > 1)
    return makeError(ErrorCode::BadInput, result.file.name(), ": holds ",
                     prefixes.size(), " models, under '", prefixes[0],
                     "' and '", prefixes[1], "'; save one of them alone");
  result.prefix = prefixes.front();
  return result;
}

std::string Checkpoint::nameInFile(const std::string &name) const {
  // The head is not part of the decoder.
  if (name == "lm_head.weight")
    return head;
  return prefix + name;
}

const TensorInfo *Checkpoint::find(const std::string &name) const {
  return file.find(nameInFile(name));
}

/// Lets the tensors have the last word on what a config may leave out: the
/// width of each MLP (pruned models differ from layer to layer).
Status Checkpoint::adjust(OptConfig &config) const {
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".fc1.weight";
    if (const TensorInfo *fc1 = find(name); fc1 && fc1->shape.size() == 2)
      config.ffnDim[layer] = fc1->shape[0];
  }
  const std::string beyond = "layers." + std::to_string(config.layers) + ".";
  for (const auto &[name, tensor] : file.tensors())
    if (name.compare(0, prefix.size() + beyond.size(), prefix + beyond) == 0)
      return makeError(ErrorCode::BadInput, tensor.file->path(), ": tensor '",
                       name, "' belongs to layer ", config.layers, " but ",
                       folder, "/config.json says num_hidden_layers ",
                       config.layers);
  return {};
}

/// What the matrices are stored as; f32 if they are not alike.
ElementType Checkpoint::matrixType() const {
  std::optional<ElementType> common;
  for (const auto &[name, tensor] : file.tensors()) {
    if (tensor.shape.size() != 2 || !isFloat(tensor.type))
      continue;
    if (common && *common != tensor.type)
      return ElementType::F32;
    common = tensor.type;
  }
  return common && *common != ElementType::F64 ? *common : ElementType::F32;
}

Result<std::optional<WeightSource>> Checkpoint::take(MLIRContext &context,
                                                     const std::string &name,
                                                     ArrayRef<int64_t> shape,
                                                     const OptConfig &config) {
  std::string stored = nameInFile(name);
  const TensorInfo *tensor = file.find(stored);
  // Of two tied tensors some tools save only the head.
  if (config.tiedHead && name == "embed_tokens.weight" && !tensor) {
    tensor = file.find(head);
    stored = tensor ? head : stored;
  }
  if (name == "lm_head.weight" && config.tiedHead && tensor &&
      taken.count(stored))
    return std::optional<WeightSource>();
  if (!tensor) {
    if (name == "lm_head.weight" && config.tiedHead)
      return std::optional<WeightSource>();
    if (const std::string *shard = file.findUnlisted(stored))
      return makeError(
          ErrorCode::BadInput, file.name(), ": tensor '", stored,
          "' is missing, though ", *shard,
          " has it: \"weight_map\" does not list it; add it there, "
          "or save the model again with save_pretrained");
    return makeError(
        ErrorCode::BadInput, file.name(), ": tensor '", stored,
        "' is missing; expected ",
        shapeText(std::vector<int64_t>(shape.begin(), shape.end())),
        " by config.json",
        name == "lm_head.weight" ? " (tie_word_embeddings is false)"
        : name.starts_with("final_layer_norm.")
            ? "; if the model was trained without it, say "
              "\"_remove_final_layer_norm\": true there"
            : "");
  }
  if (!isFloat(tensor->type))
    return makeError(ErrorCode::Unsupported, tensor->file->path(), ": tensor '",
                     stored, "' has elements of type ",
                     elementName(tensor->type),
                     "; weights must be f32, f16 or bf16");
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(),
                  tensor->shape.end()))
    return makeError(
        ErrorCode::BadInput, tensor->file->path(), ": tensor '", stored,
        "' has shape ", shapeText(tensor->shape), " but config.json asks for ",
        shapeText(std::vector<int64_t>(shape.begin(), shape.end())));
  taken.insert(stored);
  if (name == "lm_head.weight" && config.tiedHead)
    warnOfOtherHead(context, *tensor);
  WeightSource source;
  source.name = stored;
  source.source = externalSource(context, *tensor);
  return std::optional<WeightSource>(std::move(source));
}

/// A checkpoint with a head where config.json ties it to the embedding: the
/// two can differ, and then versions of transformers do.
void Checkpoint::warnOfOtherHead(MLIRContext &context,
                                 const TensorInfo &head) const {
  const TensorInfo *embedding = find("embed_tokens.weight");
  if (!embedding ||
      (embedding->type == head.type && embedding->bytes == head.bytes &&
       std::equal(head.data(), head.data() + head.bytes, embedding->data())))
    return;
  emitWarning(FileLineColLoc::get(&context, folder, 0, 0))
      << folder << "/config.json: tie_word_embeddings is true but tensor '"
      << this->head << "' differs from '" << nameInFile("embed_tokens.weight")
      << "'; the head is compiled as it is stored, as transformers 5 loads "
         "it, while older versions tie the two; say false there to confirm "
         "it, or remove the tensor to tie them";
}

Status Checkpoint::checkAllTaken() const {
  for (const auto &[name, tensor] : file.tensors()) {
    // Old checkpoints keep a version number among the weights.
    const bool parameter =
        tensor.shape.size() <= 2 && isFloat(tensor.type) &&
        (name.ends_with(".weight") || name.ends_with(".bias"));
    if (!parameter || taken.count(name))
      continue;
    return makeError(
        ErrorCode::BadInput, tensor.file->path(), ": tensor '", name,
        "' has no place in the model that ", folder,
        "/config.json describes; check do_layer_norm_before, "
        "_remove_final_layer_norm, enable_bias, word_embed_proj_dim and "
        "num_hidden_layers there");
  }
  return {};
}

Result<OwningOpRef<ModuleOp>>
foresight::importHuggingFace(MLIRContext &context, const std::string &folder,
                             const ImportOptions &options) {
  context.loadDialect<ForesightDialect>();
  const std::string configPath = (fs::path(folder) / "config.json").string();
  std::error_code failure;
  if (!fs::exists(configPath, failure))
    return makeError(ErrorCode::BadInput, folder,
                     ": has no config.json; expected a Hugging Face folder of "
                     "config.json and *.safetensors");
  FORESIGHT_TRY(Json json, readJsonFile(configPath));
  FORESIGHT_TRY(OptConfig config, OptConfig::parse(json, configPath));
  FORESIGHT_TRY(config.tokens, readTokenIds(folder));
  FORESIGHT_TRY(Checkpoint checkpoint,
                Checkpoint::open(folder, options.allowLinks));
  FORESIGHT_CHECK(checkpoint.adjust(config));

  ImportOptions chosen = options;
  if (!chosen.dtype)
    chosen.dtype = checkpoint.matrixType();
  ModelFacts facts;
  facts.source = folder;
  // "opt/" and "opt" are the same model.
  fs::path path = fs::path(folder).lexically_normal();
  facts.name =
      (path.has_filename() ? path.filename() : path.parent_path().filename())
          .string();
  auto provider = [&](const std::string &name, ArrayRef<int64_t> shape) {
    return checkpoint.take(context, name, shape, config);
  };
  FORESIGHT_TRY(OwningOpRef<ModuleOp> module,
                buildOptStep(context, config, chosen, provider, facts));
  FORESIGHT_CHECK(checkpoint.checkAllTaken());
  return module;
}
