//===- ExpandFused.h - Fused operators as standard ones ---------*- C++ -*-===//
#ifndef FORESIGHT_IMPORT_ONNX_EXPANDFUSED_H
#define FORESIGHT_IMPORT_ONNX_EXPANDFUSED_H

#include "foresight/Import/Onnx/Onnx.h"

namespace foresight::onnx {

/// Replaces operators of ONNX Runtime's optimiser (domain com.microsoft) by the
/// standard ones that they were made of. Those that it does not know, or that
/// have inputs or outputs which standard operators do not give, stay.
void expandFused(GraphOp graph);

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_EXPANDFUSED_H
