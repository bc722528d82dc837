//===- AtomicFile.h - Files that appear whole or not at all -----*- C++ -*-===//
#ifndef FORESIGHT_SUPPORT_ATOMICFILE_H
#define FORESIGHT_SUPPORT_ATOMICFILE_H

#include "foresight/support/Result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace foresight {

/// A file under construction beside `path`. `commit` makes it durable and gives
/// it its name, replacing an earlier file; until then the earlier file is
/// untouched. Destroying it without `commit` leaves nothing behind.
///
/// Where the file system can, the new file has no name until `commit`, so even
/// a killed process leaves nothing. Elsewhere it is `.NAME.tmp-PID`, and a
/// process ended by SIGINT, SIGTERM or SIGHUP removes it.
///
/// `writeAt` may be called from several threads; the rest from one.
class AtomicFile {
public:
  /// Fails with Resource if the folder cannot be written, with Usage if `path`
  /// names something that is not a regular file.
  static Result<AtomicFile> create(const std::string &path);

  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&other) noexcept;
  ~AtomicFile();

  /// Claims disk space, so that a full disk is found before the work is done.
  Status reserve(uint64_t bytes);
  /// Appends.
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  /// Writes at `offset`; does not move where `write` appends.
  Status writeAt(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t position() const { return appended; }
  /// Moves where `write` appends; what is jumped over reads as zero.
  void seek(uint64_t offset) { appended = offset; }

  /// Read, write and execute for its owner, as the umask allows others.
  Status makeExecutable();
  /// Sets the length, syncs, renames. Nothing may be written afterwards.
  Status commit();

  const std::string &path() const { return target; }

private:
  AtomicFile() = default;
  void discard();

  std::string target;
  std::string temporary; ///< empty while the file has no name
  int descriptor = -1;
  int cleanupSlot = -1;
  uint64_t appended = 0;
};

/// Writes a small file whole.
Status writeFileAtomically(const std::string &path, std::string_view text);

} // namespace foresight
#endif
