//===- foresight-import.cpp - Shows what is in a model file ---------------===//
//
// Prints the onnx-level IR of a model, or the foresight program that it raises
// to. Exit codes: 0, or 1 after an error.
//
//===----------------------------------------------------------------------===//

#include "foresight/Import/Onnx/ImportOnnx.h"
#include "foresight/Raise/Raise.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace llvm;

static cl::OptionCategory category("foresight-import options");

static cl::opt<std::string> inputPath(cl::Positional, cl::Required,
                                      cl::desc("MODEL.onnx"),
                                      cl::cat(category));
static cl::opt<std::string> outputPath("o", cl::desc("Where to write the IR"),
                                       cl::value_desc("FILE"), cl::init("-"),
                                       cl::cat(category));
static cl::opt<bool> raiseIt("raise",
                             cl::desc("Raise the graph to a foresight program"),
                             cl::cat(category));
static cl::opt<bool> explain("explain",
                             cl::desc("Say what each part was recognised as"),
                             cl::cat(category));
static cl::opt<bool> locations("locations",
                               cl::desc("Print names of nodes as locations"),
                               cl::cat(category));
static cl::opt<bool>
    tieHead("tie-head",
            cl::desc("Give hidden states the embedding as their head"),
            cl::cat(category));
static cl::opt<int64_t> maxSeq("max-seq",
                               cl::desc("Tokens that a KV cache has room for"),
                               cl::value_desc("N"), cl::init(0),
                               cl::cat(category));
static cl::opt<std::string>
    externalDataDir("external-data-dir",
                    cl::desc("Folder of the model's data files"),
                    cl::value_desc("DIR"), cl::cat(category));

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "Foresight ONNX importer\n");

  mlir::MLIRContext context;
  SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler diagnostics(sources, &context, errs());
  foresight::OnnxImportOptions importOptions;
  importOptions.externalDataDir = externalDataDir;
  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> module =
      foresight::importOnnx(context, inputPath, importOptions);
  if (failed(module))
    return 1;
  foresight::RaiseOptions raiseOptions;
  raiseOptions.maxSeq = maxSeq;
  raiseOptions.explain = explain;
  raiseOptions.tieHead = tieHead;
  if (raiseIt && failed(foresight::raise(**module, raiseOptions)))
    return 1;

  std::string message;
  std::unique_ptr<ToolOutputFile> output =
      mlir::openOutputFile(outputPath, &message);
  if (!output) {
    errs() << "error: " << message << "\n";
    return 1;
  }
  mlir::OpPrintingFlags flags;
  if (locations)
    flags.enableDebugInfo(/*enable=*/true, /*prettyForm=*/false);
  (*module)->print(output->os(), flags);
  output->keep();
  return 0;
}
