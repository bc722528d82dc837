//===- SelectionOps.cpp - Verifiers and folds ------------------------------------===//

#include "foresight/Dialect/Foresight.h"

using namespace mlir;
using namespace foresight;

LogicalResult PredictOp::verify() { return success(); }
LogicalResult SelectCertifiedOp::verify() { return success(); }
LogicalResult SelectThresholdOp::verify() { return success(); }
LogicalResult SelectTopkOp::verify() { return success(); }
LogicalResult GatherLinearOp::verify() { return success(); }
LogicalResult SparseMlpOp::verify() { return success(); }
