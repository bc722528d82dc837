//===- Harness.h - Running the tools from tests -----------------*- C++ -*-===//
#ifndef FORESIGHT_TEST_ENDTOEND_HARNESS_H
#define FORESIGHT_TEST_ENDTOEND_HARNESS_H

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace foresight::test {

namespace fs = std::filesystem;

/// A new folder, removed with everything in it.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;

  fs::path path() const { return folder; }
  std::string operator/(const std::string &name) const { return folder / name; }
  /// Names of what is in it, hidden ones too, sorted.
  std::vector<std::string> names() const;

private:
  fs::path folder;
};

/// A program of this build: "foresight-compile".
std::string tool(const std::string &name);
/// A file of the source tree: "examples/opt-mini".
std::string source(const std::string &name);

struct ProcessResult {
  int exitCode = -1; ///< -1 if a signal ended it
  int signal = 0;
  std::string output, errors;
};

struct ProcessOptions {
  std::string input;  ///< its standard input
  std::string folder; ///< where it runs; empty: here
  bool emptyEnvironment = false;
  /// Runs in the child before the program starts.
  std::function<void()> prepare;
  /// Called in a loop while it runs, with its id.
  std::function<void(pid_t)> whileRunning;
};

ProcessResult run(const std::vector<std::string> &command,
                  const ProcessOptions &options = {});

std::string readFile(const fs::path &path);
void writeFile(const fs::path &path, const std::string &bytes);

/// A bundle that the test process compiles once, whoever asks for it first:
/// `arguments` follow the name of the tool, without -o.
std::string compiled(const std::vector<std::string> &arguments);

/// Expects what docs/errors.md promises: this exit code, and on stderr one
/// error of `program` whose text has all of `parts`; nothing on stdout.
void expectError(const ProcessResult &result, const std::string &program,
                 int exitCode, const std::vector<std::string> &parts);

} // namespace foresight::test
#endif
