//===- Fuzz.h - What the fuzz targets share ---------------------*- C++ -*-===//
//
// A target reads any bytes the way a tool does and expects more than that
// nothing crashes: errors of the kinds that the reader may give, and of what
// was accepted the promises of its header. A promise that does not hold ends
// the process, as a crash does.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TEST_FUZZ_FUZZ_H
#define FORESIGHT_TEST_FUZZ_FUZZ_H

#include "foresight/support/Result.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace foresight::fuzz {

/// A file in memory, for readers that take a path. One serves a whole process:
/// its bytes are replaced for each input.
class MemoryFile {
public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;

  void set(std::string_view bytes);
  const std::string &path() const { return name; }

private:
  int file;
  std::string name;
};

inline std::string_view textOf(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

/// Ends the process unless `holds`.
void expect(bool holds, const char *promise, std::string_view found = {});

/// An error is of one of `codes`, and starts by naming `source`.
void expectError(const Error &error, std::string_view source,
                 std::initializer_list<ErrorCode> codes);

} // namespace foresight::fuzz
#endif
