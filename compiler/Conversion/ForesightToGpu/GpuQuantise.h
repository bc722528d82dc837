//===- GpuQuantise.h - Low-bit copies of weights made on a GPU --*- C++ -*-===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUQUANTISE_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUQUANTISE_H

#include "GpuCode.h"

#include <string>

namespace foresight {

/// `foresight_quantise_TYPE_BITS`.
std::string gpuQuantiseName(mlir::Type element, int64_t bits);

/// The entry of that name: (record, weight, bias, gamma, beta, rows, columns),
/// a row a warp, 256 threads a block. Padding is left as it is.
void emitQuantiseEntry(mlir::OpBuilder &b, mlir::Location loc,
                       mlir::Type element, int64_t bits);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUQUANTISE_H
