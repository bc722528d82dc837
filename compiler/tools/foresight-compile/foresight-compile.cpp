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
    return 0;
  }
  if (options->version) {
    printf("foresight-compile %s, LLVM %s\n", versionText(),
           LLVM_VERSION_STRING);
    return 0;
  }
  Status status = [&]() -> Status {
    try {
      return Compilation(*options, programPath(argv[0])).run();
    } catch (const std::bad_alloc &) {
      return makeError(ErrorCode::Resource, options->inputName(),
                       ": not enough memory; choose a smaller model");
    }
  }();
  if (!status.ok()) {
    printError(status.error());
    return exitCode(status.error().code);
  }
  return 0;
}
