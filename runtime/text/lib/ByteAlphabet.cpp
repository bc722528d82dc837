//===- ByteAlphabet.cpp - Bytes as printable characters -------------------===//
#include "ByteAlphabet.h"

#include "foresight/text/Utf8.h"

#include <array>

namespace foresight::text {
namespace {

constexpr bool isPrintable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<uint32_t, 256> character{};
  /// Of U+0000 .. U+0143, the largest character in use.
  std::array<int16_t, 0x144> byte{};

  constexpr Alphabet() {
    byte.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t i = 0; i < 256; ++i) {
      character[i] = isPrintable(i) ? i : next++;
      byte[character[i]] = static_cast<int16_t>(i);
    }
  }
};

constexpr Alphabet kAlphabet;
static_assert(kAlphabet.character[' '] == 0x120);

} // namespace

uint32_t characterOfByte(uint8_t byte) { return kAlphabet.character[byte]; }

int byteOfCharacter(uint32_t point) {
  return point < kAlphabet.byte.size() ? kAlphabet.byte[point] : -1;
}

std::string bytesOfToken(std::string_view token) {
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const Utf8Step step = stepUtf8(rest);
    const int byte = step.kind == Utf8Step::kCharacter
                         ? byteOfCharacter(step.codePoint)
                         : -1;
    if (byte < 0)
      return std::string(token);
    bytes += static_cast<char>(byte);
    rest.remove_prefix(step.length);
  }
  return bytes;
}

} // namespace foresight::text
