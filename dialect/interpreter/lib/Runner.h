//===- Runner.h - Blocks of ops ---------------------------------*- C++ -*-===//
#ifndef FORESIGHT_INTERPRETER_LIB_RUNNER_H
#define FORESIGHT_INTERPRETER_LIB_RUNNER_H

#include "Evaluate.h"

namespace foresight::interpreter {

/// Runs blocks; knows the module's symbols and weights.
class Runner {
public:
  Runner(Weights &weights, mlir::SymbolTableCollection &symbols)
      : weights(weights), symbols(symbols) {}

  /// Runs `block` with `arguments` and gives what its terminator returns.
  mlir::FailureOr<llvm::SmallVector<Data>> run(mlir::Block &block,
                                               llvm::ArrayRef<Data> arguments);

  mlir::FailureOr<Data> weight(GetWeightOp op);
  KernelOp kernelOf(LaunchOp launch);

private:
  mlir::LogicalResult execute(mlir::Operation *op, Scope &scope);
  mlir::LogicalResult set(mlir::Operation *op, mlir::FailureOr<Data> data,
                          Scope &scope);
  mlir::LogicalResult runNested(mlir::Operation *op, mlir::Block &block,
                                mlir::ValueRange inputs, Scope &scope);

  Weights &weights;
  mlir::SymbolTableCollection &symbols;
};

} // namespace foresight::interpreter

#endif
