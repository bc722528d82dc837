//===- FilesTest.cpp - Mapped files and atomic files ----------------------===//

#include "foresight/support/AtomicFile.h"
#include "foresight/support/MappedFile.h"

#include "TempFolder.h"

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace foresight;
using namespace foresight::test;
using testing::HasSubstr;

namespace {

TEST(MappedFileTest, MapsAnUnalignedRange) {
  TempFolder folder;
  std::string text(10000, 'a');
  text[5001] = 'b';
  const std::string path = folder.write("f", text);
  auto file = MappedFile::openRange(path, 5001, 3);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->size(), 3u);
  EXPECT_EQ(file->data()[0], std::byte{'b'});
  EXPECT_TRUE(file->slice(1, 2).ok());
  EXPECT_FALSE(file->slice(1, 3).ok());
  EXPECT_FALSE(file->slice(UINT64_MAX, 2).ok());
  file->release(0, 3);
  EXPECT_EQ(file->data()[0], std::byte{'b'});
}

TEST(MappedFileTest, ErrorsNameTheFile) {
  TempFolder folder;
  for (const std::string &path :
       {folder / "absent", folder.str(), std::string("/dev/null")}) {
    auto file = MappedFile::open(path);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, ErrorCode::BadInput);
    EXPECT_THAT(file.error().message, HasSubstr(path));
  }
  const std::string small = folder.write("small", "abc");
  EXPECT_FALSE(MappedFile::openRange(small, 2, 2).ok());
  EXPECT_FALSE(MappedFile::openRange(small, 4, 0).ok());
  EXPECT_TRUE(MappedFile::openRange(small, 3, 0).ok());
}

TEST(AtomicFileTest, AppearsWholeOnCommit) {
  TempFolder folder;
  const std::string path = folder.write("out", "old");
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_TRUE(file->reserve(1 << 20).ok());
    ASSERT_TRUE(file->write("new").ok());
    file->seek(8);
    ASSERT_TRUE(file->write("!").ok());
    ASSERT_TRUE(file->writeAt(1, std::as_bytes(std::span("E", 1))).ok());
    EXPECT_EQ(folder.read("out"), "old");
    ASSERT_TRUE(file->commit().ok());
  }
  EXPECT_EQ(folder.read("out"), std::string("nEw\0\0\0\0\0!", 9));
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFileTest, LeavesNothingWithoutCommit) {
  TempFolder folder;
  const std::string path = folder.write("out", "old");
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("half").ok());
  }
  EXPECT_EQ(folder.read("out"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFileTest, ASignalLeavesNothing) {
  for (int signal : {SIGTERM, SIGKILL}) {
    TempFolder folder;
    const std::string path = folder.write("out", "old");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto file = AtomicFile::create(path);
      if (!file.ok() || !file->write("half").ok())
        ::_exit(1);
      ::raise(signal);
      ::_exit(2);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(folder.read("out"), "old");
    EXPECT_EQ(folder.entries(), 1);
  }
}

TEST(AtomicFileTest, AFullDiskIsAnErrorAndKeepsTheOldFile) {
  TempFolder folder;
  const std::string path = folder.write("out", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // A limit on the size of files fails a write as a full disk does.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    bool refused = false;
    {
      auto file = AtomicFile::create(path);
      if (!file.ok())
        ::_exit(1);
      Status status = file->write(std::string(10000, 'x'));
      refused = !status.ok() && status.error().code == ErrorCode::Resource;
    }
    ::_exit(refused ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(folder.read("out"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFileTest, DoesNotReplaceWhatIsNotAFile) {
  auto device = AtomicFile::create("/dev/null");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::Usage);
  auto absent = AtomicFile::create("/nonexistent/folder/m.fsb");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::Resource);
  EXPECT_THAT(absent.error().message, HasSubstr("/nonexistent/folder/m.fsb"));
}

} // namespace
