//===- Fuzz.cpp - What the fuzz targets share -----------------------------===//

#include "Fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

namespace foresight::fuzz {

MemoryFile::MemoryFile() : file(memfd_create("input", MFD_CLOEXEC)) {
  expect(file >= 0, "memory files can be made");
  name = "/proc/self/fd/" + std::to_string(file);
}

MemoryFile::~MemoryFile() { close(file); }

void MemoryFile::set(std::string_view bytes) {
  expect(ftruncate(file, 0) == 0 &&
             pwrite(file, bytes.data(), bytes.size(), 0) ==
                 static_cast<ssize_t>(bytes.size()),
         "a memory file can be written");
}

void expect(bool holds, const char *promise, std::string_view found) {
  if (holds)
    return;
  fprintf(stderr, "broken promise: %s\n%.*s\n", promise,
          static_cast<int>(found.size()), found.data());
  abort();
}

void expectError(const Error &error, std::string_view source,
                 std::initializer_list<ErrorCode> codes) {
  expect(std::find(codes.begin(), codes.end(), error.code) != codes.end(),
         "an error has a code that this reader may give", error.message);
  expect(std::string_view(error.message).starts_with(source),
         "an error names its file", error.message);
}

} // namespace foresight::fuzz
