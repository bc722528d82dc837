//===- AttentionOps.cpp - Verifiers and folds ------------------------------------===//

#include "foresight/Dialect/Foresight.h"

using namespace mlir;
using namespace foresight;

LogicalResult KvAppendOp::verify() { return success(); }
LogicalResult AttentionOp::verify() { return success(); }
