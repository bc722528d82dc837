//===- BadBundleTest.cpp - Bundles and prompts that cannot be run ---------===//

#include "Harness.h"

#include "foresight/Target/Bundle/BundleWriter.h"
#include "foresight/runtime/Bundle.h"

#include <cstring>
#include <random>
#include <sys/stat.h>

using namespace foresight;
using namespace foresight::bundle;
using namespace foresight::test;

namespace {

constexpr int kUsage = 2, kBadInput = 3, kBadBundle = 5;

class BadBundle : public testing::Test {
protected:
  void SetUp() override {
    good = compiled({source("examples/opt-mini")});
    bytes = readFile(good);
  }

  static ProcessResult generate(const std::string &bundle,
                                const std::vector<std::string> &more = {
                                    "--prompt", "The"}) {
    std::vector<std::string> command = {tool("foresight"), "run", bundle,
                                        "--max-new-tokens", "1"};
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  }
  void refused(const std::string &changed,
               const std::vector<std::string> &parts) {
    writeFile(folder / "m.fsb", changed);
    std::vector<std::string> all = parts;
    all.insert(all.begin(), "m.fsb");
    expectError(generate(folder / "m.fsb"), "foresight", kBadBundle, all);
  }
  Header header() const {
    Header value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::vector<SectionEntry> table() const {
    std::vector<SectionEntry> entries(header().sectionCount);
    std::memcpy(entries.data(), bytes.data() + header().tableOffset,
                entries.size() * sizeof(SectionEntry));
    return entries;
  }
  /// The same bundle with another manifest, checksums and all.
  void rewrite(const std::string &from, const std::string &to) {
    auto bundle = Bundle::open(good);
    ASSERT_TRUE(bundle.ok());
    std::string manifest(bundle->manifestText());
    size_t count = 0;
    for (size_t at = 0; (at = manifest.find(from, at)) != std::string::npos;
         at += to.size(), ++count)
      manifest.replace(at, from.size(), to);
    ASSERT_GT(count, 0u) << from;
    auto writer = BundleWriter::create(folder / "m.fsb");
    ASSERT_TRUE(writer.ok());
    for (const Bundle::Section &section : bundle->sections()) {
      std::string data = bytes.substr(section.offset, section.bytes);
      if (section.kind == SectionKind::kManifest)
        data = manifest;
      if (section.kind != SectionKind::kChecksums)
        ASSERT_TRUE(writer->section(section.kind, section.name, data).ok());
    }
    ASSERT_TRUE(writer->commit().ok());
  }

  std::string good, bytes;
  TemporaryFolder folder;
};

TEST_F(BadBundle, AGoodOneRuns) {
  ProcessResult result = generate(good);
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_NE(result.output, "");
}

TEST_F(BadBundle, Missing) {
  expectError(generate(folder / "no.fsb"), "foresight", kBadInput, {"no.fsb"});
}

TEST_F(BadBundle, NotAFile) {
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string &path :
       {folder.path().string(), folder / "pipe", std::string("/dev/null")}) {
    SCOPED_TRACE(path);
    expectError(generate(path), "foresight", kBadInput, {path});
  }
}

TEST_F(BadBundle, Truncated) {
  for (size_t keep : {size_t{0}, size_t{7}, sizeof(Header), size_t{4096},
                      bytes.size() / 2, bytes.size() - 1}) {
    SCOPED_TRACE(keep);
    refused(bytes.substr(0, keep), {});
  }
}

TEST_F(BadBundle, NotABundle) {
  refused(std::string(100000, 'x'), {});
  refused(readFile(source("examples/opt-mini/model.onnx")), {});
}

TEST_F(BadBundle, OneBitAlteredAnywhere) {
  std::mt19937_64 random(11);
  std::vector<std::pair<std::string, size_t>> places = {
      {"header", random() % sizeof(Header)},
      {"table", header().tableOffset + random() % sizeof(SectionEntry)}};
  for (const SectionEntry &section : table()) {
    std::string name = "section " + std::to_string(int(section.kind));
    places.emplace_back(name + " start", section.offset);
    places.emplace_back(name, section.offset + random() % section.bytes);
    places.emplace_back(name + " end", section.offset + section.bytes - 1);
  }
  // What lies between sections is read by nobody, and still must be right.
  places.emplace_back("behind the table", table().front().offset - 1);
  places.emplace_back("the last byte", bytes.size() - 1);
  for (int i = 0; i < 24; ++i)
    places.emplace_back("anywhere", random() % bytes.size());
  for (const auto &[name, at] : places) {
    SCOPED_TRACE(name + ", byte " + std::to_string(at));
    std::string changed = bytes;
    changed[at] ^= 1 << (random() % 8);
    refused(changed, {});
  }
}

TEST_F(BadBundle, OfANewerFormat) {
  std::string changed = bytes;
  Header newer = header();
  newer.version = kFormatVersion + 1;
  std::memcpy(changed.data(), &newer, sizeof newer);
  newer.headerChecksum = hash64(std::as_bytes(std::span(changed))
                                    .first(offsetof(Header, headerChecksum)));
  std::memcpy(changed.data(), &newer, sizeof newer);
  refused(changed, {"format", std::to_string(kFormatVersion + 1)});
}

TEST_F(BadBundle, ForAnotherInstructionSet) {
  rewrite("\"avx2\"", "\"sve2\"");
  expectError(generate(folder / "m.fsb"), "foresight", kBadBundle,
              {"m.fsb", "sve2"});
}

TEST_F(BadBundle, ForAnotherDevice) {
  rewrite("\"device\": \"cpu\"", "\"device\": \"tpu\"");
  expectError(generate(folder / "m.fsb"), "foresight", kBadBundle,
              {"m.fsb", "tpu"});
}

TEST_F(BadBundle, WithAManifestThatContradictsItself) {
  rewrite("\"arena_bytes\"", "\"arena_bites\"");
  expectError(generate(folder / "m.fsb"), "foresight", kBadBundle,
              {"m.fsb", "arena_bytes"});
}

TEST_F(BadBundle, Prompts) {
  std::string longIds = "2";
  for (int i = 0; i < 1024; ++i)
    longIds += ",5";
  const std::pair<std::vector<std::string>, const char *> cases[] = {
      {{"--ids", longIds}, "1024"},
      {{"--ids", "2,8192"}, "8192"},
      {{"--ids", "2,-1"}, "-1"},
      {{"--ids", "2,x"}, "x"},
      {{"--prompt", "caf\xe9"}, "UTF-8"},
      {{"--prompt", ""}, "needs a value"},
      {{"--prompt-file", "/dev/null"}, "empty"},
  };
  for (const auto &[arguments, part] : cases) {
    SCOPED_TRACE(part);
    expectError(generate(good, arguments), "foresight", kUsage, {part});
  }
}

} // namespace
