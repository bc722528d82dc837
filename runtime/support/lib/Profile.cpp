//===- Profile.cpp - How sparse each layer is made ------------------------===//

#include "foresight/support/Profile.h"

#include "foresight/support/ElementType.h"
#include "foresight/support/Json.h"
#include "foresight/support/MappedFile.h"

#include <array>

using namespace foresight;

static constexpr int64_t kFormat = 1;
static constexpr int64_t kMinBits = 2, kMaxBits = 8;
/// Beyond this a margin reads more than the proof does at any size in use.
static constexpr double kMaxMargin = 1000;

static constexpr std::array<std::pair<LayerProfile::Rule, std::string_view>, 5>
    kRules = {{{LayerProfile::Rule::Proof, "proof"},
               {LayerProfile::Rule::Margin, "margin"},
               {LayerProfile::Rule::LowRank, "low_rank"},
               {LayerProfile::Rule::Skip, "skip"},
               {LayerProfile::Rule::Dense, "dense"}}};
static constexpr std::array<
    std::pair<LayerProfile::Lookahead, std::string_view>, 4>
    kLookaheads = {{{LayerProfile::Lookahead::Here, "here"},
                    {LayerProfile::Lookahead::HalfBlock, "half_block"},
                    {LayerProfile::Lookahead::Block, "block"},
                    {LayerProfile::Lookahead::TwoBlocks, "two_blocks"}}};

template <typename Table, typename Value>
static std::string_view nameIn(const Table &table, Value value) {
  for (const auto &[candidate, name] : table)
    if (candidate == value)
      return name;
  return "";
}

/// The value whose name is `text`, or an error that lists the names.
template <typename Table>
static Result<typename Table::value_type::first_type>
parseName(const Table &table, const JsonObject &entry, std::string_view key,
          const std::string &text) {
  std::string known;
  for (const auto &[value, name] : table) {
    if (text == name)
      return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return makeError(entry.code, entry.where, ": \"", key, "\" is '", text,
                   "'; it must be one of ", known);
}

std::string_view foresight::ruleName(LayerProfile::Rule rule) {
  return nameIn(kRules, rule);
}

std::string_view foresight::lookaheadName(LayerProfile::Lookahead lookahead) {
  return nameIn(kLookaheads, lookahead);
}

static Result<LayerProfile> parseLayer(const JsonObject &entry) {
  LayerProfile layer;
  FORESIGHT_TRY(std::string rule, read<std::string>(entry, "rule"));
  FORESIGHT_TRY(layer.rule, parseName(kRules, entry, "rule", rule));
  FORESIGHT_TRY(std::string lookahead,
                readOr<std::string>(entry, "lookahead", "here"));
  FORESIGHT_TRY(layer.lookahead,
                parseName(kLookaheads, entry, "lookahead", lookahead));
  if (layer.usesCopy()) {
    FORESIGHT_TRY(layer.bits, read<int64_t>(entry, "bits"));
    if (layer.bits < kMinBits || layer.bits > kMaxBits)
      return makeError(entry.code, entry.where, ": \"bits\" is ", layer.bits,
                       "; it must be from ", kMinBits, " to ", kMaxBits);
  }
  if (layer.rule == LayerProfile::Rule::Margin) {
    FORESIGHT_TRY(layer.margin, read<double>(entry, "margin"));
    if (!(layer.margin >= 0 && layer.margin <= kMaxMargin))
      return makeError(entry.code, entry.where, ": \"margin\" is ",
                       layer.margin, "; it must be from 0 to ", kMaxMargin);
  }
  if (layer.rule == LayerProfile::Rule::Proof &&
      layer.lookahead != LayerProfile::Lookahead::Here)
    return makeError(entry.code, entry.where,
                     ": rule 'proof' needs \"lookahead\": \"here\"; what is "
                     "predicted from an earlier input is not proven");
  return layer;
}

Result<Profile> Profile::parse(std::string_view text,
                               const std::string &source) {
  FORESIGHT_TRY(Json json, parseJson(text, source));
  const JsonObject root{json, source};
  FORESIGHT_TRY(int64_t format, read<int64_t>(root, "format"));
  if (format != kFormat)
    return makeError(ErrorCode::BadInput, source, ": is a profile of format ",
                     format, "; this version reads format ", kFormat);

  Profile profile;
  FORESIGHT_TRY(const Json *model, readObject(root, "model"));
  const JsonObject facts{*model, source + ": model"};
  FORESIGHT_TRY(profile.hiddenSize, read<int64_t>(facts, "hidden_size"));
  FORESIGHT_TRY(profile.ffnDim, read<std::vector<int64_t>>(facts, "ffn_dim"));
  FORESIGHT_TRY(int64_t layerCount, read<int64_t>(facts, "layers"));
  // One width stands for all layers.
  if (profile.ffnDim.size() == 1 && layerCount > 1 && layerCount < 100'000)
    profile.ffnDim.assign(static_cast<size_t>(layerCount), profile.ffnDim[0]);
  if (profile.hiddenSize <= 0 ||
      static_cast<int64_t>(profile.ffnDim.size()) != layerCount)
    return makeError(ErrorCode::BadInput, facts.where, ": \"ffn_dim\" has ",
                     profile.ffnDim.size(), " entries for ", layerCount,
                     " layers of size ", profile.hiddenSize);

  FORESIGHT_TRY(const Json *layers, readArray(root, "layers"));
  for (size_t i = 0; i < layers->size(); ++i) {
    const JsonObject entry{(*layers)[i],
                           source + ": layers[" + std::to_string(i) + "]"};
    FORESIGHT_TRY(int64_t number, read<int64_t>(entry, "layer"));
    if (number < 0 || number >= layerCount)
      return makeError(ErrorCode::BadInput, entry.where, ": names layer ",
                       number, " of ", layerCount);
    FORESIGHT_TRY(LayerProfile layer, parseLayer(entry));
    if (!profile.layers.emplace(number, layer).second)
      return makeError(ErrorCode::BadInput, entry.where, ": layer ", number,
                       " is listed twice");
  }

  if (auto found = json.find("calibration"); found != json.end()) {
    const JsonObject entry{*found, source + ": calibration"};
    Calibration made;
    FORESIGHT_TRY(made.text, readOr<std::string>(entry, "text", ""));
    FORESIGHT_TRY(made.tokens, readOr<int64_t>(entry, "tokens", 0));
    FORESIGHT_TRY(made.budget, readOr<double>(entry, "budget", 0));
    FORESIGHT_TRY(made.densePerplexity,
                  readOr<double>(entry, "dense_perplexity", 0));
    FORESIGHT_TRY(made.perplexity, readOr<double>(entry, "perplexity", 0));
    profile.calibration = made;
  }
  return profile;
}

Result<Profile> Profile::readFile(const std::string &path) {
  FORESIGHT_TRY(MappedFile file, MappedFile::open(path));
  return parse({reinterpret_cast<const char *>(file.data()),
                static_cast<size_t>(file.size())},
               path);
}

std::string Profile::toJson() const {
  OrderedJson json;
  json["format"] = kFormat;
  json["model"] = {{"hidden_size", hiddenSize},
                   {"ffn_dim", ffnDim},
                   {"layers", ffnDim.size()}};
  OrderedJson list = OrderedJson::array();
  for (const auto &[number, layer] : layers) {
    OrderedJson entry;
    entry["layer"] = number;
    entry["rule"] = ruleName(layer.rule);
    if (layer.usesCopy())
      entry["bits"] = layer.bits;
    if (layer.rule == LayerProfile::Rule::Margin)
      entry["margin"] = layer.margin;
    entry["lookahead"] = lookaheadName(layer.lookahead);
    list.push_back(std::move(entry));
  }
  json["layers"] = std::move(list);
  if (calibration)
    json["calibration"] = {{"text", calibration->text},
                           {"tokens", calibration->tokens},
                           {"budget", calibration->budget},
                           {"dense_perplexity", calibration->densePerplexity},
                           {"perplexity", calibration->perplexity}};
  return dumpJson(json, 2) + "\n";
}

Status Profile::checkModel(const std::string &source, int64_t hidden,
                           const std::vector<int64_t> &ffn) const {
  if (hidden != hiddenSize || ffn.size() != ffnDim.size())
    return makeError(ErrorCode::BadInput, source, ": was made for ",
                     ffnDim.size(), " layers of size ", hiddenSize,
                     " but the model has ", ffn.size(), " of size ", hidden);
  for (size_t i = 0; i < ffn.size(); ++i)
    if (ffn[i] != ffnDim[i])
      return makeError(ErrorCode::BadInput, source, ": was made for ",
                       ffnDim[i], " neurons in layer ", i,
                       " but the model has ", ffn[i]);
  return {};
}
