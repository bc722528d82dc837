//===- Bundle.h - An open bundle --------------------------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_BUNDLE_H
#define FORESIGHT_RUNTIME_BUNDLE_H

#include "foresight/abi/BundleFormat.h"
#include "foresight/runtime/Manifest.h"
#include "foresight/support/Hash.h"
#include "foresight/support/MappedFile.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foresight {

/// A bundle file, mapped for reading, whose frame, checksums and manifest were
/// checked. Weights are large and therefore checked block by block by whoever
/// reads them first (`checkWeights`, `readWeights`); everything else was
/// checked by `open`. Move-only; may be read from several threads.
class Bundle {
public:
  /// Opens a bundle, or an executable with a bundle behind it
  /// (`ExecutableTrailer`). Any fault of its contents is BadBundle, a file that
  /// cannot be read BadInput.
  static Result<Bundle> open(const std::string &path);

  /// Whether the file ends in an `ExecutableTrailer`: how `foresight` learns
  /// that it carries a model itself.
  static bool hasTrailer(const std::string &path);

  const std::string &path() const { return file.path(); }
  uint64_t fileBytes() const { return frame.size(); }
  const Manifest &manifest() const { return facts; }
  std::string_view manifestText() const;

  struct Section {
    bundle::SectionKind kind;
    std::string name;
    uint64_t offset = 0, bytes = 0, firstChecksum = 0;
  };
  const std::vector<Section> &sections() const { return table; }

  /// The bytes of a section; no bytes if there is none. Sections other than the
  /// weights are checked already.
  std::span<const std::byte> section(bundle::SectionKind kind,
                                     std::string_view name = {}) const;
  std::string_view tokenizer() const; ///< "" if there is none
  std::string_view profile() const;   ///< "" if there is none

  /// The weights section in the mapping.
  std::span<const std::byte> weights() const;
  uint64_t weightBlocks() const;
  /// Checks block `index` of the weights where it is mapped.
  Status checkWeights(uint64_t index) const;
  /// Copies block `index` from the mapping to the start of `to`, which has room
  /// for it, and checks the copy: how many bytes it has.
  Result<size_t> copyBlock(uint64_t index, std::span<std::byte> to) const;
  /// Reads block `index` to where it belongs in `to`, which is as large as the
  /// weights section, and checks what was read.
  Status readWeights(uint64_t index, std::span<std::byte> to) const;

private:
  Bundle() = default;
  Status readFrame();
  Status checkSection(const Section &section) const;
  Error fault(const std::string &what) const;
  const Section *find(bundle::SectionKind kind, std::string_view name) const;
  Status checkBlock(const Section &section, uint64_t index,
                    uint64_t hash) const;
  std::span<const std::byte> block(const Section &section,
                                   uint64_t index) const;

  /// Closes a file when destroyed.
  struct Descriptor {
    int value = -1;
    Descriptor() = default;
    Descriptor(Descriptor &&other) noexcept
        : value(std::exchange(other.value, -1)) {}
    Descriptor &operator=(Descriptor &&other) noexcept {
      std::swap(value, other.value);
      return *this;
    }
    ~Descriptor();
  };

  MappedFile file;
  Descriptor descriptor; ///< of the same file, to copy weights from
  uint64_t frameOffset = 0;
  std::span<const std::byte> frame; ///< the bundle within the file
  std::vector<Section> table;
  std::span<const std::byte> checksums;
  Manifest facts;
};

} // namespace foresight
#endif
