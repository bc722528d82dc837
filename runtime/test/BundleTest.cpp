//===- BundleTest.cpp - Bundles, whole and damaged ------------------------===//
#include "TestBundle.h"

#include "foresight/runtime/Bundle.h"
#include "foresight/support/Hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>

namespace foresight::test {
namespace {

using bundle::Header;
using bundle::SectionKind;
using testing::HasSubstr;

/// Opens `bytes` as a file. A test that opens many reuses one name.
Result<Bundle> openBytes(const std::string &bytes) {
  const std::string path = temporaryPath("altered.fsb");
  writeFile(path, bytes);
  return Bundle::open(path);
}

void expectBad(const std::string &bytes, const std::string &message = "") {
  const Result<Bundle> bundle = openBytes(bytes);
  ASSERT_FALSE(bundle.ok());
  EXPECT_EQ(bundle.error().code, ErrorCode::BadBundle)
      << bundle.error().message;
  EXPECT_THAT(bundle.error().message, HasSubstr("altered.fsb"));
  EXPECT_THAT(bundle.error().message, HasSubstr(message));
}

void expectBadManifest(const Json &manifest, const std::string &message) {
  TestModel model;
  model.manifest = manifest;
  expectBad(model.image().bytes(), message);
}

/// Gives a changed header or table its checksums again.
std::string resealed(std::string bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.tableChecksum = hash64(std::as_bytes(
      std::span(bytes.data() + header.tableOffset,
                header.sectionCount * sizeof(bundle::SectionEntry))));
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.headerChecksum = hash64(
      std::as_bytes(std::span(bytes.data(), offsetof(Header, headerChecksum))));
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

TEST(Bundle, OpensAndShowsItsSections) {
  TestModel model;
  Result<Bundle> bundle = Bundle::open(model.write("good.fsb"));
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  EXPECT_EQ(bundle->manifest().model.name, "made-up");
  EXPECT_EQ(bundle->manifestText(), model.manifest.dump());
  EXPECT_EQ(bundle->tokenizer(), "{}");
  EXPECT_EQ(bundle->profile(), "");
  EXPECT_EQ(bundle->weights().size(), model.weights().size());
  EXPECT_EQ(bundle->weightBlocks(), 1u);
  EXPECT_FALSE(bundle->section(SectionKind::kCode, "base").empty());
  EXPECT_TRUE(bundle->section(SectionKind::kCode, "other").empty());
  EXPECT_EQ(bundle->manifest().entries.size(), 3u);
  EXPECT_EQ(bundle->manifest().selections.front().rule, "skip");
}

TEST(Bundle, CopiesAndChecksWeights) {
  TestModel model;
  Result<Bundle> bundle = Bundle::open(model.write("weights.fsb"));
  ASSERT_TRUE(bundle.ok());
  std::string copy(model.weights().size(), 'x');
  EXPECT_TRUE(bundle->checkWeights(0).ok());
  ASSERT_TRUE(
      bundle->readWeights(0, std::as_writable_bytes(std::span(copy))).ok());
  EXPECT_EQ(copy, model.weights());
  std::string block(copy.size(), 'x');
  const Result<size_t> bytes =
      bundle->copyBlock(0, std::as_writable_bytes(std::span(block)));
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(block.substr(0, *bytes), model.weights());
}

TEST(Bundle, IsFoundBehindAnExecutable) {
  TestModel model;
  for (size_t padding : {size_t(4096), size_t(777)}) {
    const std::string bundle = model.image().bytes();
    std::string file(padding, '\177');
    bundle::ExecutableTrailer trailer{file.size(), bundle.size(), {}};
    std::memcpy(trailer.magic, bundle::kMagic, sizeof(trailer.magic));
    file += bundle;
    file.append(reinterpret_cast<const char *>(&trailer), sizeof(trailer));
    const std::string path = temporaryPath("program");
    writeFile(path, file);
    EXPECT_TRUE(Bundle::hasTrailer(path));
    Result<Bundle> opened = Bundle::open(path);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    std::string copy(model.weights().size(), 'x');
    ASSERT_TRUE(
        opened->readWeights(0, std::as_writable_bytes(std::span(copy))).ok());
    EXPECT_EQ(copy, model.weights());

    trailer.bundleBytes += 1;
    file.resize(file.size() - sizeof(trailer));
    file.append(reinterpret_cast<const char *>(&trailer), sizeof(trailer));
    expectBad(file);
  }
  EXPECT_FALSE(Bundle::hasTrailer(model.write("plain.fsb")));
}

TEST(Bundle, MissingFileIsBadInput) {
  const Result<Bundle> bundle = Bundle::open("/nonexistent/m.fsb");
  ASSERT_FALSE(bundle.ok());
  EXPECT_EQ(bundle.error().code, ErrorCode::BadInput);
  EXPECT_THAT(bundle.error().message, HasSubstr("/nonexistent/m.fsb"));
}

TEST(Bundle, OtherFilesAreNoBundles) {
  expectBad("", "not a Foresight bundle");
  expectBad("x", "not a Foresight bundle");
  expectBad(std::string(100000, '\0'), "not a Foresight bundle");
  expectBad("FORESIT\n", "truncated");
}

TEST(Bundle, TruncatedAnywhereIsAnError) {
  const std::string bytes = TestModel().image().bytes();
  for (size_t length = 0; length < bytes.size();
       length += length < 400 ? 1 : 1009)
    expectBad(bytes.substr(0, length));
  expectBad(bytes.substr(0, bytes.size() - 1));
  expectBad(bytes + "x");
}

TEST(Bundle, BytesBetweenSectionsMustBeZero) {
  const BundleImage image = TestModel().image();
  const std::string bytes = image.bytes();
  for (const size_t at :
       {image.offsetOf(SectionKind::kManifest) - 1,
        image.offsetOf(SectionKind::kWeights) - 1, bytes.size() - 1}) {
    std::string changed = bytes;
    ASSERT_EQ(changed[at], '\0') << at;
    changed[at] = 1;
    expectBad(changed, "lies between its sections");
  }
}

TEST(Bundle, EveryAlteredByteOfHeaderTableAndManifestIsFound) {
  const TestModel model;
  const BundleImage image = model.image();
  const std::string bytes = image.bytes();
  const size_t frame = sizeof(Header) + (image.sections.size() + 1) *
                                            sizeof(bundle::SectionEntry);
  const size_t manifest = image.offsetOf(SectionKind::kManifest);
  const std::string path = temporaryPath("altered.fsb");
  writeFile(path, bytes);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](size_t at, char value) {
    file.seekp(static_cast<std::streamoff>(at)).put(value).flush();
  };
  const auto flip = [&](size_t at) {
    put(at, static_cast<char>(bytes[at] ^ (1 << at % 8)));
    const Result<Bundle> bundle = Bundle::open(path);
    ASSERT_FALSE(bundle.ok()) << "byte " << at;
    EXPECT_EQ(bundle.error().code, ErrorCode::BadBundle);
    put(at, bytes[at]);
  };
  for (size_t at = 0; at < frame; ++at)
    flip(at);
  for (size_t at = 0; at < image.sections[0].bytes.size(); at += 3)
    flip(manifest + at);
  flip(image.offsetOf(SectionKind::kCode) + 100);
  flip(image.offsetOf(SectionKind::kTokenizer) + 1);
  flip(image.offsetOf(SectionKind::kChecksums) + 3);
  // The file as it was: what was found was the altered byte.
  EXPECT_TRUE(Bundle::open(path).ok());
}

TEST(Bundle, AlteredWeightIsFoundWhenItIsRead) {
  const BundleImage image = TestModel().image();
  std::string bytes = image.bytes();
  bytes[image.offsetOf(SectionKind::kWeights) + 5] ^= 4;
  Result<Bundle> bundle = openBytes(bytes);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  std::string copy(bundle->weights().size(), 'x');
  const auto to = std::as_writable_bytes(std::span(copy));
  const Result<size_t> copied = bundle->copyBlock(0, to);
  for (const Status &status :
       {bundle->checkWeights(0), bundle->readWeights(0, to),
        copied.ok() ? Status() : Status(copied.error())}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::BadBundle);
    EXPECT_THAT(status.error().message, HasSubstr("weights"));
  }
}

TEST(Bundle, NewerFormatSaysSo) {
  std::string bytes = TestModel().image().bytes();
  const uint32_t version = bundle::kFormatVersion + 1;
  std::memcpy(bytes.data() + offsetof(Header, version), &version, 4);
  expectBad(bytes, "format 2");
  expectBad(resealed(bytes), "format 2");
  Json manifest = TestModel().manifest;
  manifest["format"] = 2;
  expectBadManifest(manifest, "format 2");
}

TEST(Bundle, TableBeyondTheFileIsAnErrorEvenWithGoodChecksums) {
  const std::string bytes = TestModel().image().bytes();
  const auto with = [&](auto change) {
    std::string altered = bytes;
    bundle::SectionEntry entry;
    std::memcpy(&entry, altered.data() + sizeof(Header), sizeof(entry));
    change(entry);
    std::memcpy(altered.data() + sizeof(Header), &entry, sizeof(entry));
    return resealed(altered);
  };
  expectBad(with([](auto &e) { e.offset += 1; }), "does not lie in the file");
  expectBad(with([](auto &e) { e.offset = ~uint64_t(4095); }),
            "does not lie in the file");
  expectBad(with([](auto &e) { e.bytes = ~uint64_t(0); }),
            "does not lie in the file");
  expectBad(with([](auto &e) { e.firstChecksum = ~uint64_t(0); }),
            "lacks checksums");
  expectBad(with([](auto &e) { e.kind = SectionKind::kWeights; }),
            "two sections");
  expectBad(with([](auto &e) { e.kind = SectionKind::kProfile; }),
            "no manifest");
}

TEST(Bundle, ManifestRulesAreChecked) {
  const Json good = TestModel().manifest;
  const auto with = [&](const char *pointer, Json value) {
    Json altered = good;
    altered[Json::json_pointer(pointer)] = std::move(value);
    return altered;
  };
  expectBadManifest(with("/buffers/4/offset", 32), "aligned");
  expectBadManifest(with("/buffers/4/offset", 1 << 20), "beyond the arena");
  expectBadManifest(with("/buffers/4/row_bytes", 8), "too short");
  expectBadManifest(with("/weights/0/offset", 4), "aligned");
  expectBadManifest(with("/weights/0/bytes", 4), "needs");
  expectBadManifest(with("/weights/3/offset", 1 << 30), "beyond");
  expectBadManifest(with("/weights/0/shape", {4, 4, 4}), "dimensions");
  expectBadManifest(with("/kernels/5/library", "blas"), "library");
  expectBadManifest(with("/entries/decode/stages/1/after", {1}), "not before");
  expectBadManifest(with("/entries/decode/stages/1/kernel", 99), "kernel 99");
  expectBadManifest(with("/entries/decode/stages/1/args/0/buffer", 99),
                    "buffer 99");
  expectBadManifest(with("/entries/decode/stages/1/args/0/weight", 0),
                    "one buffer or one weight");
  expectBadManifest(with("/entries/decode/stages/1/units", 0), "units");
  expectBadManifest(with("/entries/decode/stages/1/counts", 4), "int32");
  expectBadManifest(with("/entries/decode/stages/1/kernel", 5), "gemm");
  expectBadManifest(with("/entries/prefill/stages/1/gemm/k", 63), "buffer 'x'");
  expectBadManifest(with("/entries/prefill/stages/1/gemm/weight", 1), "matrix");
  // Only a GPU's library reads and writes rows of 16 bits.
  expectBadManifest(with("/buffers/4/element", "f16"), "buffer 'x'");
  expectBadManifest(with("/buffers/5/element", "f16"), "buffer 'y'");
  expectBadManifest(with("/entries/prefill/max_tokens", 5), "buffer 'ids'");
  expectBadManifest(with("/entries/decode/outputs/logits", 4), "logits");
  expectBadManifest(with("/model/ffn_dim", {1, 2}), "ffn_dim");
  // Numbers that memory or time would be spent on before anything is run.
  Json cache = good;
  cache["buffers"][4].update({{"row_bytes", int64_t(1) << 48},
                              {"rows", INT32_MAX},
                              {"kv",
                               {{"heads", 1 << 20},
                                {"head_dim", 1 << 20},
                                {"capacity", INT32_MAX},
                                {"sequences", 1 << 20}}}});
  expectBadManifest(cache, "too large");
  expectBadManifest(with("/model/vocab_size", INT32_MAX), "vocab_size");
  expectBadManifest(with("/entries/prefill/max_tokens", 1 << 20), "max_tokens");
  expectBadManifest(with("/selections/0/stage", 99), "stage 99");
  Json noDecode = good;
  noDecode["entries"].erase("decode");
  noDecode["selections"] = Json::array();
  expectBadManifest(noDecode, "no entry 'decode'");
}

/// Replaces every value of the manifest by other values, one at a time: an
/// error or a bundle, never a crash.
TEST(Bundle, NoManifestCrashes) {
  Json good = TestModel().manifest;
  for (const char *entry : {"decode", "decode_dense"}) {
    Json &stages = good["entries"][entry]["stages"];
    stages.erase(stages.begin() + 4, stages.end()); // all alike
  }
  const Json values[] = {nullptr,       true,          -1, 1e300, INT64_MAX, "",
                         Json::array(), Json::object()};
  const std::string where = "test";
  std::set<std::string> places;
  const Json flat = good.flatten();
  for (const auto &[pointer, value] : flat.items())
    for (std::string at = pointer; !at.empty(); at.resize(at.rfind('/')))
      places.insert(at);
  int errors = 0;
  for (const std::string &at : places)
    for (const Json &other : values) {
      Json altered = good;
      altered[Json::json_pointer(at)] = other;
      errors += !parseManifest(altered.dump(), where, 1 << 20).ok();
    }
  EXPECT_GT(errors, 500);
  EXPECT_FALSE(parseManifest("", where, 0).ok());
  EXPECT_FALSE(parseManifest("[]", where, 0).ok());
  EXPECT_FALSE(parseManifest("{}", where, 0).ok());
  EXPECT_FALSE(parseManifest(std::string(100000, '['), where, 0).ok());
}

} // namespace
} // namespace foresight::test
