//===- Harness.cpp - Running the tools from tests -------------------------===//

#include "Harness.h"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace foresight;

namespace foresight::test {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = fs::temp_directory_path() / "foresight-test-XXXXXX";
  if (mkdtemp(pattern.data()))
    folder = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(folder, error);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> list;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder))
    list.push_back(entry.path().filename());
  std::sort(list.begin(), list.end());
  return list;
}

std::string tool(const std::string &name) {
  return std::string(FORESIGHT_BINARY_DIR "/bin/") + name;
}

std::string source(const std::string &name) {
  return std::string(FORESIGHT_SOURCE_DIR "/") + name;
}

std::string readFile(const fs::path &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void writeFile(const fs::path &path, const std::string &bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  ASSERT_TRUE(out.good()) << path;
}

ProcessResult run(const std::vector<std::string> &command,
                  const ProcessOptions &options) {
  ProcessResult result;
  TemporaryFolder folder;
  // Files, not pipes: nothing to drain while the process runs.
  std::string in = folder / "in", out = folder / "out", err = folder / "err";
  writeFile(in, options.input);
  pid_t child = fork();
  if (child == 0) {
    dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    if (!options.folder.empty() && chdir(options.folder.c_str()) != 0)
      _exit(127);
    if (options.prepare)
      options.prepare();
    std::vector<char *> arguments;
    arguments.reserve(command.size() + 1);
    for (const std::string &argument : command)
      arguments.push_back(const_cast<char *>(argument.c_str()));
    arguments.push_back(nullptr);
    char *none[] = {nullptr};
    execve(arguments[0], arguments.data(),
           options.emptyEnvironment ? none : environ);
    _exit(127);
  }
  int status = 0;
  if (options.whileRunning) {
    while (waitpid(child, &status, WNOHANG) == 0) {
      options.whileRunning(child);
      usleep(1000);
    }
  } else {
    waitpid(child, &status, 0);
  }
  if (WIFEXITED(status))
    result.exitCode = WEXITSTATUS(status);
  else
    result.signal = WTERMSIG(status);
  result.output = readFile(out);
  result.errors = readFile(err);
  return result;
}

std::string compiled(const std::vector<std::string> &arguments) {
  static TemporaryFolder folder;
  static std::map<std::vector<std::string>, std::string> done;
  std::string &path = done[arguments];
  if (!path.empty())
    return path;
  path = folder / (std::to_string(done.size()) + ".fsb");
  std::vector<std::string> command = {tool("foresight-compile")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  command.insert(command.end(), {"--quiet", "-o", path});
  ProcessResult result = run(command);
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  return path;
}

void expectError(const ProcessResult &result, const std::string &program,
                 int exitCode, const std::vector<std::string> &parts) {
  EXPECT_EQ(result.signal, 0) << result.errors;
  EXPECT_EQ(result.exitCode, exitCode) << result.errors;
  EXPECT_EQ(result.output, "");
  const std::string prefix = program + ": error: ";
  size_t first = result.errors.find(prefix);
  ASSERT_NE(first, std::string::npos) << result.errors;
  EXPECT_EQ(result.errors.find(prefix, first + 1), std::string::npos)
      << "more than one error:\n"
      << result.errors;
  for (const std::string &part : parts)
    EXPECT_NE(result.errors.find(part, first), std::string::npos)
        << "'" << part << "' is not in:\n"
        << result.errors;
}

} // namespace foresight::test
