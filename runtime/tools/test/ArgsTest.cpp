//===- ArgsTest.cpp -------------------------------------------------------===//
#include "../lib/Args.h"
#include "../lib/Commands.h"
#include "../lib/Statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace foresight;
using namespace foresight::tools;
using testing::ElementsAre;
using testing::HasSubstr;

static const CommandSpec kSpec = {"make",
                                  "make things",
                                  "[FILE]",
                                  "Details.",
                                  {{"count", "N", "how many"},
                                   {"fast", nullptr, "hurry"},
                                   {"stop", "TEXT", "where", true},
                                   {"o", "FILE", "output"}}};

static Result<Args> parse(std::vector<std::string> words) {
  return parseArgs(kSpec, words);
}

static std::string messageOf(std::vector<std::string> words) {
  Result<Args> args = parse(std::move(words));
  EXPECT_FALSE(args.ok());
  EXPECT_EQ(args.error().code, ErrorCode::Usage);
  return args.ok() ? "" : args.error().message;
}

TEST(Args, ValuesMayFollowOrBeAttached) {
  for (const auto &words : std::vector<std::vector<std::string>>{
           {"--count", "3", "in", "-o", "out", "--fast"},
           {"in", "--count=3", "-oout", "--fast"},
           {"in", "--count=3", "-o=out", "--fast"}}) {
    Result<Args> args = parse(words);
    ASSERT_TRUE(args.ok()) << args.error().message;
    EXPECT_EQ(*args->integer("count", 0, 0), 3);
    EXPECT_EQ(args->text("o"), "out");
    EXPECT_TRUE(args->has("fast"));
    EXPECT_THAT(args->positional, ElementsAre("in"));
  }
}

TEST(Args, AValueMayHoldEqualsOrStartWithADash) {
  Result<Args> args = parse({"--stop=a=b", "--stop", "--fast"});
  ASSERT_TRUE(args.ok());
  EXPECT_THAT(args->all("stop"), ElementsAre("a=b", "--fast"));
  EXPECT_FALSE(args->has("fast"));
}

TEST(Args, TwoDashesEndOptions) {
  Result<Args> args = parse({"--", "--count", "-x"});
  ASSERT_TRUE(args.ok());
  EXPECT_THAT(args->positional, ElementsAre("--count", "-x"));
}

TEST(Args, WrongOptionsAreUsage) {
  EXPECT_THAT(messageOf({"--cuont=3"}), HasSubstr("did you mean --count?"));
  EXPECT_THAT(messageOf({"--weird"}), HasSubstr("make --help"));
  EXPECT_THAT(messageOf({"-x"}), HasSubstr("-x"));
  EXPECT_THAT(messageOf({"--count"}), HasSubstr("needs a value: N"));
  EXPECT_THAT(messageOf({"--count="}), HasSubstr("needs a value: N"));
  EXPECT_THAT(messageOf({"--count", ""}), HasSubstr("needs a value: N"));
  for (const char *empty : {"-o", "-o="})
    EXPECT_THAT(messageOf({empty}), HasSubstr("-o needs a value"));
  EXPECT_THAT(messageOf({"--fast=1"}), HasSubstr("takes no value"));
  EXPECT_THAT(messageOf({"--count=1", "--count=2"}), HasSubstr("twice"));
  EXPECT_THAT(messageOf({"-oa", "-ob"}), HasSubstr("twice"));
}

TEST(Args, NumbersOutOfRangeOrWithRestAreUsage) {
  for (const char *value :
       {"x", "3x", "-1", "11", "1e3", "3.0", "99999999999999999999"}) {
    Result<Args> args = parse({std::string("--count=") + value});
    ASSERT_TRUE(args.ok());
    Result<int64_t> count = args->integer("count", 0, 0, 10);
    ASSERT_FALSE(count.ok()) << value;
    EXPECT_EQ(count.error().code, ErrorCode::Usage);
  }
  for (const char *value : {"x", "1,5", "nan", "inf", "1e999"})
    EXPECT_FALSE(
        parse({std::string("--count=") + value})->number("count", 0).ok())
        << value;
  // Too large for 64 bits is told from not a number.
  EXPECT_THAT(parse({"--count=99999999999999999999"})
                  ->integer("count", 0, 0)
                  .error()
                  .message,
              HasSubstr("at most 9223372036854775807"));
  EXPECT_EQ(*parse({"--count=1e-3"})->number("count", 0), 1e-3);
  EXPECT_EQ(*parse({})->integer("count", 7, 0), 7);
}

TEST(Args, ChoicesAreOneOfTheListAndTheFirstByDefault) {
  EXPECT_EQ(*parse({})->choice("count", {"a", "b"}), "a");
  EXPECT_EQ(*parse({"--count=b"})->choice("count", {"a", "b"}), "b");
  EXPECT_THAT(parse({"--count=c"})->choice("count", {"a", "b"}).error().message,
              HasSubstr("a, b"));
}

TEST(Args, IdsAreWholeNumbersWithCommas) {
  EXPECT_THAT(*parseIds("2,5, 9\n"), ElementsAre(2, 5, 9));
  EXPECT_THAT(*parseIds("-1"), ElementsAre(-1)); // the session refuses it
  for (const char *text : {"", ",", "2,", "2,x", "2;5", "3000000000"})
    EXPECT_FALSE(parseIds(text).ok()) << text;
  EXPECT_THAT(parseIds("3000000000").error().message, HasSubstr("too large"));
}

TEST(Args, HelpNamesEveryOption) {
  const std::string help = helpText(kSpec);
  for (const char *part : {"make things", "--count=N", "-o FILE", "--fast"})
    EXPECT_THAT(help, HasSubstr(part));
}

TEST(Tool, ExitCodesFollowTheErrorIndex) {
  const auto code = [](std::vector<std::string> words) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = runTool(words);
    testing::internal::GetCapturedStdout();
    testing::internal::GetCapturedStderr();
    return code;
  };
  EXPECT_EQ(code({}), 2);
  EXPECT_EQ(code({"--help"}), 0);
  EXPECT_EQ(code({"--version"}), 0);
  EXPECT_EQ(code({"walk"}), 2);
  for (const char *command : {"run", "eval", "bench", "inspect", "calibrate"}) {
    EXPECT_EQ(code({command, "--help"}), 0) << command;
    EXPECT_EQ(code({command, "--no-such-option"}), 2) << command;
  }
  EXPECT_EQ(code({"run", "--prompt=x"}), 2) << "no bundle";
  EXPECT_EQ(code({"run", "m.fsb", "--prompt="}), 2) << "empty prompt";
  EXPECT_EQ(code({"run", "m.fsb", "--prompt=x", "--ids=2"}), 2);
  EXPECT_EQ(code({"run", "m.fsb", "--prompt=x", "--top-p=2"}), 2);
  EXPECT_EQ(code({"run", "/nonexistent.fsb", "--prompt=x"}), 3);
  EXPECT_EQ(code({"run", "m.fsb", "--prompt-file=/nonexistent"}), 3);
  EXPECT_EQ(code({"eval", "m.fsb"}), 2) << "no text";
  EXPECT_EQ(code({"calibrate", "m.fsb", "--text=x"}), 2) << "no -o";
  // A file that is no bundle.
  EXPECT_EQ(code({"inspect", FORESIGHT_SOURCE_DIR "/CMakeLists.txt"}), 5);
}

TEST(Statistics, QuantilesInterpolate) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_EQ(medianOf(values), 2.5);
  EXPECT_EQ(quantileOf(values, 0), 1);
  EXPECT_EQ(quantileOf(values, 1), 4);
  EXPECT_EQ(medianOf({}), 0);
}

TEST(Statistics, UnitsArePowersOfTen) {
  EXPECT_EQ(bytesText(999), "999 B");
  EXPECT_EQ(bytesText(1536), "1.54 kB");
  EXPECT_EQ(bytesText(35.5e6), "35.5 MB");
  EXPECT_EQ(bytesText(2.63e9), "2.63 GB");
}

TEST(Statistics, TablesAlignColumnsWithoutTrailingBlanks) {
  Table table({"a", "bb", ""});
  table.add({"ccc", "1", ""});
  EXPECT_EQ(table.text(), "a    bb\nccc   1\n");
}
