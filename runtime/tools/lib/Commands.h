//===- Commands.h - The commands of foresight -------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_COMMANDS_H
#define FORESIGHT_TOOLS_COMMANDS_H

#include "Args.h"

namespace foresight::tools {

struct Command {
  CommandSpec spec;
  Status (*run)(const Args &args);
};

Command runCommand();
Command evalCommand();
Command benchCommand();
Command inspectCommand();
Command calibrateCommand();
Command verifyCommand();

/// Runs a command line; returns the exit code. Prints errors to stderr.
int runTool(std::span<const std::string> arguments);

} // namespace foresight::tools
#endif
