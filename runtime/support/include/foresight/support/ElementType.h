//===- ElementType.h - Element types of tensors in files --------*- C++ -*-===//
#ifndef FORESIGHT_SUPPORT_ELEMENTTYPE_H
#define FORESIGHT_SUPPORT_ELEMENTTYPE_H

#include "foresight/support/Result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresight {

enum class ElementType { F64, F32, F16, BF16, I64, I32, I16, I8, U8, Bool };

/// Bytes of one element.
int64_t elementBytes(ElementType type);
/// "f32", "bf16", ...: as MLIR, bundles and messages write it.
std::string_view elementName(ElementType type);
bool isFloat(ElementType type);

/// "[2, 384]".
std::string shapeText(std::span<const int64_t> shape);
/// The number of elements, or an error if a dimension is negative or the
/// product overflows.
Result<int64_t> elementCount(std::span<const int64_t> shape);

/// Converts `count` elements of a float type to f32. f64 is rounded.
void convertToFloat(ElementType from, const std::byte *source, float *to,
                    size_t count);
/// Converts f32 to F32, F16 or BF16.
void convertFromFloat(const float *from, ElementType to, std::byte *target,
                      size_t count);

} // namespace foresight
#endif
