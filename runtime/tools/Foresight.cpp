//===- Foresight.cpp - The tool -------------------------------------------===//
#include "lib/Commands.h"

int main(int argc, char **argv) {
  return foresight::tools::runTool(
      std::vector<std::string>(argv + 1, argv + argc));
}
