//===- StreamTest.cpp - UTF-8 and stop strings across pieces --------------===//
#include "foresight/text/StopStrings.h"
#include "foresight/text/Utf8.h"

#include <gtest/gtest.h>

using namespace foresight::text;

TEST(Utf8, EveryCodePointIsWrittenAndReadBack) {
  for (uint32_t point = 0; point < 0x110000; point += point < 0x3000 ? 1 : 61) {
    if (point >= 0xD800 && point < 0xE000)
      continue;
    std::string bytes;
    appendUtf8(bytes, point);
    const Utf8Step step = stepUtf8(bytes);
    ASSERT_EQ(step.kind, Utf8Step::kCharacter);
    ASSERT_EQ(step.codePoint, point);
    ASSERT_EQ(step.length, bytes.size());
    for (size_t length = 1; length < bytes.size(); ++length)
      ASSERT_EQ(stepUtf8(std::string_view(bytes).substr(0, length)).kind,
                Utf8Step::kTruncated);
  }
}

// Unicode's own example of replacing maximal subparts.
TEST(Utf8, EachMaximalSubpartBecomesOneReplacement) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replaceInvalidUtf8("a\xF1\x80\x80\xE1\x80\xC2"
                               "b\x80"
                               "c\x80\xBF"
                               "d"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(replaceInvalidUtf8("\xE0\x80\x80"), r + r + r);
  EXPECT_EQ(findInvalidUtf8("ab\xC3\xA9"), std::string_view::npos);
}

/// Feeds `text` in pieces of `size` bytes.
static std::string stopped(StopStrings &stop, std::string_view text,
                           size_t size) {
  std::string out;
  for (; !text.empty(); text.remove_prefix(std::min(size, text.size())))
    out += stop.push(text.substr(0, size));
  return out + stop.finish();
}

TEST(StopStrings, TextEndsBeforeTheFirstStringHoweverItIsCut) {
  for (size_t size = 1; size < 12; ++size) {
    StopStrings stop({"\n\n", "END", "aab"});
    EXPECT_EQ(stopped(stop, "aaaab and the END\n\n", size), "aa");
    EXPECT_TRUE(stop.stopped());
    EXPECT_EQ(stop.push("more"), "");
  }
}

TEST(StopStrings, TheStartOfAStringIsHeldBackAndThenGivenOut) {
  StopStrings stop({"END"});
  EXPECT_EQ(stop.push("the E"), "the ");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.push("TRY"), "ENTRY");
  EXPECT_EQ(stop.push("EN"), "");
  EXPECT_EQ(stop.finish(), "EN");
  EXPECT_FALSE(stop.stopped());
}

TEST(StopStrings, WithoutStringsNothingIsHeld) {
  StopStrings stop({"", ""});
  EXPECT_EQ(stop.push("abc"), "abc");
  EXPECT_FALSE(stop.stopped());
}
