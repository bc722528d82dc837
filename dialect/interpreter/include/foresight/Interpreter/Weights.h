//===- Weights.h - Where an interpreter finds weights -----------*- C++ -*-===//
#ifndef FORESIGHT_INTERPRETER_WEIGHTS_H
#define FORESIGHT_INTERPRETER_WEIGHTS_H

#include "foresight/Dialect/Foresight.h"
#include "foresight/Interpreter/Data.h"

#include "llvm/ADT/StringMap.h"

#include <functional>

namespace foresight::interpreter {

/// The data of weights, rounded to each weight's own element type. Made when
/// they are first asked for and kept. Dense, synthetic and external sources are
/// read; derived ones are made from their sources.
class Weights {
public:
  /// Gives the data of a weight, row-major in its logical shape, or nothing to
  /// fall back to its source. For tests that bring data of their own.
  using Provider =
      std::function<std::optional<std::vector<double>>(WeightOp weight)>;

  explicit Weights(Provider provider = {}) : provider(std::move(provider)) {}

  /// Fails with a diagnostic on `weight`.
  mlir::FailureOr<Data> get(WeightOp weight);

private:
  mlir::FailureOr<Data> make(WeightOp weight);

  Provider provider;
  llvm::StringMap<Data> made;
};

/// Rounds to f16, bf16 or f32.
double roundTo(mlir::Type element, double value);

} // namespace foresight::interpreter
#endif
