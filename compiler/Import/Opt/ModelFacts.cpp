//===- ModelFacts.cpp - The `foresight.model` attribute -------------------===//

#include "foresight/Import/Opt/ModelFacts.h"

#include "foresight/support/Json.h"

#include "mlir/IR/Builders.h"

#include <filesystem>

using namespace mlir;
using namespace foresight;

void foresight::setModelFacts(ModuleOp module, const ModelFacts &facts) {
  Builder b(module.getContext());
  NamedAttrList list;
  auto text = [&](StringRef key, const std::string &value) {
    list.set(key, b.getStringAttr(value));
  };
  auto number = [&](StringRef key, int64_t value) {
    list.set(key, b.getI64IntegerAttr(value));
  };
  text("family", facts.family);
  text("name", facts.name);
  text("source", facts.source);
  number("vocab_size", facts.vocabSize);
  number("hidden_size", facts.hiddenSize);
  number("layers", facts.layers);
  number("heads", facts.heads);
  number("head_dim", facts.headDim);
  list.set("ffn_dim", b.getDenseI64ArrayAttr(facts.ffnDim));
  number("max_seq", facts.maxSeq);
  text("dtype", facts.dtype);
  text("sparsity", facts.sparsity);
  list.set("synthetic", b.getBoolAttr(facts.synthetic));
  number("bos_token_id", facts.bosTokenId);
  list.set("eos_token_ids", b.getDenseI64ArrayAttr(facts.eosTokenIds));
  number("pad_token_id", facts.padTokenId);
  number("parameters", facts.parameters);
  module->setAttr(kModelAttr, list.getDictionary(module.getContext()));
}

namespace {

/// Reads members of the dictionary; remembers the first that is not as it
/// should be.
struct FactReader {
  DictionaryAttr facts;
  std::string wrong;

  template <typename AttrT> AttrT get(StringRef key) {
    auto attr = facts.getAs<AttrT>(key);
    if (!attr && wrong.empty())
      wrong = key.str();
    return attr;
  }
  void read(StringRef key, std::string &out) {
    if (auto attr = get<StringAttr>(key))
      out = attr.str();
  }
  void read(StringRef key, int64_t &out) {
    if (auto attr = get<IntegerAttr>(key))
      out = attr.getInt();
  }
  void read(StringRef key, bool &out) {
    if (auto attr = get<BoolAttr>(key))
      out = attr.getValue();
  }
  void read(StringRef key, std::vector<int64_t> &out) {
    if (auto attr = get<DenseI64ArrayAttr>(key))
      out.assign(attr.asArrayRef().begin(), attr.asArrayRef().end());
  }
};

} // namespace

Result<ModelFacts> foresight::getModelFacts(ModuleOp module) {
  auto dictionary = module->getAttrOfType<DictionaryAttr>(kModelAttr);
  if (!dictionary)
    return makeError(ErrorCode::BadInput, "the module has no `", kModelAttr,
                     "` attribute, which front ends give it");
  FactReader reader{dictionary, {}};
  ModelFacts facts;
  reader.read("family", facts.family);
  reader.read("name", facts.name);
  reader.read("source", facts.source);
  reader.read("vocab_size", facts.vocabSize);
  reader.read("hidden_size", facts.hiddenSize);
  reader.read("layers", facts.layers);
  reader.read("heads", facts.heads);
  reader.read("head_dim", facts.headDim);
  reader.read("ffn_dim", facts.ffnDim);
  reader.read("max_seq", facts.maxSeq);
  reader.read("dtype", facts.dtype);
  reader.read("sparsity", facts.sparsity);
  reader.read("synthetic", facts.synthetic);
  reader.read("bos_token_id", facts.bosTokenId);
  reader.read("eos_token_ids", facts.eosTokenIds);
  reader.read("pad_token_id", facts.padTokenId);
  reader.read("parameters", facts.parameters);
  if (!reader.wrong.empty())
    return makeError(ErrorCode::BadInput, "`", kModelAttr, "`: '", reader.wrong,
                     "' is missing or has another type");
  return facts;
}

/// Generation files give `eos_token_id` as a number or as several.
static Status overlayTokenIds(const Json &json, const std::string &source,
                              TokenIds &ids) {
  const JsonObject object{json, source};
  FORESIGHT_TRY(ids.bos, readOr<int64_t>(object, "bos_token_id", ids.bos));
  FORESIGHT_TRY(ids.pad, readOr<int64_t>(object, "pad_token_id", ids.pad));
  if (auto found = json.find("eos_token_id");
      found != json.end() && found->is_array()) {
    FORESIGHT_TRY(ids.eos, read<std::vector<int64_t>>(object, "eos_token_id"));
  } else if (found != json.end() && found->is_null()) {
    ids.eos.clear(); // said to have no end, which is not leaving it out
  } else if (found != json.end()) {
    FORESIGHT_TRY(int64_t eos, read<int64_t>(object, "eos_token_id"));
    ids.eos = {eos};
  }
  return {};
}

Result<TokenIds> foresight::readTokenIds(const std::string &folder) {
  TokenIds ids;
  for (const char *name : {"config.json", "generation_config.json"}) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    std::error_code failure;
    if (!std::filesystem::exists(path, failure))
      continue;
    FORESIGHT_TRY(Json json, readJsonFile(path));
    FORESIGHT_CHECK(overlayTokenIds(json, path, ids));
  }
  return ids;
}
