//===- Onnx.cpp - Fuzzes ONNX files ---------------------------------------===//
//
// From the bytes of a file to a decoding step, through the functions that
// foresight-compile calls.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"
#include "TempFolder.h"

#include "foresight/Import/Onnx/ImportOnnx.h"
#include "foresight/Raise/Raise.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"

#include <filesystem>
#include <optional>

using namespace foresight;
using namespace foresight::fuzz;

/// The folder of the models of make-seeds.py: all their weights are zeros of
/// `data.bin`, which takes no space.
static const test::TempFolder &dataFolder() {
  static const test::TempFolder folder;
  [[maybe_unused]] static const bool made = [] {
    folder.write("data.bin", "");
    std::filesystem::resize_file(folder / "data.bin", size_t{64} << 20);
    return true;
  }();
  return folder;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static MemoryFile input;
  input.set(textOf(data, size));
  // Making a context takes as long as reading a small model; what is uniqued in
  // one stays there.
  static std::optional<mlir::MLIRContext> context;
  if (static int uses = 0; uses++ % 100 == 0)
    context.emplace(mlir::MLIRContext::Threading::DISABLED);
  size_t errors = 0;
  mlir::ScopedDiagnosticHandler handler(
      &*context, [&](mlir::Diagnostic &diagnostic) {
        errors += diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error;
      });
  OnnxImportOptions options;
  options.externalDataDir = dataFolder().str();
  auto module = importOnnx(*context, input.path(), options);
  if (mlir::failed(module)) {
    expect(errors > 0, "a failed import says why");
    return 0;
  }
  expect(mlir::succeeded(mlir::verify(**module)), "a graph verifies");
  if (mlir::failed(raise(**module)))
    expect(errors > 0, "a graph that is not OPT is told why");
  else
    expect(mlir::succeeded(mlir::verify(**module)), "a step verifies");
  return 0;
}
