//===- MappedFile.h - A file mapped for reading -----------------*- C++ -*-===//
#ifndef FORESIGHT_SUPPORT_MAPPEDFILE_H
#define FORESIGHT_SUPPORT_MAPPEDFILE_H

#include "foresight/support/Result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace foresight {

/// The bytes of a regular file, mapped read-only; unmapped when destroyed.
/// Move-only. May be read from any thread. A file that another program shortens
/// while it is mapped ends the process with SIGBUS: files are not copied.
class MappedFile {
public:
  /// Fails with BadInput, naming the path, if the file cannot be read. An empty
  /// file is mapped as no bytes.
  static Result<MappedFile> open(const std::string &path);
  /// Maps `bytes` bytes from `offset`, which need not be aligned.
  static Result<MappedFile> openRange(const std::string &path, uint64_t offset,
                                      uint64_t bytes);

  MappedFile() = default;
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return view; }
  const std::byte *data() const { return view.data(); }
  uint64_t size() const { return view.size(); }
  const std::string &path() const { return filePath; }

  /// The `count` bytes at `offset`, or BadInput that says where the file ends.
  Result<std::span<const std::byte>> slice(uint64_t offset,
                                           uint64_t count) const;

  /// Hints to the kernel; they never fail.
  void willNeed(uint64_t offset, uint64_t count) const;
  void sequential() const;
  /// Lets go of the pages: they are read again if they are used again.
  void release(uint64_t offset, uint64_t count) const;

private:
  std::string filePath;
  void *mapping = nullptr; ///< page-aligned start
  uint64_t mappedBytes = 0;
  std::span<const std::byte> view;
};

} // namespace foresight
#endif
