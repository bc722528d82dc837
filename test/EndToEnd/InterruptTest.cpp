//===- InterruptTest.cpp - Compiles that do not end -----------------------===//
//
// A bundle appears whole or not at all: whatever stops the compiler, an earlier
// bundle stays as it is and nothing else is in the folder.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <csignal>
#include <sys/resource.h>
#include <unistd.h>

using namespace foresight::test;

namespace {

class Interrupted : public testing::Test {
protected:
  void SetUp() override { writeFile(out(), kEarlier); }
  void TearDown() override {
    EXPECT_EQ(readFile(out()), kEarlier);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"m.fsb"});
  }

  static constexpr const char *kEarlier = "an earlier bundle";
  std::string out() const { return folder / "m.fsb"; }
  /// Made-up weights of a size that takes long enough to be stopped.
  std::vector<std::string> command() const {
    return {tool("foresight-compile"),
            "--shape=opt-1.3b",
            "--weights=synthetic:1",
            "--sparsity=exact",
            "-o",
            out()};
  }

  TemporaryFolder folder;
};

TEST_F(Interrupted, BySignals) {
  for (int number : {SIGKILL, SIGINT, SIGTERM}) {
    // At three places: early, in the middle, late.
    for (int milliseconds : {50, 600, 1500}) {
      ProcessOptions options;
      int waited = 0;
      options.whileRunning = [&](pid_t child) {
        if (++waited == milliseconds)
          kill(child, number);
      };
      ProcessResult result = run(command(), options);
      EXPECT_TRUE(result.signal == number || result.exitCode == 128 + number)
          << "ended by itself with " << result.exitCode << ": "
          << result.errors;
    }
  }
}

TEST_F(Interrupted, ByAFullDisk) {
  ProcessOptions options;
  options.prepare = [] {
    rlimit limit = {4 << 20, 4 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  expectError(run(command(), options), "foresight-compile", 6, {"m.fsb"});
}

} // namespace
