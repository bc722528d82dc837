//===- UnicodeClasses.h - Letters, numbers, white space ---------*- C++ -*-===//
#ifndef FORESIGHT_TEXT_LIB_UNICODECLASSES_H
#define FORESIGHT_TEXT_LIB_UNICODECLASSES_H

#include <cstdint>

namespace foresight::text {

enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

CharacterClass classOf(uint32_t codePoint);

} // namespace foresight::text
#endif
