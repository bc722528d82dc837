//===- Format.h - Text of a test's IR ---------------------------*- C++ -*-===//
#ifndef FORESIGHT_TEST_UNIT_FORMAT_H
#define FORESIGHT_TEST_UNIT_FORMAT_H

#include <cstdarg>
#include <cstdio>
#include <string>

namespace foresight {

/// As printf, up to 4095 characters.
inline std::string str(const char *format, ...) {
  char text[4096];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof(text), format, list);
  va_end(list);
  return text;
}

} // namespace foresight

#endif // FORESIGHT_TEST_UNIT_FORMAT_H
