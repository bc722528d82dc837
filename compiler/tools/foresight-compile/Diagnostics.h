//===- Diagnostics.h - One style for all errors -----------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_COMPILE_DIAGNOSTICS_H
#define FORESIGHT_TOOLS_COMPILE_DIAGNOSTICS_H

#include "Progress.h"

#include "foresight/support/Result.h"

#include "mlir/IR/Diagnostics.h"

#include <string>
#include <vector>

namespace foresight {

/// Collects what MLIR reports, so that it comes out as the errors of this tool.
/// Warnings are printed at once; remarks where `explain` asks for them.
class DiagnosticCollector {
public:
  DiagnosticCollector(mlir::MLIRContext &context, Progress &progress,
                      bool explain);

  /// The errors since the last call as one: the first is its message, the rest
  /// and all notes follow on lines of their own. `fallback` if there were none.
  Error take(ErrorCode code, const std::string &fallback);

private:
  void handle(mlir::Diagnostic &diagnostic);

  std::vector<std::string> errors;
  size_t dropped = 0;
  Progress &progress;
  bool explain;
  mlir::ScopedDiagnosticHandler handler;
};

/// "foresight-compile: error: MESSAGE" on stderr; further lines are indented.
void printError(const Error &error);

} // namespace foresight
#endif
