//===- TokenizerFolder.cpp - Tokenizer files beside a model ---------------===//
#include "foresight/support/Json.h"
#include "foresight/support/MappedFile.h"
#include "foresight/text/Tokenizer.h"

#include <algorithm>
#include <filesystem>

namespace foresight::text {
namespace {

/// Pairs of tokens, a line each.
Result<Json> mergesOf(std::string_view text, const std::string &source) {
  Json list = Json::array();
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.ends_with('\r'))
      pair.remove_suffix(1);
    if (pair.empty() || pair.starts_with("#version"))
      continue;
    const size_t blank = pair.find(' ');
    if (blank == std::string_view::npos ||
        pair.find(' ', blank + 1) != std::string_view::npos)
      return makeError(ErrorCode::BadInput, source, ": line ", line,
                       " is not two tokens with a blank between them");
    list.push_back(Json::array({std::string(pair.substr(0, blank)),
                                std::string(pair.substr(blank + 1))}));
  }
  return list;
}

/// A token as `added_tokens` of a tokenizer.json has it.
Json addedToken(const std::string &content, const Json &id, bool normalized) {
  return {{"content", content},
          {"id", id},
          {"normalized", normalized},
          {"special", true}};
}

/// What the vocabulary leaves open: which tokens are special, and what is put
/// in front of a text.
struct Conventions {
  Json added = Json::array();
  std::string start; ///< empty: nothing
  bool prefixSpace = false;
};

Conventions conventionsOfOpt(const Json &vocab) {
  Conventions result;
  for (const char *token : {"<pad>", "</s>"})
    if (const auto found = vocab.find(token); found != vocab.end())
      result.added.push_back(addedToken(token, *found, true));
  if (vocab.contains("</s>"))
    result.start = "</s>";
  return result;
}

/// A tokenizer_config.json of transformers.
class ConfigReader {
public:
  ConfigReader(const JsonObject &config, const Json &vocab)
      : config(config), vocab(vocab) {}

  Result<Conventions> run() {
    FORESIGHT_CHECK(checkClass());
    FORESIGHT_TRY(result.prefixSpace,
                  readOr<bool>(config, "add_prefix_space", false));
    // What GPT-2's tokenizer has where the file names no token.
    const std::string usual = "<|endoftext|>";
    FORESIGHT_TRY(const std::string start, role("bos_token", usual));
    for (const auto &[key, fallback] :
         {std::pair("eos_token", usual), std::pair("unk_token", usual),
          std::pair("pad_token", std::string())})
      FORESIGHT_CHECK(role(key, fallback));
    FORESIGHT_TRY(const bool starts,
                  readOr<bool>(config, "add_bos_token", false));
    if (starts && !start.empty() && !vocab.contains(start))
      return makeError(config.code, config.where, ": bos_token '", start,
                       "' is not in the vocabulary");
    if (starts)
      result.start = start;
    return std::move(result);
  }

private:
  /// Other classes cut text into words in another way, or put other tokens
  /// around it.
  Status checkClass() const {
    FORESIGHT_TRY(std::string name,
                  readOr<std::string>(config, "tokenizer_class", ""));
    for (const char *known : {"", "GPT2Tokenizer", "GPT2TokenizerFast"})
      if (name == known)
        return {};
    return makeError(ErrorCode::Unsupported, config.where,
                     ": tokenizer_class is ", name,
                     ", which is not supported; expected GPT2Tokenizer, or a "
                     "tokenizer.json");
  }

  /// The token of a role, a text or an object; enters it as special.
  Result<std::string> role(const char *key, const std::string &fallback) {
    const auto found = config.value.find(key);
    std::string content = fallback;
    bool normalized = false;
    if (found != config.value.end() && found->is_object()) {
      const JsonObject token{*found, config.where + ": " + key, config.code};
      FORESIGHT_TRY(content, read<std::string>(token, "content"));
      FORESIGHT_TRY(normalized, readOr<bool>(token, "normalized", false));
    } else if (found != config.value.end() && found->is_null()) {
      content.clear();
    } else {
      FORESIGHT_TRY(content, readOr<std::string>(config, key, fallback));
    }
    const auto id = vocab.find(content);
    const bool isNew = std::none_of(
        result.added.begin(), result.added.end(),
        [&](const Json &old) { return old["content"] == content; });
    if (!content.empty() && id != vocab.end() && isNew)
      result.added.push_back(addedToken(content, *id, normalized));
    return content;
  }

  const JsonObject &config;
  const Json &vocab;
  Conventions result;
};

Result<std::string> readText(const std::string &path) {
  FORESIGHT_TRY(MappedFile file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char *>(file.data()), file.size());
}

} // namespace

Result<std::string> tokenizerJsonFromVocab(std::string_view vocabJson,
                                           const std::string &vocabSource,
                                           std::string_view merges,
                                           const std::string &mergesSource,
                                           std::string_view config,
                                           const std::string &configSource) {
  FORESIGHT_TRY(Json vocab, parseJson(vocabJson, vocabSource));
  if (!vocab.is_object())
    return makeError(ErrorCode::BadInput, vocabSource,
                     ": expected an object that maps tokens to ids");
  FORESIGHT_TRY(Json list, mergesOf(merges, mergesSource));
  Conventions conventions = conventionsOfOpt(vocab);
  if (!config.empty()) {
    FORESIGHT_TRY(const Json parsed, parseJson(config, configSource));
    if (!parsed.is_object())
      return makeError(ErrorCode::BadInput, configSource,
                       ": expected an object, found ", dumpJson(parsed));
    const JsonObject object{parsed, configSource};
    FORESIGHT_TRY(conventions, ConfigReader(object, vocab).run());
  }

  Json root = {
      {"version", "1.0"},
      {"added_tokens", std::move(conventions.added)},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", conventions.prefixSpace}}},
      {"decoder", {{"type", "ByteLevel"}}}};
  if (const std::string &start = conventions.start; !start.empty())
    root["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", start}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"special_tokens",
         {{start,
           {{"id", start},
            {"ids", Json::array({vocab[start]})},
            {"tokens", Json::array({start})}}}}}};
  root["model"] = {{"type", "BPE"},
                   {"vocab", std::move(vocab)},
                   {"merges", std::move(list)}};
  return dumpJson(root);
}

Result<std::optional<TokenizerText>>
readTokenizerText(const std::string &folder) {
  const std::filesystem::path base(folder);
  const std::string json = base / "tokenizer.json", vocab = base / "vocab.json",
                    merges = base / "merges.txt",
                    config = base / "tokenizer_config.json";
  const auto exists = [](const std::string &path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  };
  if (exists(json)) {
    FORESIGHT_TRY(std::string text, readText(json));
    return TokenizerText{std::move(text), json};
  }
  if (!exists(vocab) && !exists(merges))
    return std::optional<TokenizerText>();
  if (!exists(vocab) || !exists(merges))
    return makeError(ErrorCode::Unsupported, exists(vocab) ? vocab : merges,
                     ": is half of a tokenizer: ",
                     exists(vocab) ? "merges.txt" : "vocab.json",
                     " is missing beside it");
  FORESIGHT_TRY(const std::string vocabText, readText(vocab));
  FORESIGHT_TRY(const std::string mergesText, readText(merges));
  std::string configText;
  if (exists(config)) {
    FORESIGHT_TRY(configText, readText(config));
  }
  FORESIGHT_TRY(std::string text,
                tokenizerJsonFromVocab(vocabText, vocab, mergesText, merges,
                                       configText, config));
  return TokenizerText{std::move(text), vocab};
}

Result<Tokenizer> Tokenizer::fromFolder(const std::string &folder) {
  FORESIGHT_TRY(const std::optional<TokenizerText> text,
                readTokenizerText(folder));
  if (!text)
    return makeError(ErrorCode::BadInput, folder,
                     ": holds neither tokenizer.json nor vocab.json and "
                     "merges.txt");
  return fromJson(text->json, text->source);
}

} // namespace foresight::text
