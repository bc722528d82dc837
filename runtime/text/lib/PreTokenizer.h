//===- PreTokenizer.h - GPT-2's split of text -------------------*- C++ -*-===//
#ifndef FORESIGHT_TEXT_LIB_PRETOKENIZER_H
#define FORESIGHT_TEXT_LIB_PRETOKENIZER_H

#include <string_view>

namespace foresight::text {

/// The length in bytes of the first piece of `text` (valid UTF-8, not empty)
/// that the pattern of GPT-2 finds:
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// The pieces of a text are this, again and again.
size_t firstPiece(std::string_view text);

} // namespace foresight::text
#endif
