//===- BundleWriterTest.cpp - The frame of a bundle -----------------------===//

#include "foresight/Target/Bundle/BundleWriter.h"
#include "foresight/support/MappedFile.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace foresight;
using namespace foresight::bundle;

namespace {

class BundleWriterTest : public testing::Test {
protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() /
             ("bundle-writer-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string at(const char *name) const { return folder / name; }
  size_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  }
  static std::string slurp(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path folder;
};

template <typename T> T read(const std::string &bytes, uint64_t offset) {
  T value;
  EXPECT_LE(offset + sizeof value, bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

uint64_t hashOf(const std::string &bytes, uint64_t offset, uint64_t count) {
  return hash64(std::as_bytes(std::span(bytes)).subspan(offset, count));
}

/// Two sections, the second of more than one block and an odd length.
void writeSample(BundleWriter &writer) {
  ASSERT_TRUE(writer.section(SectionKind::kManifest, "", "{}").ok());
  ASSERT_TRUE(writer.begin(SectionKind::kWeights).ok());
  std::string data(kChecksumBlock / 4 + 1, 'w');
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(writer.write(data).ok());
    ASSERT_TRUE(writer.align(64).ok());
  }
  ASSERT_TRUE(writer.end().ok());
}

void checkSample(const std::string &file, uint64_t base, uint64_t bytes) {
  auto header = read<Header>(file, base);
  EXPECT_EQ(std::memcmp(header.magic, kMagic, sizeof kMagic), 0);
  EXPECT_EQ(header.version, kFormatVersion);
  EXPECT_EQ(header.fileBytes, bytes);
  EXPECT_EQ(header.headerChecksum,
            hashOf(file, base, offsetof(Header, headerChecksum)));
  ASSERT_EQ(header.sectionCount, 3u);
  EXPECT_EQ(header.tableChecksum,
            hashOf(file, base + header.tableOffset, 3 * sizeof(SectionEntry)));
  SectionEntry entries[3];
  for (int i = 0; i < 3; ++i) {
    entries[i] = read<SectionEntry>(file, base + header.tableOffset +
                                              i * sizeof(SectionEntry));
    EXPECT_EQ(entries[i].offset % kSectionAlignment, 0u);
    EXPECT_LE(entries[i].offset + entries[i].bytes, bytes);
  }
  EXPECT_EQ(entries[0].kind, SectionKind::kManifest);
  EXPECT_EQ(entries[0].bytes, 2u);
  EXPECT_EQ(entries[1].kind, SectionKind::kWeights);
  EXPECT_EQ(entries[1].firstChecksum, 1u);
  EXPECT_EQ(entries[1].bytes, 5 * (kChecksumBlock / 4 + 64));
  EXPECT_EQ(entries[2].kind, SectionKind::kChecksums);
  ASSERT_EQ(entries[2].bytes, 3 * sizeof(uint64_t));
  uint64_t sums = base + entries[2].offset;
  EXPECT_EQ(read<uint64_t>(file, sums),
            hashOf(file, base + entries[0].offset, 2));
  EXPECT_EQ(read<uint64_t>(file, sums + 8),
            hashOf(file, base + entries[1].offset, kChecksumBlock));
  EXPECT_EQ(read<uint64_t>(file, sums + 16),
            hashOf(file, base + entries[1].offset + kChecksumBlock,
                   entries[1].bytes - kChecksumBlock));
}

TEST_F(BundleWriterTest, FrameChecksumsAndAlignmentAreAsTheFormatSays) {
  auto writer = BundleWriter::create(at("a.fsb"));
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  writeSample(*writer);
  EXPECT_EQ(files(), 0u) << "the file has a name before commit";
  ASSERT_TRUE(writer->commit().ok());
  std::string file = slurp(at("a.fsb"));
  EXPECT_EQ(writer->bytes(), file.size());
  checkSample(file, 0, file.size());
  EXPECT_EQ(files(), 1u);
}

TEST_F(BundleWriterTest, EqualSectionsGiveEqualBytes) {
  for (const char *name : {"a.fsb", "b.fsb"}) {
    auto writer = BundleWriter::create(at(name));
    ASSERT_TRUE(writer.ok());
    writeSample(*writer);
    ASSERT_TRUE(writer->commit().ok());
  }
  EXPECT_EQ(slurp(at("a.fsb")), slurp(at("b.fsb")));
}

TEST_F(BundleWriterTest, BlocksInAnyOrderGiveTheSameFile) {
  std::string data(kChecksumBlock + 1000, 'w');
  data[kChecksumBlock] = 'x';
  auto bytes = std::as_bytes(std::span(data));
  for (bool blocks : {false, true}) {
    auto writer = BundleWriter::create(at(blocks ? "a.fsb" : "b.fsb"));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->section(SectionKind::kManifest, "", "{}").ok());
    if (blocks) {
      ASSERT_TRUE(writer->beginBlocks(SectionKind::kWeights, data.size()).ok());
      ASSERT_TRUE(
          writer->writeBlock(kChecksumBlock, bytes.subspan(kChecksumBlock))
              .ok());
      ASSERT_TRUE(writer->writeBlock(0, bytes.first(kChecksumBlock)).ok());
      EXPECT_FALSE(writer->writeBlock(64, bytes.first(100)).ok());
      ASSERT_TRUE(writer->end().ok());
    } else {
      ASSERT_TRUE(writer->section(SectionKind::kWeights, "", data).ok());
    }
    ASSERT_TRUE(writer->section(SectionKind::kProfile, "", "p").ok());
    ASSERT_TRUE(writer->commit().ok());
  }
  EXPECT_EQ(slurp(at("a.fsb")), slurp(at("b.fsb")));
}

TEST_F(BundleWriterTest, ExecutableIsProgramThenBundleThenTrailer) {
  std::ofstream(at("program")) << std::string(5000, 'p');
  auto writer = BundleWriter::createExecutable(at("exe"), at("program"));
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  writeSample(*writer);
  ASSERT_TRUE(writer->commit().ok());
  std::string file = slurp(at("exe"));
  EXPECT_EQ(file.substr(0, 5000), std::string(5000, 'p'));
  auto trailer =
      read<ExecutableTrailer>(file, file.size() - sizeof(ExecutableTrailer));
  EXPECT_EQ(std::memcmp(trailer.magic, kMagic, sizeof kMagic), 0);
  EXPECT_EQ(trailer.bundleOffset % kSectionAlignment, 0u);
  EXPECT_EQ(trailer.bundleOffset + trailer.bundleBytes +
                sizeof(ExecutableTrailer),
            file.size());
  checkSample(file, trailer.bundleOffset, trailer.bundleBytes);
  EXPECT_EQ(access(at("exe").c_str(), X_OK), 0);
}

TEST_F(BundleWriterTest, WithoutCommitTheEarlierBundleStays) {
  std::ofstream(at("a.fsb")) << "earlier";
  {
    auto writer = BundleWriter::create(at("a.fsb"));
    ASSERT_TRUE(writer.ok());
    writeSample(*writer);
  }
  EXPECT_EQ(slurp(at("a.fsb")), "earlier");
  EXPECT_EQ(files(), 1u);
}

TEST_F(BundleWriterTest, FullDiskIsAResourceErrorAndLeavesNothing) {
  std::ofstream(at("a.fsb")) << "earlier";
  pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto writer = BundleWriter::create(at("a.fsb"));
    if (!writer.ok() || !writer->begin(SectionKind::kWeights).ok())
      _exit(1);
    Status written = writer->write(std::string(2 << 20, 'w'));
    _exit(written.ok() ? 2 : exitCode(written.error().code));
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), exitCode(ErrorCode::Resource));
  EXPECT_EQ(slurp(at("a.fsb")), "earlier");
  EXPECT_EQ(files(), 1u);
}

TEST_F(BundleWriterTest, KilledWhileWritingLeavesNothing) {
  std::ofstream(at("a.fsb")) << "earlier";
  for (int number : {SIGKILL, SIGINT, SIGTERM}) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
      auto writer = BundleWriter::create(at("a.fsb"));
      if (!writer.ok())
        _exit(1);
      writeSample(*writer);
      (void)!write(ready[1], "x", 1);
      pause();
      _exit(0);
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    kill(child, number);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(slurp(at("a.fsb")), "earlier");
    EXPECT_EQ(files(), 1u) << "after signal " << number;
    close(ready[0]);
    close(ready[1]);
  }
}

} // namespace
