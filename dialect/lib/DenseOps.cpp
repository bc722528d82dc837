//===- DenseOps.cpp - Verifiers and folds ------------------------------------===//

#include "foresight/Dialect/Foresight.h"

using namespace mlir;
using namespace foresight;

LogicalResult GatherRowsOp::verify() { return success(); }
LogicalResult LayerNormOp::verify() { return success(); }
LogicalResult LinearOp::verify() { return success(); }
LogicalResult ColumnLinearOp::verify() { return success(); }
LogicalResult MlpOp::verify() { return success(); }
LogicalResult LastRowOp::verify() { return success(); }

/// The last of one row is that row.
OpFoldResult LastRowOp::fold(FoldAdaptor) {
  if (getX().getType() == getType() && cast<RankedTensorType>(getType()).getDimSize(0) == 1)
    return getX();
  return {};
}
