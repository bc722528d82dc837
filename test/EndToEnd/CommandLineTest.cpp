//===- CommandLineTest.cpp - Command lines, pipes and outputs -------------===//

#include "Harness.h"

#include "foresight/support/Json.h"

#include <gmock/gmock.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace foresight;
using namespace foresight::test;
using testing::HasSubstr;
using testing::Not;

namespace {

const std::string &bundle() {
  static const std::string path =
      compiled({source("test/fixtures/huggingface/bare_names"),
                "--sparsity=exact", "--target=cpu:native"});
  return path;
}

ProcessResult foresightTool(std::vector<std::string> arguments,
                            const ProcessOptions &options = {}) {
  arguments.insert(arguments.begin(), tool("foresight"));
  return run(arguments, options);
}

ProcessResult compiler(std::vector<std::string> arguments,
                       const ProcessOptions &options = {}) {
  arguments.insert(arguments.begin(), tool("foresight-compile"));
  return run(arguments, options);
}

/// Standard output that has no room.
ProcessOptions full() {
  ProcessOptions options;
  options.prepare = [] { dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO); };
  return options;
}

TEST(CommandLine, OutputThatIsLostIsAnError) {
  for (const std::vector<std::string> &arguments :
       std::vector<std::vector<std::string>>{
           {"--help"},
           {"--version"},
           {"run", "--help"},
           {"inspect", bundle()},
           {"run", bundle(), "--ids=2", "--max-new-tokens=1"}})
    expectError(foresightTool(arguments, full()), "foresight", 6,
                {"standard output"});
  for (const std::vector<std::string> &arguments :
       std::vector<std::vector<std::string>>{
           {"--help"},
           {"--version"},
           {"--check", source("test/fixtures/huggingface/bare_names")},
           {"-q", "--emit=foresight",
            source("test/fixtures/huggingface/bare_names")}})
    expectError(compiler(arguments, full()), "foresight-compile", 6,
                {"standard output"});
}

TEST(CommandLine, AReaderThatGoesAwayEndsTheToolQuietly) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  ProcessOptions options;
  options.prepare = [&] { dup2(ends[1], STDOUT_FILENO); };
  ProcessResult result = foresightTool(
      {"run", bundle(), "--ids=2", "--max-new-tokens=9"}, options);
  close(ends[1]);
  EXPECT_EQ(result.signal, SIGPIPE);
  EXPECT_EQ(result.errors, "");
}

TEST(CommandLine, WhatIsReadIsNotWrittenOver) {
  TemporaryFolder folder;
  const std::string copy = folder / "m.fsb", text = folder / "t.txt";
  fs::copy_file(bundle(), copy);
  writeFile(text, "some text");
  const std::string before = readFile(copy);
  for (const std::string &input : {copy, text}) {
    expectError(foresightTool({"calibrate", copy, "--text", text, "-o", input}),
                "foresight", 2, {"-o " + input, "which is read"});
    expectError(foresightTool({"bench", copy, "--text", text, "--tokens=1",
                               "--trace", input}),
                "foresight", 2, {"--trace " + input, "which is read"});
  }
  EXPECT_EQ(readFile(copy), before);
  EXPECT_EQ(readFile(text), "some text");
}

TEST(CommandLine, OptionsThatWouldDoNothingAreErrors) {
  struct Case {
    std::vector<std::string> arguments;
    std::string part;
  };
  for (const Case &c : std::vector<Case>{
           {{"run", bundle(), "--ids=2", "--echo", "--output=json"}, "--echo"},
           {{"run", bundle(), "--ids=2", "--no-special"}, "--no-special"},
           {{"run", bundle(), "--ids=2", "--stop="}, "--stop needs a value"},
           {{"run", bundle(), "--ids=2", "--overlap=maybe"}, "--overlap"},
           {{"run", bundle(), "--ids=2", "--threads=2000"}, "at most 1024"},
           {{"run", bundle(), "--ids=2", "--device=cuda:-1"}, "cuda:-1"},
           {{"run", bundle(), "--ids=99999999999"}, "too large"},
           {{"inspect", bundle(), "--json", "--profile"}, "one of --json"},
           {{"bench", bundle(), "--without=fc1"}, "only a GPU leaves"},
           {{"bench", bundle(), "--prompt-tokens=9223372036854775807"},
            "at most 16777216"}})
    expectError(foresightTool(c.arguments), "foresight", 2, {c.part});
  const std::string model = source("test/fixtures/huggingface/bare_names");
  for (const Case &c : std::vector<Case>{
           {{"--foo"}, "there is no option --foo"},
           {{model, "-ox", "-o", "y"}, "-o is given twice"},
           {{"--", model, "--emit=foresight"}, "there are two inputs"},
           {{model, "--emit="}, "--emit needs a value"}})
    expectError(compiler(c.arguments), "foresight-compile", 2, {c.part});
}

/// Before the compile, not after it.
TEST(CommandLine, AFileThatIsMissingIsNamedBeforeTheWork) {
  TemporaryFolder folder;
  for (const char *option : {"--verify=", "--profile="}) {
    const std::string missing = folder / "nowhere.json";
    ProcessResult result =
        compiler({source("test/fixtures/huggingface/bare_names"), "-q", "-o",
                  folder / "m.fsb", option + missing});
    expectError(result, "foresight-compile", 3, {missing, "cannot be opened"});
    EXPECT_THAT(result.errors, Not(HasSubstr("bare_names")));
    EXPECT_TRUE(folder.names().empty());
  }
}

TEST(CommandLine, TextComesFromPipesButNotFromFolders) {
  TemporaryFolder folder;
  const std::string mini =
      compiled({source("examples/opt-mini"), "--target=cpu:native"});
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ProcessOptions options;
  bool written = false;
  options.whileRunning = [&](pid_t) {
    if (written)
      return;
    const int end = open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (end < 0)
      return; // not yet opened by the tool
    written = write(end, "The sea", 7) == 7;
    close(end);
  };
  ProcessResult result = foresightTool(
      {"run", mini, "--prompt-file", fifo, "--max-new-tokens=3"}, options);
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  ProcessOptions input;
  input.input = "The sea";
  EXPECT_EQ(result.output,
            foresightTool({"run", mini, "--max-new-tokens=3"}, input).output);
  expectError(foresightTool({"run", mini, "--prompt-file", folder.path()}),
              "foresight", 3, {"is a folder"});
  expectError(foresightTool({"eval", mini, "--text=-"}), "foresight", 2,
              {"standard input", "fewer than two tokens"});
  expectError(foresightTool({"inspect", fifo}), "foresight", 3,
              {"is not a regular file"});
  ProcessResult wrong = foresightTool({"run", mini, "--prompt=a\xff"});
  expectError(wrong, "foresight", 2, {"byte 1", "\n  convert the text"});
}

/// Tokens of half a character, quotes, control characters: JSON all the same.
TEST(CommandLine, JsonIsValidWhateverBytesAreMade) {
  const std::string mini =
      compiled({source("examples/opt-mini"), "--target=cpu:native"});
  ProcessResult result = foresightTool(
      {"run", mini, "--prompt=\"\\\x01 \xf0\x9f\x98\x80", "--output=json",
       "--temperature=50", "--seed=3", "--max-new-tokens=200", "--ignore-eos"});
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  std::string joined;
  Json last;
  for (size_t at = 0, end; at < result.output.size(); at = end + 1) {
    end = result.output.find('\n', at);
    last = Json::parse(result.output.substr(at, end - at));
    if (!last.contains("done"))
      joined += last["text"].get<std::string>();
  }
  EXPECT_EQ(last["text"], joined);
  EXPECT_EQ(last["ids"].size(), 200u);
}

} // namespace
