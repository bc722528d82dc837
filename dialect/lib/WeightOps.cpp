//===- WeightOps.cpp - Verifiers of weights -------------------------------===//

#include "Verify.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace foresight;

namespace {

bool isStorable(Type type) {
  return type.isF32() || type.isF16() || type.isBF16();
}

LogicalResult verifyExternal(WeightOp op, ExternalAttr source) {
  auto type = dyn_cast<RankedTensorType>(op.getType());
  if (!type)
    return op.emitOpError()
           << "has type " << op.getType() << " but a file holds tensors";
  if (!isStorable(source.getElement()) && !source.getElement().isF64())
    return op.emitOpError() << "reads elements of type " << source.getElement()
                            << " but only f16, bf16, f32 and f64 are read";
  const int64_t expected =
      type.getNumElements() * source.getElement().getIntOrFloatBitWidth() / 8;
  if (source.getBytes() != expected)
    return op.emitOpError()
           << "has " << type.getNumElements() << " elements, which take "
           << expected << " bytes as " << source.getElement()
           << ", but its source has " << source.getBytes() << " bytes";
  if (source.getOffset() < 0)
    return op.emitOpError()
           << "starts at byte " << source.getOffset() << " of its file";
  if (source.getTransposed() && type.getRank() != 2)
    return op.emitOpError() << "has rank " << type.getRank()
                            << " but only a matrix can be stored transposed";
  return success();
}

LogicalResult verifySynthetic(WeightOp op, SyntheticAttr source) {
  if (!isa<RankedTensorType>(op.getType()))
    return op.emitOpError()
           << "has type " << op.getType() << " but a seed makes tensors";
  const APFloat mean = source.getMean().getValue(),
                deviation = source.getDeviation().getValue();
  if (!mean.isFinite() || !deviation.isFinite() || deviation.isNegative())
    return op.emitOpError()
           << "needs a finite mean and a finite deviation of at least 0, found "
           << mean.convertToDouble() << " and " << deviation.convertToDouble();
  return success();
}

LogicalResult verifyDerived(WeightOp op, DerivedAttr source) {
  const bool lowBit = isa<LowBitType>(op.getType());
  if (lowBit != (source.getKind() == DerivedKind::LowBit))
    return op.emitOpError()
           << "has type " << op.getType() << " but is derived by "
           << stringifyDerivedKind(source.getKind());
  const size_t count = source.getSources().size();
  auto wrongCount = [&](StringRef needed) {
    return op.emitOpError()
           << "is derived by " << stringifyDerivedKind(source.getKind())
           << ", which takes " << needed << ", from " << count;
  };
  if (source.getFirst() && source.getKind() != DerivedKind::SliceRows)
    return op.emitOpError()
           << "is derived by " << stringifyDerivedKind(source.getKind())
           << ", which has no first row";
  switch (source.getKind()) {
  case DerivedKind::Transpose:
  case DerivedKind::SliceRows:
    return count == 1 ? success() : LogicalResult(wrongCount("one source"));
  case DerivedKind::ConcatRows:
    return count >= 1 ? success()
                      : LogicalResult(wrongCount("one source or more"));
  case DerivedKind::LowBit:
    return count == 4 || count == 5
               ? success()
               : LogicalResult(wrongCount(
                     "weight, bias, gamma, beta and perhaps balance"));
  case DerivedKind::Balance:
    return count == 2 ? success()
                      : LogicalResult(wrongCount("weight and gamma"));
  }
  return success();
}

} // namespace

LogicalResult WeightOp::verify() {
  if (auto type = dyn_cast<RankedTensorType>(getType())) {
    if (!isStorable(type.getElementType()))
      return emitOpError() << "elements must be f16, bf16 or f32, found "
                           << type.getElementType();
    if (!type.hasStaticShape() || type.getNumElements() == 0 ||
        type.getRank() < 1 || type.getRank() > 2)
      return emitOpError() << "must be a vector or matrix of known shape that "
                              "is not empty, found "
                           << type;
  } else if (!isa<LowBitType>(getType())) {
    return emitOpError() << "must be a tensor or a !foresight.low_bit copy, "
                            "found "
                         << getType();
  }
  if (auto elements = dyn_cast<ElementsAttr>(getSource())) {
    if (elements.getType() != getType())
      return emitOpError() << "has type " << getType()
                           << " but its elements have type "
                           << elements.getType();
    return success();
  }
  if (auto source = dyn_cast<ExternalAttr>(getSource()))
    return verifyExternal(*this, source);
  if (auto source = dyn_cast<SyntheticAttr>(getSource()))
    return verifySynthetic(*this, source);
  if (auto source = dyn_cast<DerivedAttr>(getSource()))
    return verifyDerived(*this, source);
  return emitOpError()
         << "needs an external, synthetic, derived or dense source, found "
         << getSource();
}

/// Sources of a derived weight exist and have the shapes that it is made from.
LogicalResult WeightOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto derived = dyn_cast<DerivedAttr>(getSource());
  if (!derived)
    return success();
  SmallVector<RankedTensorType> types;
  for (auto [i, name] : llvm::enumerate(derived.getSources())) {
    types.emplace_back();
    if (derived.isMissing(i)) {
      const DerivedKind kind = derived.getKind();
      if ((kind == DerivedKind::LowBit || kind == DerivedKind::Balance) &&
          i > 0)
        continue;
      return emitOpError() << "is derived by "
                           << stringifyDerivedKind(derived.getKind())
                           << " but its source " << i << " is missing";
    }
    auto source = symbolTable.lookupNearestSymbolFrom<WeightOp>(*this, name);
    if (!source)
      return emitOpError() << "is derived from " << name
                           << ", which is not a foresight.weight of this "
                              "module";
    types.back() = dyn_cast<RankedTensorType>(source.getType());
    if (!types.back())
      return emitOpError() << "is derived from " << name << ", which has type "
                           << source.getType() << " and is not a tensor";
  }
  auto mismatch = [&](size_t source, ArrayRef<int64_t> expected) {
    InFlightDiagnostic diag = emitOpError();
    diag << "has type " << getType() << ", for which "
         << derived.getSources()[source] << " must have shape [";
    llvm::interleaveComma(expected, diag);
    diag << "], but it has type " << types[source];
    return diag;
  };
  auto check = [&](size_t source, ArrayRef<int64_t> expected) {
    if (!types[source] || types[source].getShape() == expected)
      return success();
    return LogicalResult(mismatch(source, expected));
  };

  if (auto copy = dyn_cast<LowBitType>(getType())) {
    if (failed(check(0, {copy.getRows(), copy.getColumns()})) ||
        failed(check(1, {copy.getRows()})) ||
        failed(check(2, {copy.getColumns()})) ||
        failed(check(3, {copy.getColumns()})))
      return failure();
    return types.size() > 4 ? check(4, {copy.getColumns()}) : success();
  }
  auto type = cast<RankedTensorType>(getType());
  if (derived.getKind() == DerivedKind::Balance) {
    if (type.getRank() != 1 || types[0].getRank() != 2)
      return emitOpError() << "has type " << type << " and is made from "
                           << types[0]
                           << ", but balance is a vector made from a matrix";
    if (failed(check(0, {types[0].getDimSize(0), type.getDimSize(0)})))
      return failure();
    return check(1, type.getShape());
  }
  if (derived.getKind() == DerivedKind::Transpose) {
    if (type.getRank() != 2)
      return emitOpError() << "has rank " << type.getRank()
                           << " but only a matrix can be transposed";
    return check(0, {type.getDimSize(1), type.getDimSize(0)});
  }
  if (derived.getKind() == DerivedKind::SliceRows) {
    const int64_t first = derived.getFirst(), rows = type.getDimSize(0);
    if (types[0].getRank() != type.getRank() || first < 0 ||
        types[0].getShape().drop_front() != type.getShape().drop_front() ||
        first > types[0].getDimSize(0) - rows)
      return emitOpError() << "has type " << type << ", which are no rows of "
                           << derived.getSources()[0] << ", of type "
                           << types[0] << ", from " << first << " on";
    return success();
  }
  int64_t total = 0;
  for (auto [i, source] : llvm::enumerate(types)) {
    if (source.getRank() != type.getRank() ||
        source.getShape().drop_front() != type.getShape().drop_front())
      return emitOpError() << "has type " << type << " but "
                           << derived.getSources()[i] << ", of type " << source
                           << ", has other columns";
    total += source.getDimSize(0);
  }
  return verify::sameCount(*this, {"the weight", type.getDimSize(0), "rows"},
                           {"what it is derived from", total, "rows"});
}

LogicalResult
GetWeightOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto weight =
      symbolTable.lookupNearestSymbolFrom<WeightOp>(*this, getWeightAttr());
  if (!weight)
    return emitOpError() << "names " << getWeightAttr()
                         << ", which is not a foresight.weight of this module";
  if (weight.getType() != getType())
    return emitOpError() << "has type " << getType() << " but "
                         << getWeightAttr() << " has type " << weight.getType();
  return success();
}
