//===- Interpreter.h - Runs foresight functions in f64 ----------*- C++ -*-===//
//
// What the ops mean, executed as plainly as possible: every product, sum,
// norm and softmax in f64, one op after the other. Only what the dialect says
// is rounded is rounded: weights to their type, keys and values to the cache's.
// Runs raised, sparse, staged and scheduled functions, so that a test can run a
// module before and after a pass and compare.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_INTERPRETER_INTERPRETER_H
#define FORESIGHT_INTERPRETER_INTERPRETER_H

#include "foresight/Interpreter/Weights.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace foresight::interpreter {

class Interpreter {
public:
  /// Both must outlive the interpreter.
  Interpreter(mlir::ModuleOp module, Weights &weights)
      : module(module), weights(weights) {}

  /// Runs a function of the module. Fails with a diagnostic on what could not
  /// be executed: an op that is not foresight's, an id outside its table, a
  /// position outside its cache, an argument of the wrong kind or shape.
  mlir::FailureOr<llvm::SmallVector<Data>> run(mlir::func::FuncOp function,
                                               llvm::ArrayRef<Data> arguments);

  /// Runs a scheduled entry as a runtime may: values live in buffers, and
  /// launches run in an order that only their `after` tokens restrict, chosen
  /// by `seed`. Fails with a diagnostic on a launch whose input is not, or no
  /// longer, in its buffer: a dependence without a token, or an overlap.
  mlir::FailureOr<llvm::SmallVector<Data>>
  runScheduled(mlir::func::FuncOp entry, llvm::ArrayRef<Data> arguments,
               uint64_t seed);

private:
  mlir::LogicalResult check(mlir::func::FuncOp function,
                            llvm::ArrayRef<Data> arguments);

  mlir::ModuleOp module;
  Weights &weights;
  mlir::SymbolTableCollection symbols;
};

/// The function named `entry`, or the one whose `foresight.entry` is `entry`.
/// Null if there is none.
mlir::func::FuncOp findEntry(mlir::ModuleOp module, llvm::StringRef entry);

struct RandomOptions {
  uint64_t seed = 0;
  /// What `?` stands for in the types of arguments.
  int64_t tokens = 1;
};

/// Arguments for `function` that depend on their index, type and the seed
/// alone. Ids lie within the tables that they index, positions are consecutive
/// and lie within their caches, and caches hold data at every position.
mlir::FailureOr<llvm::SmallVector<Data>>
randomArguments(mlir::func::FuncOp function, const RandomOptions &options);

} // namespace foresight::interpreter
#endif
