//===- Detokenizer.h - Text of tokens as they come --------------*- C++ -*-===//
#ifndef FORESIGHT_TEXT_DETOKENIZER_H
#define FORESIGHT_TEXT_DETOKENIZER_H

#include "foresight/text/Tokenizer.h"

#include <string>

namespace foresight::text {

/// Turns a stream of ids into text without ever giving out part of a UTF-8
/// sequence: a character whose bytes lie in several tokens comes out with the
/// last of them. All texts joined, `finish` included, are what `decode` gives
/// for all ids. `tokenizer` must outlive it.
class Detokenizer {
public:
  explicit Detokenizer(const Tokenizer &tokenizer, bool skipSpecial = true)
      : tokenizer(&tokenizer), skipSpecial(skipSpecial) {}

  /// The text that is complete once `id` has come; may be empty.
  std::string push(int32_t id);
  /// What is left: U+FFFD if a character was never completed.
  std::string finish();

private:
  const Tokenizer *tokenizer;
  bool skipSpecial;
  std::string pending; ///< the start of a character, at most 3 bytes
};

} // namespace foresight::text
#endif
