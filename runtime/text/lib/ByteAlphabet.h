//===- ByteAlphabet.h - Bytes as printable characters -----------*- C++ -*-===//
//
// GPT-2 writes the 256 bytes as 256 printable characters: printable Latin-1
// bytes as themselves, the others, in order, as U+0100 and up.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TEXT_LIB_BYTEALPHABET_H
#define FORESIGHT_TEXT_LIB_BYTEALPHABET_H

#include <cstdint>
#include <string>
#include <string_view>

namespace foresight::text {

uint32_t characterOfByte(uint8_t byte);
/// -1 if the character stands for no byte.
int byteOfCharacter(uint32_t codePoint);

/// What a token's text in a file stands for: the bytes its characters name, or
/// the text itself if a character names none.
std::string bytesOfToken(std::string_view token);

} // namespace foresight::text
#endif
