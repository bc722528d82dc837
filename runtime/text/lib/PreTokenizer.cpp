//===- PreTokenizer.cpp - GPT-2's split of text ---------------------------===//
#include "PreTokenizer.h"

#include "UnicodeClasses.h"
#include "foresight/text/Utf8.h"

namespace foresight::text {

static constexpr std::string_view kContractions[] = {"'s", "'t",  "'re", "'ve",
                                                     "'m", "'ll", "'d"};

/// The length of the longest start of `text` whose characters are of `wanted`.
static size_t runOf(CharacterClass wanted, std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = stepUtf8(text.substr(at));
    if (classOf(step.codePoint) != wanted)
      break;
    at += step.length;
  }
  return at;
}

/// White space with something behind it leaves its last character to the next
/// piece, unless that character is all there is.
static size_t spacePiece(std::string_view text) {
  size_t at = 0, last = 0;
  while (at < text.size()) {
    const Utf8Step step = stepUtf8(text.substr(at));
    if (classOf(step.codePoint) != CharacterClass::kSpace)
      return last == 0 ? at : last;
    last = at;
    at += step.length;
  }
  return at;
}

size_t firstPiece(std::string_view text) {
  if (text.front() == '\'')
    for (std::string_view contraction : kContractions)
      if (text.starts_with(contraction))
        return contraction.size();

  const size_t blank = text.front() == ' ' ? 1 : 0;
  if (blank == text.size())
    return blank;
  const std::string_view word = text.substr(blank);
  const CharacterClass kind = classOf(stepUtf8(word).codePoint);
  if (kind == CharacterClass::kSpace)
    return spacePiece(text);
  return blank + runOf(kind, word);
}

} // namespace foresight::text
