//===- TokenizerModel.h - What a tokenizer file says ------------*- C++ -*-===//
#ifndef FORESIGHT_TEXT_LIB_TOKENIZERMODEL_H
#define FORESIGHT_TEXT_LIB_TOKENIZERMODEL_H

#include "Bpe.h"
#include "foresight/support/Result.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace foresight::text {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

/// A token that is found in the text itself, before any split.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;
  bool normalized = false;  ///< looked for after the tokens that are not
  bool stripsLeft;          ///< takes the white space before it
  bool stripsRight = false; ///< takes the white space after it
};

/// Finds the leftmost, of those the longest, of some added tokens.
class AddedTokenFinder {
public:
  void add(const AddedToken *token);
  struct Match {
    size_t begin, end;
    const AddedToken *token; ///< null: none
  };
  Match find(std::string_view text, size_t from) const;

private:
  /// By first byte, longest first.
  std::array<std::vector<const AddedToken *>, 256> tokens;
};

struct TokenizerModel {
  std::string source;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> vocab;
  std::vector<std::string> bytes; ///< of every id
  std::vector<bool> special;
  std::array<int32_t, 256> byteIds; ///< -1: the byte has no token
  MergeTable merges;
  int32_t unknownId = -1;
  bool fuseUnknown = false;
  bool ignoreMerges = false;
  bool addPrefixSpace = false;
  bool splitWords = true;
  std::vector<AddedToken> added;
  AddedTokenFinder plainTokens, normalizedTokens;
  std::vector<int32_t> before, after; ///< what the post-processor adds
};

/// Reads a tokenizer.json.
Result<std::unique_ptr<TokenizerModel>>
loadTokenizerModel(std::string_view json, const std::string &source,
                   ErrorCode code);

} // namespace foresight::text
#endif
