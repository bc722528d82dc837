//===- Manifest.cpp - Reading the manifest --------------------------------===//
#include "foresight/runtime/Manifest.h"

#include "ManifestReader.h"

namespace foresight {

int64_t elementBytes(Element element) {
  switch (element) {
  case Element::F32:
  case Element::I32:
    return 4;
  case Element::F16:
  case Element::BF16:
    return 2;
  case Element::LowBit:
    return 0;
  }
  return 0;
}

std::string_view elementName(Element element) {
  switch (element) {
  case Element::F32:
    return "f32";
  case Element::I32:
    return "i32";
  case Element::F16:
    return "f16";
  case Element::BF16:
    return "bf16";
  case Element::LowBit:
    return "low_bit";
  }
  return "";
}

std::string_view bufferKindName(BufferKind kind) {
  switch (kind) {
  case BufferKind::Input:
    return "input";
  case BufferKind::Output:
    return "output";
  case BufferKind::State:
    return "state";
  case BufferKind::Work:
    return "work";
  }
  return "";
}

int64_t Manifest::entryIndex(std::string_view name) const {
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].name == name)
      return static_cast<int64_t>(i);
  return -1;
}

int64_t Manifest::sequences() const {
  for (const BufferInfo &buffer : buffers)
    if (buffer.kv)
      return buffer.kv->sequences;
  return 1;
}

namespace {

/// Reads `key`, one of `names`, as the value of the enum at its place.
template <typename T>
void getChoice(MemberReader &reader, const char *key, T &to,
               std::initializer_list<std::pair<const char *, T>> choices) {
  std::string text;
  reader.get(key, text);
  if (!reader.ok())
    return;
  std::string known;
  for (const auto &[name, value] : choices) {
    if (text == name) {
      to = value;
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  reader.fail(std::string("'") + key + "' is '" + text +
              "' but must be one of " + known);
}

Status readModel(const Json &json, const std::string &where, ModelFacts &to) {
  MemberReader reader(json, where);
  reader.get("family", to.family)
      .get("name", to.name)
      .get("source", to.source)
      .get("vocab_size", to.vocabSize, 1, kLargestVocabulary)
      .get("hidden_size", to.hiddenSize, 1, INT32_MAX)
      .get("layers", to.layers, 1, 1 << 20)
      .get("heads", to.heads, 1, 1 << 20)
      .get("head_dim", to.headDim, 1, 1 << 20)
      .get("ffn_dim", to.ffnDim)
      .get("max_seq", to.maxSeq, 1, INT32_MAX)
      .get("dtype", to.dtype)
      .get("sparsity", to.sparsity)
      .get("synthetic", to.synthetic)
      .getOr("bos_token_id", to.bosTokenId)
      .getOr("eos_token_ids", to.eosTokenIds)
      .getOr("pad_token_id", to.padTokenId)
      .getOr("parameters", to.parameters);
  if (reader.ok() && static_cast<int64_t>(to.ffnDim.size()) != to.layers)
    reader.fail("'ffn_dim' has " + std::to_string(to.ffnDim.size()) +
                " values for " + std::to_string(to.layers) + " layers");
  return reader.finish();
}

Status readVariant(const Json &json, const std::string &where,
                   CodeVariant &to) {
  return MemberReader(json, where)
      .get("name", to.name)
      .get("features", to.features)
      .finish();
}

Status readBuffer(const Json &json, const std::string &where, BufferInfo &to) {
  MemberReader reader(json, where);
  reader.get("name", to.name);
  getChoice(reader, "kind", to.kind,
            {{"input", BufferKind::Input},
             {"output", BufferKind::Output},
             {"state", BufferKind::State},
             {"work", BufferKind::Work}});
  getChoice(reader, "element", to.element,
            {{"f32", Element::F32},
             {"f16", Element::F16},
             {"bf16", Element::BF16},
             {"i32", Element::I32}});
  reader.get("columns", to.columns, 1, kLargestSize)
      .get("row_bytes", to.rowBytes, 1, kLargestSize)
      .get("rows", to.rows, 1, INT32_MAX);
  if (to.kind == BufferKind::Work)
    reader.get("offset", to.offset, 0, kLargestSize);
  if (reader.has("kv"))
    if (const Json *kv = reader.objectAt("kv")) {
      to.kv.emplace();
      FORESIGHT_CHECK(MemberReader(*kv, where + ": kv")
                          .get("heads", to.kv->heads, 1, 1 << 20)
                          .get("head_dim", to.kv->headDim, 1, 1 << 20)
                          .get("capacity", to.kv->capacity, 1, INT32_MAX)
                          .getOr("sequences", to.kv->sequences, 1, 1 << 20)
                          .finish());
    }
  return reader.finish();
}

Status readWeight(const Json &json, const std::string &where, WeightInfo &to) {
  MemberReader reader(json, where);
  reader.get("name", to.name);
  getChoice(reader, "element", to.element,
            {{"f32", Element::F32},
             {"f16", Element::F16},
             {"bf16", Element::BF16},
             {"low_bit", Element::LowBit}});
  reader.get("shape", to.shape)
      .get("offset", to.offset, 0, kLargestSize)
      .get("bytes", to.bytes, 1, kLargestSize)
      .getOr("tensors", to.tensors);
  if (to.element == Element::LowBit)
    reader.get("bits", to.bits, 2, 8);
  if (reader.has("synthetic"))
    if (const Json *rule = reader.objectAt("synthetic")) {
      MemberReader inner(*rule, where + ": synthetic");
      int64_t seed = 0;
      double mean = 0, deviation = 0;
      inner.get("seed", seed, 0, INT64_MAX)
          .getFinite("mean", mean)
          .getFinite("deviation", deviation);
      FORESIGHT_CHECK(inner.finish());
      to.synthetic = {static_cast<uint64_t>(seed), static_cast<float>(mean),
                      static_cast<float>(deviation)};
    }
  if (reader.has("quantised"))
    if (const Json *rule = reader.objectAt("quantised")) {
      QuantisedInfo &from = to.quantised.emplace();
      FORESIGHT_CHECK(MemberReader(*rule, where + ": quantised")
                          .get("weight", from.weight, 0, INT32_MAX)
                          .get("bias", from.bias, 0, INT32_MAX)
                          .get("gamma", from.gamma, 0, INT32_MAX)
                          .get("beta", from.beta, 0, INT32_MAX)
                          .finish());
    }
  return reader.finish();
}

Status readLaunch(const Json &json, const std::string &where, LaunchInfo &to) {
  MemberReader reader(json, where);
  return reader.get("entry", to.entry)
      .get("blocks", to.blocks, 1, INT32_MAX)
      .get("tokens_per_block", to.tokensPerBlock, 0, 1 << 20)
      .get("blocks_per_sm", to.blocksPerSm, 0, 64)
      .get("threads", to.threads, 1, 1024)
      .get("shared_bytes", to.sharedBytes, 0, 1 << 20)
      .get("overlaps", to.overlaps)
      .finish();
}

Status readKernel(const Json &json, const std::string &where, KernelInfo &to) {
  MemberReader reader(json, where);
  reader.getOr("library", to.library);
  if (to.library.empty())
    reader.get("name", to.name).get("has_prepare", to.hasPrepare);
  else if (to.library != "gemm")
    reader.fail("needs the library '" + to.library +
                "', which this runtime does not have");
  reader.getOr("ops", to.ops)
      .getOr("scratch_bytes", to.scratchBytes, 0, int64_t(1) << 40);
  if (reader.has("launch"))
    if (const Json *launch = reader.objectAt("launch"))
      FORESIGHT_CHECK(
          readLaunch(*launch, where + ": launch", to.launch.emplace()));
  return reader.finish();
}

Status readGemm(const Json &json, const std::string &where, GemmInfo &to) {
  MemberReader reader(json, where);
  reader.get("n", to.n, 1, INT32_MAX).get("k", to.k, 1, INT32_MAX);
  getChoice(reader, "layout", to.inOut, {{"out_in", false}, {"in_out", true}});
  getChoice(reader, "activation", to.activation,
            {{"none", Activation::None},
             {"relu", Activation::Relu},
             {"gelu", Activation::Gelu},
             {"gelu_tanh", Activation::GeluTanh}});
  return reader.get("x", to.x)
      .get("weight", to.weight)
      .getOr("bias", to.bias)
      .getOr("residual", to.residual)
      .get("out", to.out)
      .finish();
}

Status readArg(const Json &json, const std::string &where, StageArg &to) {
  MemberReader reader(json, where);
  to.isWeight = reader.has("weight");
  if (to.isWeight == reader.has("buffer"))
    reader.fail("must name one buffer or one weight");
  return reader.get(to.isWeight ? "weight" : "buffer", to.index).finish();
}

/// Reads the members of array `key` with `readElement`.
template <typename T, typename ReadElement>
void readList(MemberReader &reader, const char *key, const std::string &what,
              std::vector<T> &to, Status &status, ReadElement readElement) {
  const Json *array = reader.arrayAt(key);
  if (!array || !status.ok())
    return;
  to.resize(array->size());
  for (size_t i = 0; i < array->size() && status.ok(); ++i)
    status = readElement((*array)[i],
                         reader.where() + ": " + what + " " + std::to_string(i),
                         to[i]);
}

Status readStage(const Json &json, const std::string &where, StageInfo &to) {
  MemberReader reader(json, where);
  reader.get("name", to.name)
      .get("role", to.role)
      .getOr("layer", to.layer, -1, INT32_MAX)
      .get("kernel", to.kernel)
      .get("units", to.units, 1, INT32_MAX)
      .getOr("per_token", to.perToken)
      .getOr("grain", to.grain, 1, INT32_MAX)
      .getOr("counts", to.counts)
      .getOr("weight_bytes", to.weightBytes, 0, kLargestSize)
      .getOr("count_bytes", to.countBytes, 0, kLargestSize)
      .get("after", to.after)
      .getOr("reads", to.reads)
      .getOr("writes", to.writes)
      .getOr("sources", to.sources);
  Status status;
  readList(reader, "args", "argument", to.args, status, readArg);
  FORESIGHT_CHECK(std::move(status));
  if (reader.has("gemm"))
    if (const Json *gemm = reader.objectAt("gemm")) {
      to.gemm.emplace();
      FORESIGHT_CHECK(readGemm(*gemm, where + ": gemm", *to.gemm));
    }
  return reader.finish();
}

Status readEntry(const Json &json, const std::string &where, EntryInfo &to) {
  MemberReader reader(json, where);
  reader.get("max_tokens", to.maxTokens, 1, kMostTokens);
  if (const Json *inputs = reader.objectAt("inputs"))
    FORESIGHT_CHECK(MemberReader(*inputs, where + ": inputs")
                        .get("ids", to.ids)
                        .get("positions", to.positions)
                        .getOr("sequences", to.sequences)
                        .finish());
  if (const Json *outputs = reader.objectAt("outputs"))
    FORESIGHT_CHECK(MemberReader(*outputs, where + ": outputs")
                        .get("logits", to.logits)
                        .finish());
  Status status;
  readList(reader, "stages", "stage", to.stages, status, readStage);
  FORESIGHT_CHECK(std::move(status));
  return reader.finish();
}

Status readSelection(const Json &json, const std::string &where,
                     SelectionInfo &to) {
  return MemberReader(json, where)
      .get("layer", to.layer)
      .get("stage", to.stage)
      .get("dense_stage", to.denseStage)
      .get("activations", to.activations)
      .get("input", to.input)
      .getFinite("epsilon", to.epsilon)
      .get("neurons", to.neurons, 1, INT32_MAX)
      .get("hidden", to.hidden, 1, INT32_MAX)
      .get("fc1", to.fc1)
      .getOr("bias1", to.bias1)
      .getOr("gamma", to.gamma)
      .getOr("beta", to.beta)
      .getOr("copy", to.copy)
      .getOr("bits", to.bits, 0, 8)
      .getOr("kappa", to.kappa)
      .get("rule", to.rule)
      .getOr("lookahead", to.lookahead)
      .getOr("selected", to.selected)
      .finish();
}

} // namespace

Result<Manifest> parseManifest(std::string_view text, const std::string &where,
                               uint64_t weightsBytes) {
  FORESIGHT_TRY(const Json json, parseJson(text, where, ErrorCode::BadBundle));
  Manifest manifest;
  MemberReader reader(json, where);
  reader.get("format", manifest.format);
  if (reader.ok() && manifest.format != 1)
    return makeError(ErrorCode::BadBundle, where, ": format ", manifest.format,
                     " is not known; this runtime reads format 1. Use the "
                     "foresight that belongs to the compiler that wrote it");
  reader.getOr("producer", manifest.producer);
  if (reader.has("build"))
    if (const Json *build = reader.objectAt("build"))
      FORESIGHT_CHECK(MemberReader(*build, where + ": build")
                          .getOr("version", manifest.version)
                          .getOr("llvm", manifest.llvm)
                          .getOr("commit", manifest.commit)
                          .finish());
  if (reader.has("options"))
    if (const Json *options = reader.objectAt("options"))
      for (const auto &[key, value] : options->items()) {
        if (!value.is_string())
          return makeError(ErrorCode::BadBundle, where, ": option '", key,
                           "' is not a string");
        manifest.options.emplace_back(key, value.get<std::string>());
      }
  if (const Json *model = reader.objectAt("model"))
    FORESIGHT_CHECK(readModel(*model, where + ": model", manifest.model));
  Status status;
  if (const Json *target = reader.objectAt("target")) {
    MemberReader targetReader(*target, where + ": target");
    targetReader.get("device", manifest.device);
    readList(targetReader, "variants", "variant", manifest.variants, status,
             readVariant);
    FORESIGHT_CHECK(std::move(status));
    FORESIGHT_CHECK(targetReader.finish());
  }
  reader.get("arena_bytes", manifest.arenaBytes, 0, kLargestSize);
  readList(reader, "buffers", "buffer", manifest.buffers, status, readBuffer);
  reader.getOr("generated_weight_bytes", manifest.generatedWeightBytes, 0,
               kLargestSize);
  readList(reader, "weights", "weight", manifest.weights, status, readWeight);
  readList(reader, "kernels", "kernel", manifest.kernels, status, readKernel);
  if (const Json *entries = reader.objectAt("entries"); entries && status.ok())
    for (const auto &[name, value] : entries->items()) {
      manifest.entries.emplace_back();
      manifest.entries.back().name = name;
      FORESIGHT_CHECK(readEntry(value, where + ": entry '" + name + "'",
                                manifest.entries.back()));
    }
  readList(reader, "selections", "selection", manifest.selections, status,
           readSelection);
  FORESIGHT_CHECK(std::move(status));
  FORESIGHT_CHECK(reader.finish());
  // A bundle without weights says how many bytes the device makes.
  if (weightsBytes == 0)
    weightsBytes = static_cast<uint64_t>(manifest.generatedWeightBytes);
  else if (manifest.generatedWeightBytes != 0)
    return makeError(ErrorCode::BadBundle, where,
                     ": holds weights and says that the device makes them");
  FORESIGHT_CHECK(checkManifest(manifest, where, weightsBytes));
  return manifest;
}

} // namespace foresight
