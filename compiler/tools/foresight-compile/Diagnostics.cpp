//===- Diagnostics.cpp - One style for all errors -------------------------===//

#include "Diagnostics.h"

#include "foresight/support/Message.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"

#include <cstdio>

using namespace foresight;
using namespace mlir;

/// Of a graph with many foreign nodes the first show what is wrong.
static constexpr size_t kMaxErrors = 100;

/// FILE:LINE:COLUMN of a location in a text file. Where a location has no line
/// the message names the node or tensor itself; `run` adds the file.
static std::string placeOf(Location location) {
  auto file = location->findInstanceOf<FileLineColLoc>();
  if (!file || file.getLine() == 0)
    return "";
  return (file.getFilename().getValue() + ":" + Twine(file.getLine()) + ":" +
          Twine(file.getColumn()) + ": ")
      .str();
}

DiagnosticCollector::DiagnosticCollector(MLIRContext &context,
                                         Progress &progress, bool explain)
    : progress(progress), explain(explain),
      handler(&context, [this](Diagnostic &diagnostic) {
        handle(diagnostic);
        return success();
      }) {}

void DiagnosticCollector::handle(Diagnostic &diagnostic) {
  std::string text = placeOf(diagnostic.getLocation()) + diagnostic.str();
  switch (diagnostic.getSeverity()) {
  case DiagnosticSeverity::Note:
  case DiagnosticSeverity::Error:
    if (errors.size() >= kMaxErrors) {
      ++dropped;
      return;
    }
    errors.push_back(text);
    for (Diagnostic &note : diagnostic.getNotes())
      errors.push_back("  " + placeOf(note.getLocation()) + note.str());
    return;
  case DiagnosticSeverity::Warning:
    progress.warn(text);
    return;
  case DiagnosticSeverity::Remark:
    if (explain)
      progress.explain(text);
    return;
  }
}

Error DiagnosticCollector::take(ErrorCode code, const std::string &fallback) {
  Error error{code, fallback};
  if (!errors.empty()) {
    error.message.clear();
    for (const std::string &text : errors)
      error.message += (error.message.empty() ? "" : "\n") + text;
    if (dropped)
      error.message += "\nand " + std::to_string(dropped) + " more";
  }
  errors.clear();
  dropped = 0;
  return error;
}

void foresight::printError(const Error &error) {
  fputs(messageLine("foresight-compile", "error", error.message).c_str(),
        stderr);
}
