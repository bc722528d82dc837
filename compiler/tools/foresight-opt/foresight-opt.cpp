//===- foresight-opt.cpp - Runs passes on a file --------------------------===//
//
// The usual MLIR driver, for tests and for looking at one pass at a time.
//
//===----------------------------------------------------------------------===//

#include "Register.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  foresight::registerForesightDialects(registry);
  foresight::registerForesightPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Foresight pass driver\n", registry));
}
