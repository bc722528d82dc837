//===- FoldQuantized.h - Quantised weights as plain numbers -----*- C++ -*-===//
#ifndef FORESIGHT_IMPORT_ONNX_FOLDQUANTIZED_H
#define FORESIGHT_IMPORT_ONNX_FOLDQUANTIZED_H

#include "foresight/Import/Onnx/Onnx.h"

namespace foresight::onnx {

/// Replaces quantised constants (DequantizeLinear of a constant, and the
/// weights of com.microsoft.MatMulNBits) by the f32 numbers that they stand
/// for. Reports weights that would take too much memory.
mlir::LogicalResult foldQuantized(GraphOp graph);

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_FOLDQUANTIZED_H
