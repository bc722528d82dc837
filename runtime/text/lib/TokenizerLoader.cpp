//===- TokenizerLoader.cpp - Reading tokenizer.json -----------------------===//
#include "ByteAlphabet.h"
#include "TokenizerModel.h"
#include "foresight/support/Json.h"
#include "foresight/text/Tokenizer.h"
#include "foresight/text/Utf8.h"

namespace foresight::text {
namespace {

/// Tables are indexed by id: a wild id must not make them huge.
constexpr int64_t kIdLimit = 1 << 24;

class Loader {
public:
  Loader(const Json &root, const std::string &source, ErrorCode code)
      : root{root, source, code}, source(source), code(code),
        model(std::make_unique<TokenizerModel>()) {
    model->source = source;
  }

  Result<std::unique_ptr<TokenizerModel>> run() {
    if (!root.value.is_object())
      return bad("the file holds no JSON object");
    FORESIGHT_CHECK(refuseNormalizer());
    FORESIGHT_CHECK(readPreTokenizer());
    FORESIGHT_CHECK(readDecoder());
    FORESIGHT_TRY(const Json *bpe, readObject(root, "model"));
    FORESIGHT_CHECK(readModel({*bpe, source + ": model", code}));
    FORESIGHT_CHECK(readAddedTokens());
    FORESIGHT_CHECK(readPostProcessor(member(root.value, "post_processor")));
    finish();
    return std::move(model);
  }

private:
  template <typename... Parts> Error bad(const Parts &...parts) const {
    return makeError(code, source, ": ", parts...);
  }
  template <typename... Parts> Error unsupported(const Parts &...parts) const {
    return makeError(ErrorCode::Unsupported, source, ": ", parts...);
  }

  static const Json &member(const Json &object, const char *key) {
    static const Json null;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() ? *found : null;
  }
  static std::string typeOf(const Json &object) {
    const Json &type = member(object, "type");
    return type.is_string() ? type.get<std::string>() : "";
  }
  /// The parts of a `Sequence`, or the object itself.
  static std::vector<const Json *> partsOf(const Json &object,
                                           const char *key) {
    std::vector<const Json *> parts;
    if (typeOf(object) != "Sequence")
      return {&object};
    if (const Json &list = member(object, key); list.is_array())
      for (const Json &part : list)
        parts.push_back(&part);
    return parts;
  }

  Status refuseNormalizer() const {
    const Json &normalizer = member(root.value, "normalizer");
    if (normalizer.is_null() || (typeOf(normalizer) == "Sequence" &&
                                 partsOf(normalizer, "normalizers").empty()))
      return {};
    return unsupported("normalizer of type '", typeOf(normalizer),
                       "' is not supported: OPT's tokenizer has none");
  }

  Status readPreTokenizer() {
    const Json &pre = member(root.value, "pre_tokenizer");
    const std::vector<const Json *> parts = partsOf(pre, "pretokenizers");
    if (parts.size() != 1 || typeOf(*parts[0]) != "ByteLevel")
      return unsupported("pre_tokenizer of type '", typeOf(pre),
                         "' is not supported: expected 'ByteLevel'");
    const JsonObject level{*parts[0], source + ": pre_tokenizer", code};
    FORESIGHT_TRY(model->addPrefixSpace,
                  readOr<bool>(level, "add_prefix_space", true));
    FORESIGHT_TRY(model->splitWords, readOr<bool>(level, "use_regex", true));
    return {};
  }

  Status readDecoder() const {
    const Json &decoder = member(root.value, "decoder");
    if (!decoder.is_null() && typeOf(decoder) != "ByteLevel")
      return unsupported("decoder of type '", typeOf(decoder),
                         "' is not supported: expected 'ByteLevel'");
    return {};
  }

  Status readModel(const JsonObject &bpe) {
    FORESIGHT_TRY(const std::string type,
                  readOr<std::string>(bpe, "type", "BPE"));
    if (type != "BPE")
      return unsupported("model of type '", type,
                         "' is not supported: expected 'BPE'");
    FORESIGHT_TRY(const double dropout, readOr<double>(bpe, "dropout", 0.0));
    if (dropout != 0)
      return unsupported("model: dropout ", dropout,
                         " is not supported: ids would be random");
    for (const char *affix :
         {"continuing_subword_prefix", "end_of_word_suffix"}) {
      FORESIGHT_TRY(const std::string text,
                    readOr<std::string>(bpe, affix, ""));
      if (!text.empty())
        return unsupported("model: ", affix, " '", text,
                           "' is not supported: byte-level BPE has none");
    }
    FORESIGHT_TRY(const bool fallback,
                  readOr<bool>(bpe, "byte_fallback", false));
    if (fallback)
      return unsupported("model: byte_fallback is not supported: byte-level "
                         "BPE has a token for every byte");
    FORESIGHT_TRY(model->fuseUnknown, readOr<bool>(bpe, "fuse_unk", false));
    FORESIGHT_TRY(model->ignoreMerges,
                  readOr<bool>(bpe, "ignore_merges", false));

    FORESIGHT_CHECK(readVocab(bpe));
    FORESIGHT_CHECK(readMerges(bpe));
    FORESIGHT_TRY(const std::string unknown,
                  readOr<std::string>(bpe, "unk_token", ""));
    if (!unknown.empty()) {
      const auto found = model->vocab.find(unknown);
      if (found == model->vocab.end())
        return bad("model: unk_token '", unknown, "' is not in the vocabulary");
      model->unknownId = found->second;
    }
    return {};
  }

  Result<int32_t> checkedId(const Json &value, std::string_view token) const {
    if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
        value.get<int64_t>() >= kIdLimit)
      return bad("token '", token, "' has the id ", dumpJson(value),
                 ": expected a whole number from 0 to ", kIdLimit - 1);
    return static_cast<int32_t>(value.get<int64_t>());
  }

  /// Enters a token; the same token with the same id again is no error.
  Status enter(const std::string &token, int32_t id) {
    const auto [place, isNew] = model->vocab.try_emplace(token, id);
    if (!isNew && place->second != id)
      return bad("token '", token, "' has two ids: ", place->second, " and ",
                 id);
    if (!isNew)
      return {};
    if (static_cast<size_t>(id) >= names.size())
      names.resize(id + 1);
    if (names[id])
      return bad("tokens '", *names[id], "' and '", token,
                 "' have the same id ", id);
    names[id] = &place->first;
    return {};
  }

  Status readVocab(const JsonObject &bpe) {
    FORESIGHT_TRY(const Json *vocab, readObject(bpe, "vocab"));
    if (!vocab->is_object() || vocab->empty())
      return bad("model: vocab is not an object that maps tokens to ids");
    model->vocab.reserve(vocab->size() + 64);
    for (const auto &[token, id] : vocab->items()) {
      FORESIGHT_TRY(const int32_t checked, checkedId(id, token));
      FORESIGHT_CHECK(enter(token, checked));
    }
    return {};
  }

  /// The two halves of "a b" or ["a", "b"].
  Status halvesOf(const Json &merge, size_t index, std::string &left,
                  std::string &right) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
        merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
      return {};
    }
    if (merge.is_string()) {
      const auto &text = merge.get_ref<const std::string &>();
      const size_t blank = text.find(' ');
      if (blank != std::string::npos &&
          text.find(' ', blank + 1) == std::string::npos) {
        left = text.substr(0, blank);
        right = text.substr(blank + 1);
        return {};
      }
    }
    return bad("model: merge ", index, " is ", dumpJson(merge),
               ": expected \"left right\" or [\"left\", \"right\"]");
  }

  Status readMerges(const JsonObject &bpe) {
    FORESIGHT_TRY(const Json *merges, readArray(bpe, "merges"));
    if (!merges->is_array())
      return bad("model: merges is not an array");
    model->merges.reserve(merges->size());
    std::string left, right;
    for (size_t i = 0; i < merges->size(); ++i) {
      FORESIGHT_CHECK(halvesOf((*merges)[i], i, left, right));
      const auto idOf = [&](const std::string &token) -> Result<int32_t> {
        const auto found = model->vocab.find(token);
        if (found == model->vocab.end())
          return bad("model: merge ", i, " ('", left, "' '", right,
                     "') names '", token, "', which is not in the vocabulary");
        return found->second;
      };
      FORESIGHT_TRY(const int32_t leftId, idOf(left));
      FORESIGHT_TRY(const int32_t rightId, idOf(right));
      FORESIGHT_TRY(const int32_t merged, idOf(left + right));
      model->merges.insert(leftId, rightId, {static_cast<int32_t>(i), merged});
    }
    return {};
  }

  Status readAddedTokens() {
    const Json &list = member(root.value, "added_tokens");
    if (list.is_null())
      return {};
    if (!list.is_array())
      return bad("added_tokens is not an array");
    for (size_t i = 0; i < list.size(); ++i) {
      const JsonObject token{
          list[i], source + ": added_tokens[" + std::to_string(i) + "]", code};
      FORESIGHT_TRY(const std::string content,
                    read<std::string>(token, "content"));
      FORESIGHT_TRY(const int32_t id,
                    checkedId(member(list[i], "id"), content));
      FORESIGHT_TRY(const bool whole,
                    readOr<bool>(token, "single_word", false));
      if (whole)
        return unsupported("added token '", content,
                           "': single_word is not supported");
      AddedToken added;
      added.content = content;
      added.id = id;
      FORESIGHT_TRY(added.special, readOr<bool>(token, "special", false));
      FORESIGHT_TRY(added.normalized, readOr<bool>(token, "normalized", false));
      FORESIGHT_TRY(added.stripsLeft, readOr<bool>(token, "lstrip", false));
      FORESIGHT_TRY(added.stripsRight, readOr<bool>(token, "rstrip", false));
      FORESIGHT_CHECK(enter(content, id));
      if (!content.empty())
        model->added.push_back(std::move(added));
    }
    return {};
  }

  Error noToken(int64_t id) const {
    return bad("post_processor: adds the id ", id, ", which no token has");
  }

  Result<std::vector<int32_t>> idsOfTemplateToken(const Json &processor,
                                                  const std::string &name) {
    const Json &token =
        member(member(processor, "special_tokens"), name.c_str());
    if (token.is_null())
      return bad("post_processor: the template uses '", name,
                 "', which special_tokens does not define");
    FORESIGHT_TRY(
        auto ids,
        read<std::vector<int64_t>>(
            {token, source + ": post_processor: '" + name + "'", code}, "ids"));
    for (const int64_t id : ids)
      if (id < 0 || id >= kIdLimit)
        return noToken(id);
    return std::vector<int32_t>(ids.begin(), ids.end());
  }

  Status readTemplate(const Json &processor) {
    const Json &single = member(processor, "single");
    if (!single.is_array())
      return bad("post_processor: 'single' is not an array");
    bool pastText = false;
    for (const Json &piece : single) {
      if (const Json &special = member(piece, "SpecialToken");
          special.is_object()) {
        FORESIGHT_TRY(const std::string name,
                      read<std::string>(
                          {special, source + ": post_processor", code}, "id"));
        FORESIGHT_TRY(const std::vector<int32_t> ids,
                      idsOfTemplateToken(processor, name));
        auto &side = pastText ? model->after : model->before;
        side.insert(side.end(), ids.begin(), ids.end());
      } else if (member(piece, "Sequence").is_object() && !pastText) {
        pastText = true;
      } else {
        return bad("post_processor: the template piece ", dumpJson(piece),
                   " is neither a special token nor the one text");
      }
    }
    if (!pastText)
      return bad("post_processor: the template has no place for the text");
    return {};
  }

  /// `RobertaProcessing`, `BertProcessing`: ["</s>", 2] in front and behind.
  Status readClassifier(const Json &processor) {
    for (const auto &[key, side] :
         {std::pair("cls", &model->before), std::pair("sep", &model->after)}) {
      const Json &pair = member(processor, key);
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string())
        return bad("post_processor: '", key, "' is not [token, id]");
      FORESIGHT_TRY(const int32_t id,
                    checkedId(pair[1], pair[0].get<std::string>()));
      side->push_back(id);
    }
    return {};
  }

  Status readPostProcessor(const Json &processor) {
    if (processor.is_null())
      return {};
    for (const Json *part : partsOf(processor, "processors")) {
      const std::string type = typeOf(*part);
      if (type == "TemplateProcessing")
        FORESIGHT_CHECK(readTemplate(*part));
      else if (type == "RobertaProcessing" || type == "BertProcessing")
        FORESIGHT_CHECK(readClassifier(*part));
      else if (type != "ByteLevel") // that one only changes offsets
        return unsupported("post_processor of type '", type,
                           "' is not supported");
    }
    for (const auto &side : {model->before, model->after})
      for (const int32_t id : side)
        if (id < 0 || static_cast<size_t>(id) >= names.size() || !names[id])
          return noToken(id);
    return {};
  }

  void finish() {
    model->bytes.resize(names.size());
    for (size_t id = 0; id < names.size(); ++id)
      if (names[id])
        model->bytes[id] = bytesOfToken(*names[id]);
    for (int byte = 0; byte < 256; ++byte) {
      std::string symbol;
      appendUtf8(symbol, characterOfByte(static_cast<uint8_t>(byte)));
      const auto found = model->vocab.find(symbol);
      model->byteIds[byte] = found == model->vocab.end() ? -1 : found->second;
    }
    model->special.resize(names.size());
    for (const AddedToken &token : model->added) {
      model->special[token.id] = token.special;
      (token.normalized ? model->normalizedTokens : model->plainTokens)
          .add(&token);
    }
  }

  const JsonObject root;
  const std::string &source;
  const ErrorCode code;
  std::unique_ptr<TokenizerModel> model;
  std::vector<const std::string *> names; ///< by id; keys of `vocab`
};

} // namespace

Result<std::unique_ptr<TokenizerModel>>
loadTokenizerModel(std::string_view json, const std::string &source,
                   ErrorCode code) {
  FORESIGHT_TRY(const Json root, parseJson(json, source, code));
  return Loader(root, source, code).run();
}

} // namespace foresight::text
