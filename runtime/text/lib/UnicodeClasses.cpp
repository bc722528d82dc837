//===- UnicodeClasses.cpp - Letters, numbers, white space -----------------===//
#include "UnicodeClasses.h"

#include <algorithm>
#include <array>
#include <span>

namespace foresight::text {
namespace {

struct Range {
  uint32_t first, last;
};

#include "UnicodeClasses.inc"

bool contains(std::span<const Range> ranges, uint32_t point) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), point,
      [](uint32_t value, const Range &range) { return value < range.first; });
  return after != ranges.begin() && point <= std::prev(after)->last;
}

CharacterClass search(uint32_t point) {
  if (contains(kLetterRanges, point))
    return CharacterClass::kLetter;
  if (contains(kNumberRanges, point))
    return CharacterClass::kNumber;
  if (contains(kSpaceRanges, point))
    return CharacterClass::kSpace;
  return CharacterClass::kOther;
}

/// Most text is here.
constexpr uint32_t kDirect = 0x250;

} // namespace

CharacterClass classOf(uint32_t point) {
  static const std::array<CharacterClass, kDirect> direct = [] {
    std::array<CharacterClass, kDirect> table;
    for (uint32_t i = 0; i < kDirect; ++i)
      table[i] = search(i);
    return table;
  }();
  return point < kDirect ? direct[point] : search(point);
}

} // namespace foresight::text
