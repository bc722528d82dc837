//===- ForesightDialect.cpp - Types and attributes ------------------------===//

#include "foresight/Dialect/Foresight.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace foresight;

#include "foresight/Dialect/ForesightDialect.cpp.inc"
#include "foresight/Dialect/ForesightEnums.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "foresight/Dialect/ForesightTypes.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "foresight/Dialect/ForesightAttrs.cpp.inc"

void ForesightDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "foresight/Dialect/ForesightTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "foresight/Dialect/ForesightAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "foresight/Dialect/ForesightOps.cpp.inc"
      >();
}

#define GET_OP_CLASSES
#include "foresight/Dialect/ForesightOps.cpp.inc"

LogicalResult IndexSetType::verify(function_ref<InFlightDiagnostic()> emitError,
                                   int64_t capacity, int64_t universe) {
  if (capacity <= 0 || capacity > universe)
    return emitError()
           << "keeps " << capacity << " of " << universe
           << " units: the capacity must be between 1 and the universe";
  return success();
}

LogicalResult KvCacheType::verify(function_ref<InFlightDiagnostic()> emitError,
                                  int64_t heads, int64_t headDim,
                                  int64_t capacity, Type elementType,
                                  int64_t sequences) {
  if (heads <= 0 || headDim <= 0 || capacity <= 0)
    return emitError()
           << "heads, head size and capacity must be positive, found " << heads
           << " x " << headDim << ", " << capacity;
  if (sequences <= 0)
    return emitError() << "must hold at least one sequence, found "
                       << sequences;
  if (!elementType.isF16() && !elementType.isBF16() && !elementType.isF32())
    return emitError() << "elements must be f16, bf16 or f32, found "
                       << elementType;
  return success();
}

LogicalResult LowBitType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t rows, int64_t columns, int64_t bits) {
  if (rows <= 0 || columns <= 0)
    return emitError() << "rows and columns must be positive, found " << rows
                       << " x " << columns;
  if (bits < 2 || bits > 8)
    return emitError() << "bits must be between 2 and 8, found " << bits;
  return success();
}
