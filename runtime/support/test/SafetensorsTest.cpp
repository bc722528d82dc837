//===- SafetensorsTest.cpp ------------------------------------------------===//

#include "foresight/support/Safetensors.h"

#include "SafetensorsWriter.h"
#include "TempFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace foresight;
using namespace foresight::test;
using testing::HasSubstr;

namespace {

class SafetensorsTest : public testing::Test {
protected:
  /// The error of a file with this header and 16 bytes of data.
  Error errorOf(const std::string &header) {
    const std::string path = folder.write(
        "bad.safetensors", safetensorsBytes(header, std::string(16, 'x')));
    auto file = Safetensors::openFile(path);
    EXPECT_FALSE(file.ok()) << header;
    return file.ok() ? Error{} : file.error();
  }

  TempFolder folder;
};

TEST_F(SafetensorsTest, GivesTypeShapeAndPlaceOfEachTensor) {
  SafetensorsWriter writer;
  writer.add("b", {2, 2}, {1, 2, 3, 4});
  const uint16_t half = 0x3c00;
  writer.add("a", "F16", {1}, &half, 2);
  const std::string path = folder.write("m.safetensors", writer.bytes());
  auto file = Safetensors::openFile(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const TensorInfo *b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, ElementType::F32);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 2}));
  float last;
  std::memcpy(&last, b->data() + 12, 4);
  EXPECT_EQ(last, 4);
  EXPECT_EQ(file->find("a")->offset, b->offset + 16);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST_F(SafetensorsTest, ReadsTheShardsOfTheTrainedExample) {
  auto file =
      Safetensors::openFolder(FORESIGHT_SOURCE_DIR "/examples/opt-mini");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->files().size(), 3u);
  EXPECT_EQ(file->tensors().size(), 4u + 8 * 16);
  EXPECT_EQ(file->metadata().at("format"), "pt");
}

TEST_F(SafetensorsTest, RefusesAFileThatIsCutAnywhere) {
  SafetensorsWriter writer;
  writer.add("a", {2}, {1, 2});
  const std::string whole = writer.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.write("cut", whole.substr(0, size));
    auto file = Safetensors::openFile(path);
    ASSERT_FALSE(file.ok()) << size;
    EXPECT_EQ(file.error().code, ErrorCode::BadInput);
    EXPECT_THAT(file.error().message, HasSubstr(path));
  }
}

TEST_F(SafetensorsTest, RefusesRangesOutsideTheData) {
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}})")
          .message,
      HasSubstr("ends at byte 20 of the data but the file has only 16"));
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})")
          .message,
      HasSubstr("data_offsets"));
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})")
          .message,
      HasSubstr("data_offsets"));
}

TEST_F(SafetensorsTest, RefusesShapesThatDoNotFillTheirRange) {
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})")
          .message,
      HasSubstr("does not fill 16 bytes"));
  // 2^32 * 2^32 elements are 0 elements in 64 bits.
  EXPECT_THAT(errorOf(R"({"a":{"dtype":"F32",
      "shape":[4294967296,4294967296],"data_offsets":[0,0]}})")
                  .message,
              HasSubstr("more elements"));
}

TEST_F(SafetensorsTest, RefusesTensorsThatShareBytes) {
  const Error error = errorOf(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
          "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})");
  EXPECT_THAT(error.message, HasSubstr("'a' and 'b' overlap"));
}

TEST_F(SafetensorsTest, RefusesANameThatOccursTwice) {
  const Error error = errorOf(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
          "a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})");
  EXPECT_THAT(error.message, HasSubstr("\"a\" occurs twice"));
}

TEST_F(SafetensorsTest, RefusesTypesItDoesNotKnow) {
  const Error error =
      errorOf(R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})");
  EXPECT_EQ(error.code, ErrorCode::Unsupported);
  EXPECT_THAT(error.message, HasSubstr("F8_E4M3"));
}

TEST_F(SafetensorsTest, RefusesAnIndexThatLeavesItsFolder) {
  const std::string path =
      folder.write("model.safetensors.index.json",
                   R"({"weight_map":{"a":"../other/model.safetensors"}})");
  auto file = Safetensors::openIndex(path);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("a file beside the index"));
}

TEST_F(SafetensorsTest, RefusesAnIndexThatNamesWhatIsNotThere) {
  SafetensorsWriter writer;
  writer.add("a", {1}, {1});
  folder.write("one.safetensors", writer.bytes());
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"one.safetensors",
                                 "b":"one.safetensors"}})");
  auto file = Safetensors::openFolder(folder.str());
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("'b' is said to be in"));

  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"two.safetensors"}})");
  file = Safetensors::openFolder(folder.str());
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("two.safetensors"));
}

TEST_F(SafetensorsTest, HasWhatTheIndexListsAndNoMore) {
  SafetensorsWriter writer;
  writer.add("a", {1}, {1});
  writer.add("b", {1}, {2});
  folder.write("one.safetensors", writer.bytes());
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"one.safetensors"}})");
  auto file = Safetensors::openFolder(folder.str());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_NE(file->find("a"), nullptr);
  EXPECT_EQ(file->find("b"), nullptr);
  EXPECT_EQ(file->findUnlisted("a"), nullptr);
  ASSERT_NE(file->findUnlisted("b"), nullptr);
  EXPECT_THAT(*file->findUnlisted("b"), HasSubstr("one.safetensors"));
}

TEST_F(SafetensorsTest, RefusesTheSameTensorInTwoShards) {
  SafetensorsWriter writer;
  writer.add("a", {1}, {1});
  folder.write("one.safetensors", writer.bytes());
  writer.add("b", {1}, {1});
  folder.write("two.safetensors", writer.bytes());
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"one.safetensors",
                                 "b":"two.safetensors"}})");
  auto file = Safetensors::openFolder(folder.str());
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("'a' is also in"));
}

TEST_F(SafetensorsTest, LinksOutOfTheFolderAreRefusedButForTheHubsOwn) {
  namespace fs = std::filesystem;
  SafetensorsWriter writer;
  writer.add("a", {1}, {1});
  for (const char *name : {"model/snapshots/1", "model/blobs", "other"})
    fs::create_directories(folder / name);
  folder.write("model/blobs/hash", writer.bytes());
  folder.write("other/file", writer.bytes());
  const std::string snapshot = folder / "model/snapshots/1";
  const std::string link = snapshot + "/model.safetensors";

  fs::create_symlink("../../blobs/hash", link);
  auto file = Safetensors::openFolder(snapshot);
  EXPECT_TRUE(file.ok()) << file.error().message;

  for (bool sharded : {false, true}) {
    fs::remove(link);
    fs::create_symlink("../../../other/file", link);
    if (sharded)
      folder.write("model/snapshots/1/model.safetensors.index.json",
                   R"({"weight_map":{"a":"model.safetensors"}})");
    file = Safetensors::openFolder(snapshot);
    ASSERT_FALSE(file.ok());
    EXPECT_THAT(file.error().message, HasSubstr("outside the model's folder"));
  }
}

} // namespace
