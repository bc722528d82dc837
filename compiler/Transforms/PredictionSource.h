//===- PredictionSource.h - What a prediction reads -------------*- C++ -*-===//
#ifndef FORESIGHT_TRANSFORMS_PREDICTIONSOURCE_H
#define FORESIGHT_TRANSFORMS_PREDICTIONSOURCE_H

#include "foresight/Dialect/Foresight.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace foresight {

/// Whether a selection at kappa 1 is made from the scores of `predict`.
bool feedsProof(PredictOp predict);

/// The places of the residual stream that the blocks of an entry normalise: a
/// block is an attention and the MLP that follows it.
class PredictionSource {
public:
  explicit PredictionSource(mlir::func::FuncOp entry);

  /// The value of the residual stream that the lookahead of `predict` names;
  /// the earliest there is where the model does not go back so far.
  mlir::FailureOr<mlir::Value> streamFor(PredictOp predict) const;

private:
  struct Block {
    mlir::Value attentionStream; ///< null if attention reads no LayerNorm
    mlir::Value mlpStream;
    llvm::SmallVector<mlir::Operation *> mlps;
  };
  llvm::SmallVector<Block> blocks;
};

} // namespace foresight

#endif // FORESIGHT_TRANSFORMS_PREDICTIONSOURCE_H
