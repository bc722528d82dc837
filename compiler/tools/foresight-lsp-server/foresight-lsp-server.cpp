//===- foresight-lsp-server.cpp - Editor support for .mlir files ----------===//

#include "Register.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  foresight::registerForesightDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
