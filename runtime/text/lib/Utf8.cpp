//===- Utf8.cpp - Reading UTF-8 -------------------------------------------===//
#include "foresight/text/Utf8.h"

namespace foresight::text {

static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

Utf8Step stepUtf8(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80)
    return {Utf8Step::kCharacter, lead, 1};

  // The second byte's range rules out overlong forms, surrogates and values
  // that are too large; the others are 80..BF.
  size_t length;
  uint8_t low = 0x80, high = 0xBF;
  uint32_t point;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    point = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    point = lead & 0x0F;
    low = lead == 0xE0 ? 0xA0 : 0x80;
    high = lead == 0xED ? 0x9F : 0xBF;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    point = lead & 0x07;
    low = lead == 0xF0 ? 0x90 : 0x80;
    high = lead == 0xF4 ? 0x8F : 0xBF;
  } else {
    return {Utf8Step::kInvalid, 0, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size())
      return {Utf8Step::kTruncated, 0, i};
    if (at(i) < low || at(i) > high)
      return {Utf8Step::kInvalid, 0, i};
    point = point << 6 | (at(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::kCharacter, point, length};
}

void appendUtf8(std::string &out, uint32_t point) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

size_t findInvalidUtf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Step step = stepUtf8(bytes.substr(at));
    if (step.kind != Utf8Step::kCharacter)
      return at;
    at += step.length;
  }
  return std::string_view::npos;
}

std::string replaceInvalidUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Step step = stepUtf8(bytes);
    out += step.kind == Utf8Step::kCharacter ? bytes.substr(0, step.length)
                                             : kReplacement;
    bytes.remove_prefix(step.length);
  }
  return out;
}

} // namespace foresight::text
