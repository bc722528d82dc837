//===- ElementType.cpp - Element types of tensors in files ----------------===//

#include "foresight/support/ElementType.h"

#include "foresight/support/Float.h"

#include <algorithm>
#include <cstring>
#include <iterator>

using namespace foresight;

int64_t foresight::elementBytes(ElementType type) {
  switch (type) {
  case ElementType::F64:
  case ElementType::I64:
    return 8;
  case ElementType::F32:
  case ElementType::I32:
    return 4;
  case ElementType::F16:
  case ElementType::BF16:
  case ElementType::I16:
    return 2;
  case ElementType::I8:
  case ElementType::U8:
  case ElementType::Bool:
    return 1;
  }
  return 0;
}

std::string_view foresight::elementName(ElementType type) {
  switch (type) {
  case ElementType::F64:
    return "f64";
  case ElementType::F32:
    return "f32";
  case ElementType::F16:
    return "f16";
  case ElementType::BF16:
    return "bf16";
  case ElementType::I64:
    return "i64";
  case ElementType::I32:
    return "i32";
  case ElementType::I16:
    return "i16";
  case ElementType::I8:
    return "i8";
  case ElementType::U8:
    return "u8";
  case ElementType::Bool:
    return "bool";
  }
  return "";
}

bool foresight::isFloat(ElementType type) {
  return type == ElementType::F64 || type == ElementType::F32 ||
         type == ElementType::F16 || type == ElementType::BF16;
}

std::string foresight::shapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Result<int64_t> foresight::elementCount(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t dimension : shape) {
    if (dimension < 0)
      return makeError(ErrorCode::BadInput, "shape ", shapeText(shape),
                       " has a negative dimension");
    if (__builtin_mul_overflow(count, dimension, &count))
      return makeError(ErrorCode::BadInput, "shape ", shapeText(shape),
                       " has more elements than 64 bits can count");
  }
  return count;
}

/// Calls `convert` on aligned copies of a source that lies at an odd address,
/// as tensors in files may.
template <typename Convert>
static void convertAligned(const std::byte *source, float *to, size_t count,
                           Convert convert) {
  if (reinterpret_cast<uintptr_t>(source) % alignof(uint16_t) == 0)
    return convert(reinterpret_cast<const uint16_t *>(source), to, count);
  uint16_t piece[1024];
  for (size_t done = 0; done < count;) {
    const size_t size = std::min(count - done, std::size(piece));
    std::memcpy(piece, source + done * sizeof(uint16_t),
                size * sizeof(uint16_t));
    convert(piece, to + done, size);
    done += size;
  }
}

void foresight::convertToFloat(ElementType from, const std::byte *source,
                               float *to, size_t count) {
  switch (from) {
  case ElementType::F32:
    std::memcpy(to, source, count * sizeof(float));
    return;
  case ElementType::F16:
    return convertAligned(source, to, count,
                          [](const uint16_t *in, float *out, size_t size) {
                            halfToFloat(in, out, size);
                          });
  case ElementType::BF16:
    return convertAligned(source, to, count,
                          [](const uint16_t *in, float *out, size_t size) {
                            bfloatToFloat(in, out, size);
                          });
  case ElementType::F64:
    for (size_t i = 0; i < count; ++i) {
      double value;
      std::memcpy(&value, source + i * sizeof(value), sizeof(value));
      to[i] = static_cast<float>(value);
    }
    return;
  default:
    break;
  }
  assert(false && "not a float type");
}

void foresight::convertFromFloat(const float *from, ElementType to,
                                 std::byte *target, size_t count) {
  switch (to) {
  case ElementType::F32:
    std::memcpy(target, from, count * sizeof(float));
    return;
  case ElementType::F16:
    return floatToHalf(from, reinterpret_cast<uint16_t *>(target), count);
  case ElementType::BF16:
    return floatToBfloat(from, reinterpret_cast<uint16_t *>(target), count);
  default:
    break;
  }
  assert(false && "weights are stored as f32, f16 or bf16");
}
