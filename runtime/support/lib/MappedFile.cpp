//===- MappedFile.cpp - A file mapped for reading -------------------------===//

#include "foresight/support/MappedFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace foresight;

namespace {

/// Closes a descriptor at the end of its scope.
struct Descriptor {
  int value;
  explicit Descriptor(int value) : value(value) {}
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() {
    if (value >= 0)
      ::close(value);
  }
};

uint64_t pageSize() {
  static const uint64_t size = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

/// Resource if the process lacks something, BadInput if the path is at fault.
Error openError(const std::string &path, int code) {
  const bool resource = code == EMFILE || code == ENFILE || code == ENOMEM;
  return makeError(resource ? ErrorCode::Resource : ErrorCode::BadInput, path,
                   ": cannot be opened: ", std::strerror(code));
}

} // namespace

Result<MappedFile> MappedFile::open(const std::string &path) {
  return openRange(path, 0, UINT64_MAX);
}

Result<MappedFile> MappedFile::openRange(const std::string &path,
                                         uint64_t offset, uint64_t bytes) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.value < 0)
    return openError(path, errno);
  struct stat info;
  if (::fstat(file.value, &info) != 0)
    return openError(path, errno);
  if (S_ISDIR(info.st_mode))
    return makeError(ErrorCode::BadInput, path,
                     ": is a folder, expected a file");
  if (!S_ISREG(info.st_mode))
    return makeError(ErrorCode::BadInput, path,
                     ": is not a regular file, so it cannot be mapped");

  const uint64_t size = static_cast<uint64_t>(info.st_size);
  if (bytes == UINT64_MAX)
    bytes = size - std::min(size, offset);
  if (offset > size || bytes > size - offset)
    return makeError(
        ErrorCode::BadInput, path, ": ", bytes, " bytes at offset ", offset,
        " lie outside the file, which has ", size, " bytes; is it truncated?");

  MappedFile result;
  result.filePath = path;
  if (bytes == 0)
    return result;
  const uint64_t start = offset / pageSize() * pageSize();
  result.mappedBytes = offset - start + bytes;
  void *address = ::mmap(nullptr, result.mappedBytes, PROT_READ, MAP_PRIVATE,
                         file.value, static_cast<off_t>(start));
  if (address == MAP_FAILED)
    return makeError(ErrorCode::Resource, path, ": cannot be mapped (", bytes,
                     " bytes): ", std::strerror(errno));
  result.mapping = address;
  result.view = {static_cast<const std::byte *>(address) + (offset - start),
                 static_cast<size_t>(bytes)};
  return result;
}

MappedFile::MappedFile(MappedFile &&other) noexcept {
  *this = std::move(other);
}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(filePath, other.filePath);
  std::swap(mapping, other.mapping);
  std::swap(mappedBytes, other.mappedBytes);
  std::swap(view, other.view);
  return *this;
}

MappedFile::~MappedFile() {
  if (mapping)
    ::munmap(mapping, mappedBytes);
}

Result<std::span<const std::byte>> MappedFile::slice(uint64_t offset,
                                                     uint64_t count) const {
  if (offset > size() || count > size() - offset)
    return makeError(ErrorCode::BadInput, filePath, ": ", count,
                     " bytes at offset ", offset,
                     " lie outside the file, which has ", size(),
                     " bytes; is it truncated?");
  return view.subspan(offset, count);
}

/// Calls madvise on the whole pages around (or, for MADV_DONTNEED, inside) a
/// range of the view.
static void advise(void *mapping, uint64_t mappedBytes, uint64_t skipped,
                   uint64_t offset, uint64_t count, int advice, bool inside) {
  const uint64_t page = pageSize();
  uint64_t begin = std::min(skipped + offset, mappedBytes);
  uint64_t end = std::min(begin + count, mappedBytes);
  begin = inside ? (begin + page - 1) / page * page : begin / page * page;
  if (inside)
    end = end / page * page;
  if (begin < end)
    ::madvise(static_cast<char *>(mapping) + begin, end - begin, advice);
}

void MappedFile::willNeed(uint64_t offset, uint64_t count) const {
  if (mapping)
    advise(mapping, mappedBytes, mappedBytes - size(), offset, count,
           MADV_WILLNEED, /*inside=*/false);
}

void MappedFile::sequential() const {
  if (mapping)
    ::madvise(mapping, mappedBytes, MADV_SEQUENTIAL);
}

void MappedFile::release(uint64_t offset, uint64_t count) const {
  if (mapping)
    advise(mapping, mappedBytes, mappedBytes - size(), offset, count,
           MADV_DONTNEED, /*inside=*/true);
}
