//===- BundleWriter.cpp - Writes the frame of a bundle --------------------===//

#include "foresight/Target/Bundle/BundleWriter.h"

#include "foresight/support/MappedFile.h"

#include <algorithm>
#include <cstring>

using namespace foresight;
using namespace foresight::bundle;

/// Header and table lie before the first section.
static constexpr uint64_t kFrameBytes = kSectionAlignment;
static constexpr size_t kMaxSections =
    (kFrameBytes - sizeof(Header)) / sizeof(SectionEntry);

Result<BundleWriter> BundleWriter::create(const std::string &path) {
  FORESIGHT_TRY(AtomicFile file, AtomicFile::create(path));
  BundleWriter writer(std::move(file));
  FORESIGHT_CHECK(writer.reserveFrame());
  return writer;
}

Result<BundleWriter>
BundleWriter::createExecutable(const std::string &path,
                               const std::string &runtime) {
  FORESIGHT_TRY(MappedFile program, MappedFile::open(runtime));
  FORESIGHT_TRY(AtomicFile file, AtomicFile::create(path));
  FORESIGHT_CHECK(file.makeExecutable());
  BundleWriter writer(std::move(file));
  FORESIGHT_CHECK(writer.file.write(program.bytes()));
  FORESIGHT_CHECK(writer.pad(kSectionAlignment)); // sections are mapped
  writer.base = writer.file.position();
  FORESIGHT_CHECK(writer.reserveFrame());
  return writer;
}

Status BundleWriter::reserveFrame() {
  static const std::byte zeros[kFrameBytes] = {};
  return file.write(zeros);
}

Status BundleWriter::pad(uint64_t alignment) {
  static const std::byte zeros[kSectionAlignment] = {};
  uint64_t past = (file.position() - base) % alignment;
  return past == 0 ? Status()
                   : file.write(std::span(zeros).first(alignment - past));
}

Status BundleWriter::begin(SectionKind kind, std::string_view name) {
  if (open || table.size() + 1 >= kMaxSections ||
      name.size() >= sizeof current.name)
    return makeError(ErrorCode::Internal, file.path(), ": section '", name,
                     "' cannot start here");
  FORESIGHT_CHECK(pad(kSectionAlignment));
  current = {};
  current.kind = kind;
  current.offset = file.position() - base;
  current.firstChecksum = checksums.size();
  std::memcpy(current.name, name.data(), name.size());
  block.reset();
  blockBytes = 0;
  open = true;
  return {};
}

Status BundleWriter::beginBlocks(SectionKind kind, uint64_t bytes) {
  FORESIGHT_CHECK(begin(kind));
  FORESIGHT_CHECK(file.reserve(file.position() + bytes));
  file.seek(file.position() + bytes);
  checksums.resize(checksums.size() +
                   (bytes + kChecksumBlock - 1) / kChecksumBlock);
  inBlocks = true;
  return {};
}

Status BundleWriter::writeBlock(uint64_t offset,
                                std::span<const std::byte> bytes) {
  uint64_t size = file.position() - base - current.offset;
  if (!inBlocks || offset % kChecksumBlock != 0 || offset >= size ||
      bytes.size() != std::min(kChecksumBlock, size - offset))
    return makeError(ErrorCode::Internal, file.path(), ": a block of ",
                     bytes.size(), " bytes does not belong at ", offset);
  // Every block has a slot of its own, so threads need no lock.
  checksums[current.firstChecksum + offset / kChecksumBlock] = hash64(bytes);
  return file.writeAt(base + current.offset + offset, bytes);
}

Status BundleWriter::write(std::span<const std::byte> bytes) {
  if (!open || inBlocks)
    return makeError(ErrorCode::Internal, file.path(),
                     ": data outside of a section");
  FORESIGHT_CHECK(file.write(bytes));
  while (!bytes.empty()) {
    size_t count =
        std::min<uint64_t>(bytes.size(), kChecksumBlock - blockBytes);
    block.update(bytes.first(count));
    blockBytes += count;
    bytes = bytes.subspan(count);
    if (blockBytes == kChecksumBlock)
      closeBlock();
  }
  return {};
}

Status BundleWriter::write(std::string_view text) {
  return write(std::as_bytes(std::span(text)));
}

Status BundleWriter::align(uint64_t alignment) {
  static const std::byte zeros[kSectionAlignment] = {};
  uint64_t past = sectionBytes() % alignment;
  return past == 0 ? Status() : write(std::span(zeros).first(alignment - past));
}

void BundleWriter::closeBlock() {
  checksums.push_back(block.digest64());
  block.reset();
  blockBytes = 0;
}

Status BundleWriter::end() {
  if (!open)
    return makeError(ErrorCode::Internal, file.path(), ": no section to end");
  if (blockBytes > 0)
    closeBlock();
  current.bytes = sectionBytes();
  table.push_back(current);
  open = false;
  inBlocks = false;
  return {};
}

Status BundleWriter::section(SectionKind kind, std::string_view name,
                             std::string_view bytes) {
  FORESIGHT_CHECK(begin(kind, name));
  FORESIGHT_CHECK(write(bytes));
  return end();
}

Status BundleWriter::commit() {
  FORESIGHT_CHECK(pad(kSectionAlignment));
  SectionEntry sums = {};
  sums.kind = SectionKind::kChecksums;
  sums.offset = file.position() - base;
  sums.bytes = checksums.size() * sizeof(uint64_t);
  sums.firstChecksum = checksums.size();
  FORESIGHT_CHECK(file.write(std::as_bytes(std::span(checksums))));
  table.push_back(sums);
  bundleBytes = file.position() - base;

  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.version = kFormatVersion;
  header.sectionCount = static_cast<uint32_t>(table.size());
  header.fileBytes = bundleBytes;
  header.tableOffset = sizeof(Header);
  header.tableChecksum = hash64(std::as_bytes(std::span(table)));
  std::span<const std::byte> bytes = std::as_bytes(std::span(&header, 1));
  header.headerChecksum = hash64(bytes.first(offsetof(Header, headerChecksum)));
  FORESIGHT_CHECK(file.writeAt(base, bytes));
  FORESIGHT_CHECK(
      file.writeAt(base + sizeof(Header), std::as_bytes(std::span(table))));
  if (base > 0) {
    ExecutableTrailer trailer = {};
    trailer.bundleOffset = base;
    trailer.bundleBytes = bundleBytes;
    std::memcpy(trailer.magic, kMagic, sizeof trailer.magic);
    FORESIGHT_CHECK(file.write(std::as_bytes(std::span(&trailer, 1))));
  }
  return file.commit();
}
