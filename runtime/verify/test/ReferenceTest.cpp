//===- ReferenceTest.cpp --------------------------------------------------===//

#include "SafetensorsWriter.h"
#include "TempFolder.h"

#include "foresight/verify/Compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace foresight;
using namespace foresight::test;
using namespace foresight::verify;

namespace {

class ReferenceFile : public testing::Test {
protected:
  void ints(const std::string &name, const std::vector<int64_t> &shape,
            const std::vector<int64_t> &values) {
    writer.add(name, "I64", shape, values.data(),
               values.size() * sizeof(int64_t));
  }
  /// Logits 0, 1, 2 ... of a vocabulary of two.
  void logits(const std::string &name, const std::vector<int64_t> &shape) {
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    std::vector<float> values(count);
    for (int64_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(i);
    writer.add(name, shape, values);
  }
  Result<Reference> read() {
    return Reference::read(folder.write("r.safetensors", writer.bytes()));
  }
  void refused(ErrorCode code, const std::string &part) {
    auto result = read();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, code);
    EXPECT_NE(result.error().message.find(part), std::string::npos)
        << result.error().message;
  }

  TempFolder folder;
  SafetensorsWriter writer;
};

TEST_F(ReferenceFile, RowsAreReadWithoutTheirPadding) {
  ints("p.input_ids", {3, 3}, {7, 8, 9, 1, 8, 9, 7, 8, 1});
  ints("p.attention_mask", {3, 3}, {1, 1, 1, 0, 1, 1, 1, 1, 0});
  logits("p.logits", {3, 3, 2});
  auto reference = read();
  ASSERT_TRUE(reference.ok()) << reference.error().message;
  ASSERT_EQ(reference->sequences.size(), 3u);
  EXPECT_EQ(reference->sequences[0].ids, (std::vector<int32_t>{7, 8, 9}));
  EXPECT_EQ(reference->sequences[1].ids, (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(reference->sequences[1].name, "p, row 1");
  EXPECT_EQ(reference->sequences[1].row(0), (std::vector<float>{8, 9}));
  EXPECT_EQ(reference->sequences[2].ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(reference->sequences[2].row(1), (std::vector<float>{14, 15}));
}

TEST_F(ReferenceFile, LogitsMayBeThoseOfTheLastToken) {
  ints("input_ids", {1, 3}, {7, 8, 9});
  logits("logits", {1, 2});
  auto reference = read();
  ASSERT_TRUE(reference.ok()) << reference.error().message;
  EXPECT_EQ(reference->sequences[0].firstToken, 2);
  EXPECT_EQ(reference->sequences[0].row(2), (std::vector<float>{0, 1}));
}

TEST_F(ReferenceFile, TheLongestPromptOfAContinuationIsTaken) {
  ints("a.input_ids", {2}, {7, 8});
  logits("a.logits", {2, 2});
  ints("b.input_ids", {3}, {7, 8, 9});
  logits("b.logits", {3, 2});
  ints("b.greedy", {5}, {7, 8, 9, 0, 1});
  auto reference = read();
  ASSERT_TRUE(reference.ok()) << reference.error().message;
  ASSERT_EQ(reference->continuations.size(), 1u);
  EXPECT_EQ(reference->continuations[0].prompt, 3u);
}

TEST_F(ReferenceFile, AMaskWithAHoleIsRefused) {
  ints("p.input_ids", {1, 4}, {7, 8, 9, 7});
  ints("p.attention_mask", {1, 4}, {1, 0, 1, 1});
  logits("p.logits", {1, 4, 2});
  refused(ErrorCode::Unsupported, "'p.attention_mask', row 0: has a hole at "
                                  "token 1");
}

TEST_F(ReferenceFile, ARowThatIsAllPaddingIsRefused) {
  ints("input_ids", {1, 2}, {7, 8});
  ints("attention_mask", {1, 2}, {0, 0});
  logits("logits", {1, 2, 2});
  refused(ErrorCode::BadInput, "masks every token");
}

TEST_F(ReferenceFile, ShapesMustAgree) {
  ints("input_ids", {1, 3}, {7, 8, 9});
  logits("logits", {1, 2, 2});
  refused(ErrorCode::BadInput, "'logits' has shape [1, 2, 2]");
}

TEST_F(ReferenceFile, LastLogitsOfPaddingAreRefused) {
  ints("input_ids", {1, 2}, {7, 1});
  ints("attention_mask", {1, 2}, {1, 0});
  logits("logits", {1, 2});
  refused(ErrorCode::BadInput, "which is padding in row 0");
}

TEST_F(ReferenceFile, AContinuationOfAnUnknownPromptIsRefused) {
  ints("input_ids", {2}, {7, 8});
  logits("logits", {2, 2});
  ints("tokens", {3}, {9, 8, 7});
  refused(ErrorCode::BadInput, "starts with none of the input_ids");
}

TEST_F(ReferenceFile, WithoutLogitsOrIdsItIsNoReference) {
  ints("a.input_ids", {2}, {7, 8});
  refused(ErrorCode::BadInput, "no 'a.logits' to compare with");
  writer = SafetensorsWriter();
  logits("weight", {2, 2});
  refused(ErrorCode::BadInput, "has no tensor 'input_ids'");
}

TEST_F(ReferenceFile, IdsAreWholeNumbersFromZero) {
  ints("input_ids", {2}, {7, -1});
  logits("logits", {2, 2});
  refused(ErrorCode::BadInput, "holds -1, which is no token id");
}

TEST(RelativeError, IsByTheLargestExpectedNumber) {
  const std::vector<float> expected = {1, -4, 2};
  EXPECT_EQ(relativeError(expected, expected), 0);
  EXPECT_DOUBLE_EQ(relativeError(std::vector<float>{1, -4, 3}, expected), 0.25);
  const float nan = std::nanf("");
  EXPECT_TRUE(
      std::isinf(relativeError(std::vector<float>{1, nan, 2}, expected)));
  EXPECT_TRUE(
      std::isinf(relativeError(expected, std::vector<float>{1, nan, 2})));
  EXPECT_TRUE(std::isinf(relativeError(std::vector<float>{1, 2}, expected)));
  EXPECT_TRUE(
      std::isinf(relativeError(std::vector<float>{1}, std::vector<float>{0})));
}

} // namespace
