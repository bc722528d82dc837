//===- Tokenizer.h - Byte-level BPE -----------------------------*- C++ -*-===//
//
// Text to token ids and back, as the Hugging Face `tokenizers` library does it
// for OPT: added tokens are cut out first, the rest is split by GPT-2's pattern
// and merged byte pair by byte pair, and a post-processor puts `</s>` in front.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TEXT_TOKENIZER_H
#define FORESIGHT_TEXT_TOKENIZER_H

#include "foresight/support/Result.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresight::text {

struct TokenizerModel;

/// Immutable once made; may be used from any thread.
class Tokenizer {
public:
  /// Reads the text of a tokenizer.json; `source` names it in errors, which
  /// have `code`. A setting that would change ids and is not implemented is an
  /// error of code Unsupported, not ignored.
  static Result<Tokenizer> fromJson(std::string_view json,
                                    const std::string &source,
                                    ErrorCode code = ErrorCode::BadInput);
  /// Reads FOLDER/tokenizer.json or, where there is none, vocab.json and
  /// merges.txt.
  static Result<Tokenizer> fromFolder(const std::string &folder);

  Tokenizer(Tokenizer &&) noexcept;
  Tokenizer &operator=(Tokenizer &&) noexcept;
  ~Tokenizer();

  /// Fails with Usage if `text` is not UTF-8, naming the offset of the first
  /// wrong byte, or if a byte has no token. Special tokens written in the text
  /// (`</s>`) become their ids; `addSpecial` runs the post-processor.
  Result<std::vector<int32_t>> encode(std::string_view text,
                                      bool addSpecial = true) const;

  /// Bytes that are not UTF-8 become U+FFFD, ids without a token nothing.
  std::string decode(std::span<const int32_t> ids,
                     bool skipSpecial = false) const;

  /// The bytes that `id` stands for; empty if there is no such token.
  std::string_view bytesOf(int32_t id) const;
  bool isSpecial(int32_t id) const;
  /// The id of a token by its text in the file ("</s>", "\u0120the").
  std::optional<int32_t> idOf(std::string_view token) const;
  /// One more than the largest id.
  int32_t idLimit() const;

private:
  explicit Tokenizer(std::unique_ptr<const TokenizerModel> model);
  std::unique_ptr<const TokenizerModel> model;
};

/// A tokenizer.json that is there or was made, and the file that errors in it
/// are of.
struct TokenizerText {
  std::string json, source;
};
/// FOLDER/tokenizer.json or, where there is none, what vocab.json, merges.txt
/// and, if it is there, tokenizer_config.json say. Nothing if the folder has
/// neither.
Result<std::optional<TokenizerText>>
readTokenizerText(const std::string &folder);

/// A tokenizer.json of the same meaning as a `vocab.json` and a `merges.txt`.
/// `config` is the text of a tokenizer_config.json of transformers, which says
/// what is special and what is put in front; without one it is as in OPT: no
/// prefix space; `</s>` and `<pad>` special; `</s>` put in front. A class of
/// tokenizer that is not GPT-2's is Unsupported.
Result<std::string> tokenizerJsonFromVocab(
    std::string_view vocabJson, const std::string &vocabSource,
    std::string_view merges, const std::string &mergesSource,
    std::string_view config = {}, const std::string &configSource = {});

} // namespace foresight::text
#endif
