//===- WeightOps.cpp - Verifiers of weights --------------------------------===//

#include "foresight/Dialect/Foresight.h"

using namespace mlir;
using namespace foresight;

LogicalResult WeightOp::verify() {
  if (auto elements = dyn_cast<ElementsAttr>(getSource())) {
    if (elements.getType() != getType())
      return emitOpError() << "has type " << getType() << " but its elements have type " << elements.getType();
    return success();
  }
  if (!isa<ExternalAttr, SyntheticAttr, DerivedAttr>(getSource()))
    return emitOpError() << "needs an external, synthetic, derived or dense source, found " << getSource();
  return success();
}

LogicalResult GetWeightOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto weight = symbolTable.lookupNearestSymbolFrom<WeightOp>(*this, getWeightAttr());
  if (!weight)
    return emitOpError() << "names " << getWeightAttr() << ", which is not a foresight.weight of this module";
  if (weight.getType() != getType())
    return emitOpError() << "has type " << getType() << " but " << getWeightAttr() << " has type " << weight.getType();
  return success();
}
