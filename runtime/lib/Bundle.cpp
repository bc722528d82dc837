//===- Bundle.cpp - Opening and checking a bundle -------------------------===//
#include "foresight/runtime/Bundle.h"

#include "foresight/support/Hash.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace foresight {

using bundle::ExecutableTrailer;
using bundle::Header;
using bundle::kChecksumBlock;
using bundle::kMagic;
using bundle::SectionEntry;
using bundle::SectionKind;

namespace {

/// More sections than any format has; stops a damaged count from asking for
/// memory.
constexpr uint32_t kMostSections = 4096;

uint64_t blocksOf(uint64_t bytes) {
  return (bytes + kChecksumBlock - 1) / kChecksumBlock;
}

template <typename T> T load(const std::byte *from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

std::string_view asText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

std::string sectionName(const Bundle::Section &section) {
  switch (section.kind) {
  case SectionKind::kManifest:
    return "manifest";
  case SectionKind::kCode:
    return "code '" + section.name + "'";
  case SectionKind::kWeights:
    return "weights";
  case SectionKind::kChecksums:
    return "checksums";
  case SectionKind::kTokenizer:
    return "tokenizer";
  case SectionKind::kProfile:
    return "profile";
  }
  return "section of kind " +
         std::to_string(static_cast<uint32_t>(section.kind));
}

/// Where a bundle lies in an executable; no value if there is no trailer.
std::optional<ExecutableTrailer> trailerOf(std::span<const std::byte> file) {
  if (file.size() < sizeof(ExecutableTrailer))
    return std::nullopt;
  const auto trailer = load<ExecutableTrailer>(file.data() + file.size() -
                                               sizeof(ExecutableTrailer));
  if (std::memcmp(trailer.magic, kMagic, sizeof(kMagic)) != 0)
    return std::nullopt;
  return trailer;
}

/// The first byte between the parts of a bundle that is not zero: no byte can
/// change without being noticed.
std::optional<uint64_t> firstInGaps(std::span<const std::byte> frame,
                                    const Header &header,
                                    const std::vector<Bundle::Section> &table) {
  std::vector<std::pair<uint64_t, uint64_t>> parts = {
      {0, sizeof(Header)},
      {header.tableOffset,
       header.tableOffset + header.sectionCount * sizeof(SectionEntry)},
      {frame.size(), frame.size()}};
  for (const Bundle::Section &section : table)
    parts.emplace_back(section.offset, section.offset + section.bytes);
  std::sort(parts.begin(), parts.end());
  uint64_t at = 0;
  for (const auto &[begin, end] : parts) {
    for (; at < begin; ++at)
      if (frame[at] != std::byte{0})
        return at;
    at = std::max(at, end);
  }
  return std::nullopt;
}

} // namespace

Bundle::Descriptor::~Descriptor() {
  if (value >= 0)
    ::close(value);
}

Error Bundle::fault(const std::string &what) const {
  return makeError(ErrorCode::BadBundle, path(), ": ", what);
}

bool Bundle::hasTrailer(const std::string &path) {
  auto file = MappedFile::open(path);
  return file.ok() && trailerOf(file->bytes()).has_value();
}

Result<Bundle> Bundle::open(const std::string &path) {
  Bundle bundle;
  FORESIGHT_TRY(bundle.file, MappedFile::open(path));
  bundle.frame = bundle.file.bytes();
  if (bundle.frame.size() < sizeof(kMagic) ||
      std::memcmp(bundle.frame.data(), kMagic, sizeof(kMagic)) != 0) {
    const auto trailer = trailerOf(bundle.frame);
    if (!trailer)
      return bundle.fault("is not a Foresight bundle; foresight-compile makes "
                          "one from a model");
    const uint64_t room = bundle.frame.size() - sizeof(ExecutableTrailer);
    if (trailer->bundleOffset > room ||
        trailer->bundleBytes > room - trailer->bundleOffset)
      return bundle.fault("the bundle in this executable does not lie within "
                          "the file: it is truncated");
    bundle.frame =
        bundle.frame.subspan(trailer->bundleOffset, trailer->bundleBytes);
    bundle.frameOffset = trailer->bundleOffset;
  }
  FORESIGHT_CHECK(bundle.readFrame());

  const Section *manifest = bundle.find(SectionKind::kManifest, {});
  if (!manifest)
    return bundle.fault("has no manifest");
  for (const Section &section : bundle.table)
    if (section.kind != SectionKind::kWeights &&
        section.kind != SectionKind::kChecksums)
      FORESIGHT_CHECK(bundle.checkSection(section));
  FORESIGHT_TRY(bundle.facts,
                parseManifest(bundle.manifestText(), path + ": manifest",
                              bundle.weights().size()));

  bundle.descriptor.value = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (bundle.descriptor.value < 0)
    return makeError(ErrorCode::BadInput, path,
                     ": cannot be opened: ", std::strerror(errno));
  return bundle;
}

Status Bundle::readFrame() {
  if (frame.size() < sizeof(Header))
    return fault("is truncated: it has " + std::to_string(frame.size()) +
                 " bytes, less than its header");
  const auto header = load<Header>(frame.data());
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return fault("is not a Foresight bundle");
  // Before the checksum: another format may check its header in another way.
  if (header.version != bundle::kFormatVersion)
    return fault("has format " + std::to_string(header.version) +
                 "; this runtime reads format " +
                 std::to_string(bundle::kFormatVersion) +
                 ". Use the foresight that belongs to the compiler that wrote "
                 "it, or compile the model again");
  if (header.headerChecksum !=
      hash64(frame.first(offsetof(Header, headerChecksum))))
    return fault("is damaged: the checksum of its header does not match");
  if (header.fileBytes != frame.size())
    return fault("is truncated or has been added to: it has " +
                 std::to_string(frame.size()) +
                 " bytes, but says that they are " +
                 std::to_string(header.fileBytes));
  if (header.sectionCount > kMostSections ||
      header.tableOffset > frame.size() ||
      header.sectionCount * sizeof(SectionEntry) >
          frame.size() - header.tableOffset)
    return fault("is damaged: its section table does not lie in the file");
  const auto entries = frame.subspan(
      header.tableOffset, header.sectionCount * sizeof(SectionEntry));
  if (header.tableChecksum != hash64(entries))
    return fault("is damaged: the checksum of its section table does not "
                 "match");

  for (uint32_t i = 0; i < header.sectionCount; ++i) {
    const auto entry =
        load<SectionEntry>(entries.data() + i * sizeof(SectionEntry));
    Section section{
        entry.kind,
        std::string(entry.name, strnlen(entry.name, sizeof(entry.name))),
        entry.offset, entry.bytes, entry.firstChecksum};
    const std::string name = sectionName(section);
    if (entry.offset % bundle::kSectionAlignment != 0 ||
        entry.offset > frame.size() ||
        entry.bytes > frame.size() - entry.offset)
      return fault("is damaged: the section " + name +
                   " does not lie in the file");
    if (find(section.kind, section.name))
      return fault("has two sections " + name);
    if (section.kind == SectionKind::kChecksums)
      checksums = frame.subspan(entry.offset, entry.bytes);
    table.push_back(std::move(section));
  }
  if (const auto at = firstInGaps(frame, header, table))
    return fault("is damaged: byte " + std::to_string(*at) +
                 ", which lies between its sections, is not zero");
  const uint64_t known = checksums.size() / sizeof(uint64_t);
  for (const Section &section : table)
    if (section.kind != SectionKind::kChecksums &&
        (section.firstChecksum > known ||
         blocksOf(section.bytes) > known - section.firstChecksum))
      return fault("is damaged: the section " + sectionName(section) +
                   " lacks checksums");
  return {};
}

std::span<const std::byte> Bundle::block(const Section &section,
                                         uint64_t index) const {
  const uint64_t begin = index * kChecksumBlock;
  return frame.subspan(section.offset + begin,
                       std::min(kChecksumBlock, section.bytes - begin));
}

Status Bundle::checkBlock(const Section &section, uint64_t index,
                          uint64_t hash) const {
  const auto expected = load<uint64_t>(
      checksums.data() + (section.firstChecksum + index) * sizeof(uint64_t));
  if (hash == expected)
    return {};
  return fault("is damaged: the checksum of block " + std::to_string(index) +
               " of the section " + sectionName(section) +
               " does not match. Compile the model again or copy the bundle "
               "again");
}

Status Bundle::checkSection(const Section &section) const {
  for (uint64_t i = 0; i < blocksOf(section.bytes); ++i)
    FORESIGHT_CHECK(checkBlock(section, i, hash64(block(section, i))));
  return {};
}

const Bundle::Section *Bundle::find(SectionKind kind,
                                    std::string_view name) const {
  for (const Section &section : table)
    if (section.kind == kind &&
        (kind != SectionKind::kCode || section.name == name))
      return &section;
  return nullptr;
}

std::span<const std::byte> Bundle::section(SectionKind kind,
                                           std::string_view name) const {
  const Section *found = find(kind, name);
  return found ? frame.subspan(found->offset, found->bytes)
               : std::span<const std::byte>();
}

std::string_view Bundle::manifestText() const {
  return asText(section(SectionKind::kManifest));
}
std::string_view Bundle::tokenizer() const {
  return asText(section(SectionKind::kTokenizer));
}
std::string_view Bundle::profile() const {
  return asText(section(SectionKind::kProfile));
}
std::span<const std::byte> Bundle::weights() const {
  return section(SectionKind::kWeights);
}
uint64_t Bundle::weightBlocks() const { return blocksOf(weights().size()); }

Status Bundle::checkWeights(uint64_t index) const {
  const Section *section = find(SectionKind::kWeights, {});
  return checkBlock(*section, index, hash64(block(*section, index)));
}

/// A piece stays in a core's own cache until it is part of the checksum.
static constexpr size_t kPiece = 256 << 10;

Result<size_t> Bundle::copyBlock(uint64_t index,
                                 std::span<std::byte> to) const {
  const Section &weights = *find(SectionKind::kWeights, {});
  const std::span<const std::byte> from = block(weights, index);
  Hasher hasher;
  for (size_t done = 0; done < from.size(); done += kPiece) {
    const size_t bytes = std::min(from.size() - done, kPiece);
    std::memcpy(to.data() + done, from.data() + done, bytes);
    hasher.update(to.subspan(done, bytes));
  }
  FORESIGHT_CHECK(checkBlock(weights, index, hasher.digest64()));
  return from.size();
}

Status Bundle::readWeights(uint64_t index, std::span<std::byte> to) const {
  const Section &weights = *find(SectionKind::kWeights, {});
  const size_t size = block(weights, index).size();
  const uint64_t offset = index * kChecksumBlock;
  const uint64_t from = frameOffset + weights.offset + offset;
  Hasher hasher;
  for (size_t done = 0; done < size;) {
    const std::span<std::byte> piece =
        to.subspan(offset + done, std::min(size - done, kPiece));
    // A few threads read faster than they copy from the mapping, whose pages
    // would each have to be mapped first.
    const ssize_t count = ::pread(descriptor.value, piece.data(), piece.size(),
                                  static_cast<off_t>(from + done));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return makeError(ErrorCode::BadInput, path(),
                       ": cannot be read: ", std::strerror(errno));
    if (count == 0)
      return fault("has become shorter while it is read");
    hasher.update(piece.first(static_cast<size_t>(count)));
    done += static_cast<size_t>(count);
  }
  return checkBlock(weights, index, hasher.digest64());
}

} // namespace foresight
