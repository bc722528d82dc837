//===- Message.cpp - How the tools speak ----------------------------------===//
#include "foresight/support/Message.h"

namespace foresight {

std::string messageLine(std::string_view program, std::string_view kind,
                        std::string_view text) {
  std::string line(program);
  line += ": ";
  line += kind;
  line += ": ";
  for (const char c : text) {
    line += c;
    if (c == '\n')
      line += "  ";
  }
  return line + "\n";
}

} // namespace foresight
