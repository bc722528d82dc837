//===- BundleFrame.cpp - Checksums and manifests of fuzzed bundles --------===//

#include "BundleFrame.h"
#include "TestBundle.h"

#include "foresight/runtime/CpuDevice.h"
#include "foresight/runtime/Session.h"
#include "foresight/support/Hash.h"
#include "foresight/text/Tokenizer.h"

#include <algorithm>
#include <cstring>
#include <vector>

using namespace foresight::bundle;

namespace foresight::fuzz {

static uint64_t hashOf(const std::string &bytes, uint64_t begin,
                       uint64_t count) {
  return hash64(std::as_bytes(std::span(bytes).subspan(begin, count)));
}

static bool lies(const std::string &bytes, uint64_t begin, uint64_t count) {
  return begin <= bytes.size() && count <= bytes.size() - begin;
}

void repairChecksums(std::string &bundle) {
  Header header;
  if (bundle.size() < sizeof header)
    return;
  std::memcpy(&header, bundle.data(), sizeof header);
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.fileBytes = bundle.size();
  const uint64_t count = std::min<uint64_t>(header.sectionCount, 64);
  header.sectionCount = static_cast<uint32_t>(count);
  const uint64_t tableBytes = count * sizeof(SectionEntry);
  if (count > 0 && lies(bundle, header.tableOffset, tableBytes)) {
    std::vector<SectionEntry> table(count);
    std::memcpy(table.data(), bundle.data() + header.tableOffset, tableBytes);
    const auto sums =
        std::find_if(table.begin(), table.end(), [](const SectionEntry &e) {
          return e.kind == SectionKind::kChecksums;
        });
    for (const SectionEntry &entry : table) {
      if (sums == table.end() || entry.kind == SectionKind::kChecksums ||
          !lies(bundle, entry.offset, entry.bytes) ||
          !lies(bundle, sums->offset, sums->bytes))
        continue;
      for (uint64_t at = 0, i = entry.firstChecksum; at < entry.bytes;
           at += kChecksumBlock, ++i) {
        if (i >= sums->bytes / sizeof(uint64_t))
          break;
        const uint64_t sum = hashOf(bundle, entry.offset + at,
                                    std::min(kChecksumBlock, entry.bytes - at));
        std::memcpy(bundle.data() + sums->offset + i * sizeof sum, &sum,
                    sizeof sum);
      }
    }
    header.tableChecksum = hashOf(bundle, header.tableOffset, tableBytes);
  }
  std::memcpy(bundle.data(), &header, sizeof header);
  header.headerChecksum = hashOf(bundle, 0, offsetof(Header, headerChecksum));
  std::memcpy(bundle.data(), &header, sizeof header);
}

static const test::BundleImage &testImage() {
  static const test::BundleImage image = test::TestModel().image();
  return image;
}

std::string withManifest(std::string_view manifest) {
  test::BundleImage image = testImage();
  for (test::BundleImage::Section &section : image.sections) {
    if (section.kind == SectionKind::kManifest)
      section.bytes = manifest;
    // Seeds have weights that the small model lacks.
    if (section.kind == SectionKind::kWeights)
      section.bytes.resize(size_t{64} << 10);
  }
  return image.bytes();
}

/// Whether all code of the bundle is the test bundle's.
static bool hasKnownCode(const Bundle &bundle) {
  for (const test::BundleImage::Section &known : testImage().sections)
    if (known.kind == SectionKind::kCode)
      for (const Bundle::Section &section : bundle.sections())
        if (section.kind == SectionKind::kCode) {
          const auto code = bundle.section(section.kind, section.name);
          if (code.size() != known.bytes.size() ||
              std::memcmp(code.data(), known.bytes.data(), code.size()) != 0)
            return false;
        }
  return true;
}

void makeReady(const std::string &bytes) {
  static MemoryFile input;
  input.set(bytes);
  auto bundle = Bundle::open(input.path());
  if (!bundle.ok())
    return expectError(bundle.error(), input.path(), {ErrorCode::BadBundle});
  if (!bundle->tokenizer().empty())
    (void)text::Tokenizer::fromJson(bundle->tokenizer(), input.path(),
                                    ErrorCode::BadBundle);
  if (!hasKnownCode(*bundle))
    return;
  static const std::unique_ptr<Device> device = [] {
    auto made = createCpuDevice({.threads = 1, .weights = WeightMemory::Map});
    expect(made.ok(), "there is a CPU");
    return std::move(*made);
  }();
  auto program = device->load(*bundle);
  if (!program.ok()) {
    const ErrorCode code = program.error().code;
    return expect(code == ErrorCode::BadBundle || code == ErrorCode::Resource,
                  "a bundle that cannot be loaded is bad or too large",
                  program.error().message);
  }
  auto session = Session::create(**program);
  expect(session.ok() || session.error().code == ErrorCode::Resource,
         "a program that was loaded has room for a sequence");
}

} // namespace foresight::fuzz
