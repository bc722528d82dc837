//===- Message.h - How the tools speak --------------------------*- C++ -*-===//
#ifndef FORESIGHT_SUPPORT_MESSAGE_H
#define FORESIGHT_SUPPORT_MESSAGE_H

#include <string>
#include <string_view>

namespace foresight {

/// "PROGRAM: error: TEXT" and a new line; further lines of `text` are indented.
/// `kind` is "error" or "warning".
std::string messageLine(std::string_view program, std::string_view kind,
                        std::string_view text);

} // namespace foresight
#endif
