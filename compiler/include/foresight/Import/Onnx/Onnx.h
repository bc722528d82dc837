//===- Onnx.h - The onnx-level IR -------------------------------*- C++ -*-===//
#ifndef FORESIGHT_IMPORT_ONNX_ONNX_H
#define FORESIGHT_IMPORT_ONNX_ONNX_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "foresight/Import/Onnx/OnnxDialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "foresight/Import/Onnx/OnnxTypes.h.inc"

#define GET_OP_CLASSES
#include "foresight/Import/Onnx/OnnxOps.h.inc"

namespace foresight::onnx {

/// The name a node, constant or value has in the model file; empty if none.
llvm::StringRef nameOf(mlir::Location loc);

/// Bytes that `count` elements take in a file; a boolean has one of its own,
/// and two of 4 bits share one.
int64_t bytesOf(mlir::Type element, int64_t count);

/// How messages call a node: `node 'NAME' (TYPE)`.
std::string describe(NodeOp node);

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_ONNX_H
