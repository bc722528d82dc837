//===- BundleFormat.h - The file that foresight-compile writes --*- C++ -*-===//
//
// A bundle is one file: header, section table, sections. All integers are
// little-endian. Sections start at multiples of kSectionAlignment, so that they
// can be mapped. Every section has checksums (XXH3-64) of its blocks of
// kChecksumBlock bytes, in a section of their own, so that weights are checked
// as they are read and the rest before it is used.
//
// The manifest is JSON; docs/design/bundle.md is its reference. Weight layouts:
//   vector     f32, padded with zeros to FORESIGHT_ROW_PAD elements
//   matrix     [rows, columns] row-major in the weight's own element type, each
//              row padded with zeros to FORESIGHT_ROW_PAD elements
//   low_bit    kernels/lowbit/include/foresight/lowbit/Layout.h
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_ABI_BUNDLEFORMAT_H
#define FORESIGHT_ABI_BUNDLEFORMAT_H

#include <cstdint>

namespace foresight::bundle {

constexpr char kMagic[8] = {'F', 'O', 'R', 'E', 'S', 'I', 'T', '\n'};
/// Raised whenever a reader of one format would misread the other.
constexpr uint32_t kFormatVersion = 2;
constexpr uint64_t kSectionAlignment = 4096;
constexpr uint64_t kChecksumBlock = 4u << 20;
/// Behind the variant in the name of a code section that holds what ptxas made
/// of the variant's PTX.
constexpr char kCubinSuffix[] = ".cubin";

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t sectionCount;
  uint64_t fileBytes;      ///< of the whole bundle: a shorter file is truncated
  uint64_t tableOffset;    ///< of SectionEntry[sectionCount]
  uint64_t tableChecksum;  ///< XXH3-64 of the table
  uint64_t headerChecksum; ///< XXH3-64 of the bytes before this field
};
static_assert(sizeof(Header) == 48);

enum class SectionKind : uint32_t {
  kManifest = 1,  ///< JSON
  kCode = 2,      ///< ELF shared object, one for every instruction set variant;
                  ///< `name` says which. For a GPU PTX, and a cubin if it was
                  ///< made
  kWeights = 3,   ///< packed weights, offsets in the manifest
  kChecksums = 4, ///< uint64_t[]: of all other sections' blocks, in table order
  kTokenizer = 5, ///< tokenizer.json as it was found
  kProfile = 6,   ///< JSON, as it was given
};

struct SectionEntry {
  SectionKind kind;
  uint32_t reserved;
  uint64_t offset;
  uint64_t bytes;
  uint64_t firstChecksum; ///< index of the section's first block in kChecksums
  char name[32];          ///< zero-terminated; the variant of a code section
};
static_assert(sizeof(SectionEntry) == 64);

/// `foresight-compile --emit=exe` appends a bundle to a copy of `foresight`,
/// and this at the very end of the file.
struct ExecutableTrailer {
  uint64_t bundleOffset;
  uint64_t bundleBytes;
  char magic[8]; ///< kMagic
};

} // namespace foresight::bundle
#endif
