//===- ExternalDataTest.cpp - Where a tensor's bytes may lie --------------===//

#include "foresight/Import/Onnx/ExternalData.h"

#include "TempFolder.h"

#include <gtest/gtest.h>

using namespace foresight;
using namespace foresight::onnx;
namespace fs = std::filesystem;

namespace {

class ExternalDataTest : public testing::Test {
protected:
  test::TempFolder folder;
  ExternalData data{folder.str()};

  void SetUp() override { folder.write("w.bin", std::string(100, 'w')); }

  /// The error of resolving, or "ok".
  std::string resolve(const std::string &location, int64_t offset,
                      int64_t bytes, int64_t length = -1,
                      const std::string &tensor = "t") {
    auto range = data.resolve(tensor, location, offset, length, bytes);
    return range ? "ok" : llvm::toString(range.takeError());
  }
};

TEST_F(ExternalDataTest, RangeInAFileOfTheFolderIsFound) {
  auto range = data.resolve("t", "w.bin", 8, 16, 16);
  ASSERT_TRUE(static_cast<bool>(range));
  EXPECT_EQ(range->file, folder / "w.bin");
  EXPECT_EQ(range->offset, 8);
  EXPECT_EQ(range->bytes, 16);
}

TEST_F(ExternalDataTest, WholeFileIsFound) {
  EXPECT_EQ(resolve("w.bin", 0, 100), "ok");
}

TEST_F(ExternalDataTest, OneByteBeyondTheFileIsRefused) {
  EXPECT_NE(resolve("w.bin", 1, 100).find("needs 100 bytes at offset 1"),
            std::string::npos);
}

TEST_F(ExternalDataTest, OffsetThatOverflowsIsRefused) {
  EXPECT_NE(resolve("w.bin", INT64_MAX, 100).find("needs 100 bytes"),
            std::string::npos);
  EXPECT_NE(resolve("w.bin", -1, 10).find("negative"), std::string::npos);
}

TEST_F(ExternalDataTest, LengthOtherThanTheShapeNeedsIsRefused) {
  EXPECT_NE(resolve("w.bin", 0, 16, 17).find("17 are stored"),
            std::string::npos);
}

TEST_F(ExternalDataTest, MissingFileIsNamed) {
  EXPECT_NE(resolve("none.bin", 0, 1).find("none.bin' is missing"),
            std::string::npos);
}

TEST_F(ExternalDataTest, LocationsThatLeaveTheFolderAreRefused) {
  for (const std::string &location :
       {std::string("../w.bin"), std::string("a/../../w.bin"),
        std::string("/etc/passwd"), folder / "w.bin"})
    EXPECT_NE(resolve(location, 0, 1).find("outside the model's folder"),
              std::string::npos)
        << location;
  EXPECT_NE(resolve("", 0, 1).find("name no file"), std::string::npos);
  EXPECT_NE(resolve(std::string("w\0.bin", 6), 0, 1).find("zero byte"),
            std::string::npos);
}

TEST_F(ExternalDataTest, FolderIsNotAFile) {
  fs::create_directory(folder / "d");
  EXPECT_NE(resolve("d", 0, 1).find("not a regular file"), std::string::npos);
}

TEST_F(ExternalDataTest, LinkInsideTheFolderIsFollowed) {
  fs::create_symlink("w.bin", folder / "link.bin");
  EXPECT_EQ(resolve("link.bin", 0, 10), "ok");
}

TEST_F(ExternalDataTest, LinkOutOfTheFolderIsRefused) {
  test::TempFolder elsewhere;
  elsewhere.write("secret", "0123456789");
  fs::create_symlink(elsewhere / "secret", folder / "link.bin");
  EXPECT_NE(resolve("link.bin", 0, 10).find("outside the model's folder"),
            std::string::npos);
  // Neither may a folder on the way be a link.
  fs::create_directory_symlink(elsewhere.str(), folder / "sub");
  EXPECT_NE(resolve("sub/secret", 0, 10).find("outside the model's folder"),
            std::string::npos);
}

TEST_F(ExternalDataTest, FolderWithTheSameBeginningIsNotInside) {
  std::string beside = folder.str() + "-2";
  fs::create_directory(beside);
  std::ofstream(beside + "/w.bin") << "0123456789";
  fs::create_symlink(beside + "/w.bin", folder / "link.bin");
  EXPECT_NE(resolve("link.bin", 0, 10).find("outside the model's folder"),
            std::string::npos);
  fs::remove_all(beside);
}

TEST_F(ExternalDataTest, HubCacheLinksToItsBlobs) {
  fs::create_directories(folder / "models--x/blobs");
  fs::create_directories(folder / "models--x/snapshots/abc/onnx");
  folder.write("models--x/blobs/123", std::string(10, 'b'));
  folder.write("models--x/other", std::string(10, 'o'));
  std::string snapshot = folder / "models--x/snapshots/abc/onnx";
  fs::create_symlink("../../../blobs/123", snapshot + "/model.onnx_data");
  fs::create_symlink("../../../other", snapshot + "/stray");
  ExternalData hub(snapshot);
  auto blob = hub.resolve("t", "model.onnx_data", 0, -1, 10);
  EXPECT_TRUE(static_cast<bool>(blob));
  if (!blob)
    llvm::consumeError(blob.takeError());
  auto stray = hub.resolve("t", "stray", 0, -1, 10);
  ASSERT_FALSE(static_cast<bool>(stray));
  EXPECT_NE(llvm::toString(stray.takeError()).find("outside"),
            std::string::npos);
}

TEST_F(ExternalDataTest, TensorsMayShareARangeButNotPartOfOne) {
  EXPECT_EQ(resolve("w.bin", 20, 20, -1, "a"), "ok");
  EXPECT_EQ(resolve("w.bin", 20, 20, -1, "tied"), "ok");
  EXPECT_EQ(resolve("w.bin", 0, 20, -1, "before"), "ok");
  EXPECT_EQ(resolve("w.bin", 40, 20, -1, "after"), "ok");
  for (auto [offset, bytes] : {std::pair<int64_t, int64_t>{20, 10},
                               {20, 30},
                               {30, 5},
                               {39, 1},
                               {10, 80}})
    EXPECT_NE(resolve("w.bin", offset, bytes).find("overlap those of '"),
              std::string::npos)
        << offset << " " << bytes;
  // Something larger that ends inside another one.
  EXPECT_NE(resolve("w.bin", 59, 41).find("overlap those of 'after'"),
            std::string::npos);
}

TEST_F(ExternalDataTest, RangesOverlapWhateverTheFileIsCalled) {
  fs::create_symlink("w.bin", folder / "link.bin");
  EXPECT_EQ(resolve("w.bin", 20, 20, -1, "a"), "ok");
  for (const char *name : {"./w.bin", "link.bin"}) {
    EXPECT_NE(resolve(name, 30, 20).find("overlap those of 'a'"),
              std::string::npos)
        << name;
    EXPECT_EQ(resolve(name, 20, 20), "ok") << name;
  }
}

TEST_F(ExternalDataTest, EmptyTensorTakesNoBytes) {
  EXPECT_EQ(resolve("w.bin", 100, 0), "ok");
  EXPECT_EQ(resolve("w.bin", 0, 100), "ok");
}

} // namespace
