//===- Foresight.h - The foresight dialect ----------------------*- C++ -*-===//
//
// Types, attributes and ops of the dialect. Their meaning is in the .td files
// beside this one, and executable in dialect/interpreter.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_DIALECT_FORESIGHT_H
#define FORESIGHT_DIALECT_FORESIGHT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "foresight/Dialect/ForesightDialect.h.inc"
#include "foresight/Dialect/ForesightEnums.h.inc"

#define GET_TYPEDEF_CLASSES
#include "foresight/Dialect/ForesightTypes.h.inc"

#define GET_ATTRDEF_CLASSES
#include "foresight/Dialect/ForesightAttrs.h.inc"

#define GET_OP_CLASSES
#include "foresight/Dialect/ForesightOps.h.inc"

#endif // FORESIGHT_DIALECT_FORESIGHT_H
