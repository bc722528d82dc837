//===- Tool.cpp - Choosing a command --------------------------------------===//
#include "Commands.h"
#include "Model.h"

#include "foresight/abi/BundleFormat.h"
#include "foresight/support/Message.h"
#include "foresight/support/Version.h"

#include <cstdio>

namespace foresight::tools {

static std::string overview(const std::vector<Command> &commands) {
  std::string out = "Runs and measures bundles that foresight-compile made.\n\n"
                    "usage: foresight COMMAND [BUNDLE] [OPTIONS]\n\n"
                    "commands:\n";
  for (const Command &command : commands) {
    std::string name = command.spec.name;
    name.resize(12, ' ');
    out += "  " + name + command.spec.summary + "\n";
  }
  out += "\nforesight COMMAND --help tells the options of a command.\n"
         "A program made with foresight-compile --emit=exe takes the same "
         "commands without BUNDLE.\n";
  return out;
}

static int fail(const Error &error) {
  std::fflush(stdout);
  std::fputs(messageLine("foresight", "error", error.message).c_str(), stderr);
  return exitCode(error.code);
}

/// Prints `text` and ends the tool.
static int say(const std::string &text) {
  std::fputs(text.c_str(), stdout);
  const Status status = flushOutput();
  return status.ok() ? 0 : fail(status.error());
}

int runTool(std::span<const std::string> arguments) {
  const std::vector<Command> commands = {runCommand(),       evalCommand(),
                                         benchCommand(),     inspectCommand(),
                                         calibrateCommand(), verifyCommand()};
  if (arguments.empty()) {
    std::fputs(overview(commands).c_str(), stderr);
    return exitCode(ErrorCode::Usage);
  }
  const std::string &name = arguments[0];
  if (name == "--help" || name == "-h" || name == "help") {
    return say(overview(commands));
  }
  if (name == "--version") {
    return say("foresight " + std::string(versionText()) + ", bundle format " +
               std::to_string(bundle::kFormatVersion) + "\n");
  }
  for (const Command &command : commands) {
    if (name != command.spec.name)
      continue;
    const Result<Args> args = parseArgs(command.spec, arguments.subspan(1));
    if (!args.ok())
      return fail(args.error());
    if (args->has("help")) {
      return say(helpText(command.spec));
    }
    const Status status = command.run(*args);
    return status.ok() ? 0 : fail(status.error());
  }
  return fail(makeError(ErrorCode::Usage, "unknown command '", name,
                        "'; see foresight --help"));
}

} // namespace foresight::tools
