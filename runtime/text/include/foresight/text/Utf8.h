//===- Utf8.h - Reading UTF-8 -----------------------------------*- C++ -*-===//
#ifndef FORESIGHT_TEXT_UTF8_H
#define FORESIGHT_TEXT_UTF8_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace foresight::text {

/// What stands at the start of some bytes.
struct Utf8Step {
  enum Kind {
    kCharacter, ///< `length` bytes are the character `codePoint`
    kTruncated, ///< all `length` bytes are the start of one, cut off by the end
    kInvalid,   ///< `length` bytes (the longest start of a character, or one
                ///< byte) begin no character
  };
  Kind kind;
  uint32_t codePoint;
  size_t length;
};

/// Looks at the first character of `bytes`, which must not be empty. Overlong
/// forms, surrogates and values above U+10FFFF are invalid.
Utf8Step stepUtf8(std::string_view bytes);

void appendUtf8(std::string &out, uint32_t codePoint);

/// The offset of the first byte that is not part of a character, or npos.
size_t findInvalidUtf8(std::string_view bytes);

/// `bytes` with every `kInvalid` or `kTruncated` stretch replaced by U+FFFD.
std::string replaceInvalidUtf8(std::string_view bytes);

} // namespace foresight::text
#endif
