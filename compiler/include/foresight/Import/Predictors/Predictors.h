//===- Predictors.h - Low-rank predictors beside a model --------*- C++ -*-===//
//
// The predictor of layer N is two matrices that predict which neurons of its
// MLP will be active: neuron i if second[i] . (first x) + bias[i] > 0, where x
// is the row that the layer's query, key and value products read. In a
// safetensors file they are called
//
//   layers.N.predictor.first.weight    [rank, hidden size]
//   layers.N.predictor.second.weight   [neurons, rank]
//   layers.N.predictor.second.bias     [neurons]; zero if it is missing
//
// and in a module they are weights of the same names.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_IMPORT_PREDICTORS_PREDICTORS_H
#define FORESIGHT_IMPORT_PREDICTORS_PREDICTORS_H

#include "foresight/support/Profile.h"

#include "mlir/IR/BuiltinOps.h"

namespace foresight {

struct PredictorOptions {
  /// A safetensors file; empty: made from `seed`, of `rank`, so that a share of
  /// `density` of the neurons is selected.
  std::string file;
  int64_t rank = 0;
  uint64_t seed = 0;
  double density = 0;
};

/// Adds the predictors of every MLP of `@step`, and says which layers have one:
/// all whose activation is ReLU.
Result<Profile> addPredictors(mlir::ModuleOp module,
                              const PredictorOptions &options);

} // namespace foresight
#endif
