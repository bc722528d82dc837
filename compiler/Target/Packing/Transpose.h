//===- Transpose.h - Small matrix transposes --------------------*- C++ -*-===//
#ifndef FORESIGHT_TARGET_PACKING_TRANSPOSE_H
#define FORESIGHT_TARGET_PACKING_TRANSPOSE_H

#include <cstddef>
#include <cstdint>

namespace foresight::packing {

/// out[c][r] = in[r][c] for `rows` x `columns` elements of 2 or 4 bytes.
/// Strides are in bytes.
void transpose(const std::byte *in, int64_t inStride, std::byte *out,
               int64_t outStride, int64_t rows, int64_t columns,
               int64_t elementBytes);

} // namespace foresight::packing
#endif
