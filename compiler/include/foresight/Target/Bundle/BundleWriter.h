//===- BundleWriter.h - Writes the frame of a bundle ------------*- C++ -*-===//
//
// Header, section table, sections and checksums as BundleFormat.h lays them
// out. What the sections say is the caller's.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TARGET_BUNDLE_BUNDLEWRITER_H
#define FORESIGHT_TARGET_BUNDLE_BUNDLEWRITER_H

#include "foresight/abi/BundleFormat.h"
#include "foresight/support/AtomicFile.h"
#include "foresight/support/Hash.h"

#include <string>
#include <string_view>
#include <vector>

namespace foresight {

/// Streams sections, one after the other, into a file that appears under its
/// name only with `commit`. Equal sections give equal bytes.
///
/// Use: `create`, then for each section `begin`, `write`..., `end`; `commit`.
/// Move-only, for one thread.
class BundleWriter {
public:
  static Result<BundleWriter> create(const std::string &path);
  /// A bundle inside a copy of the program `runtime`, which finds it by the
  /// trailer at the end: one executable file.
  static Result<BundleWriter> createExecutable(const std::string &path,
                                               const std::string &runtime);

  /// Starts a section. `name` is at most 31 bytes.
  Status begin(bundle::SectionKind kind, std::string_view name = "");
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  /// Zeros up to a multiple of `alignment` within the section.
  Status align(uint64_t alignment);
  Status end();

  /// Starts a section of known length whose blocks come in any order.
  Status beginBlocks(bundle::SectionKind kind, uint64_t bytes);
  /// One block of kChecksumBlock bytes, the last may be shorter, at `offset`,
  /// a multiple of it, in the section. May be called from several threads.
  Status writeBlock(uint64_t offset, std::span<const std::byte> bytes);

  /// A whole section.
  Status section(bundle::SectionKind kind, std::string_view name,
                 std::string_view bytes);

  /// Bytes of the section under construction.
  uint64_t sectionBytes() const {
    return file.position() - current.offset - base;
  }

  /// Writes checksums, table and header, syncs, and gives the file its name.
  Status commit();
  /// Of the bundle, without the program before it; known after `commit`.
  uint64_t bytes() const { return bundleBytes; }

private:
  explicit BundleWriter(AtomicFile file) : file(std::move(file)) {}
  Status reserveFrame();
  Status pad(uint64_t alignment);
  void closeBlock();

  AtomicFile file;
  uint64_t base = 0; ///< where the bundle starts in the file
  std::vector<bundle::SectionEntry> table;
  std::vector<uint64_t> checksums;
  bundle::SectionEntry current = {};
  bool open = false;
  bool inBlocks = false;
  Hasher block;
  uint64_t blockBytes = 0;
  uint64_t bundleBytes = 0;
};

} // namespace foresight
#endif
