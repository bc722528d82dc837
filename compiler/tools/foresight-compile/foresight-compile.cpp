//===- foresight-compile.cpp - Models to bundles --------------------------===//
//
// docs/tools/foresight-compile.md is the manual. Exit codes: docs/errors.md.
//
//===----------------------------------------------------------------------===//

#include "Compile.h"

#include "foresight/support/Version.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/InitLLVM.h"

#include <csignal>
#include <cstdio>
#include <new>
#include <unistd.h>

using namespace foresight;

/// The path of this program: /proc is right however it was called.
static std::string programPath(const char *argv0) {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, length) : argv0;
}

/// The exit code of `status`, or of what it printed, if that was lost.
static int flushed(Status status) {
  if (status.ok() && (fflush(stdout) != 0 || ferror(stdout)))
    status =
        makeError(ErrorCode::Resource, "standard output: cannot be written");
  if (status.ok())
    return 0;
  printError(status.error());
  return exitCode(status.error().code);
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // A file size limit is an error of the write, not the end of the process.
  signal(SIGXFSZ, SIG_IGN);

  Result<CompileOptions> options =
      parseOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (!options.ok()) {
    printError(options.error());
    return exitCode(options.error().code);
  }
  if (options->help) {
    fputs(usageText().c_str(), stdout);
    return flushed({});
  }
  if (options->version) {
    printf("foresight-compile %s, LLVM %s\n", versionText(),
           LLVM_VERSION_STRING);
    return flushed({});
  }
  Status status = [&]() -> Status {
    try {
      return Compilation(*options, programPath(argv[0])).run();
    } catch (const std::bad_alloc &) {
      return makeError(ErrorCode::Resource, options->inputName(),
                       ": not enough memory; choose a smaller model");
    }
  }();
  return flushed(std::move(status));
}
