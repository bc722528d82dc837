//===- WeightData.cpp - Rows of a weight, whatever it is made of ----------===//

#include "WeightData.h"

#include "Transpose.h"

#include "foresight/lowbit/Balance.h"
#include "foresight/support/Float.h"
#include "foresight/support/Hash.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace foresight;
using namespace foresight::packing;

//===----------------------------------------------------------------------===//
// Tensor
//===----------------------------------------------------------------------===//

/// Elements that a conversion or a rule gives at a time.
static constexpr size_t kPiece = 4096;

void Tensor::read(uint64_t first, size_t size, ElementType to,
                  std::byte *out) const {
  const std::byte *source = nullptr;
  if (const auto *range = std::get_if<InFile>(&data)) {
    source = range->file->data() + range->offset +
             first * static_cast<uint64_t>(elementBytes(stored));
    if (stored == to) {
      std::memcpy(out, source, size * static_cast<size_t>(elementBytes(to)));
      return;
    }
  }
  float piece[kPiece];
  for (size_t done = 0; done < size;) {
    const size_t count = std::min(size - done, kPiece);
    if (source)
      convertToFloat(stored,
                     source + done * static_cast<size_t>(elementBytes(stored)),
                     piece, count);
    else if (const auto *rule = std::get_if<Synthetic>(&data))
      rule->fill(first + done, piece, count);
    else
      std::copy_n(std::get<std::vector<float>>(data).data() + first + done,
                  count, piece);
    convertFromFloat(piece, to,
                     out + done * static_cast<size_t>(elementBytes(to)), count);
    done += count;
  }
}

float Tensor::at(uint64_t index) const {
  float value;
  read(index, 1, ElementType::F32, reinterpret_cast<std::byte *>(&value));
  return value;
}

//===----------------------------------------------------------------------===//
// WeightData
//===----------------------------------------------------------------------===//

/// The index of the first element whose exponent is all ones, or -1.
template <typename Bits>
static int64_t findNotFinite(const std::byte *values, int64_t count,
                             Bits exponent) {
  // A flag first: that loop becomes vector code and finds nothing as a rule.
  Bits any = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits value;
    std::memcpy(&value, values + i * static_cast<int64_t>(sizeof(Bits)),
                sizeof(Bits));
    any |= static_cast<Bits>((value & exponent) == exponent);
  }
  if (!any)
    return -1;
  for (int64_t i = 0; i < count; ++i) {
    Bits value;
    std::memcpy(&value, values + i * static_cast<int64_t>(sizeof(Bits)),
                sizeof(Bits));
    if ((value & exponent) == exponent)
      return i;
  }
  return -1;
}

static int64_t findNotFinite(ElementType type, const std::byte *values,
                             int64_t count) {
  switch (type) {
  case ElementType::F16:
    return findNotFinite<uint16_t>(values, count, 0x7c00);
  case ElementType::BF16:
    return findNotFinite<uint16_t>(values, count, 0x7f80);
  default:
    return findNotFinite<uint32_t>(values, count, 0x7f800000);
  }
}

Status WeightData::checkFinite(const Part &part, int64_t row,
                               const std::byte *values, int64_t count) const {
  const int64_t column = findNotFinite(element, values, count);
  if (column < 0)
    return {};
  const Tensor &tensor = *part.tensor;
  const int64_t at = part.index(row, column), width = part.tensorColumns();
  const int64_t index[] = {vector ? 0 : at / width, vector ? at : at % width};
  const float found = tensor.at(static_cast<uint64_t>(at));
  const std::string place =
      vector ? shapeText(std::span(index + 1, 1)) : shapeText(index);
  if (std::isfinite(found))
    return makeError(ErrorCode::BadInput, tensor.where, ": tensor '",
                     tensor.name, "' is ", found, " at ", place,
                     ", too large for ", elementName(element),
                     "; compile with --dtype=bf16 or f32");
  return makeError(ErrorCode::BadInput, tensor.where, ": tensor '", tensor.name,
                   "' is ", std::isnan(found) ? "NaN" : "infinite", " at ",
                   place,
                   ": the weights are damaged, or were saved from a "
                   "training run that diverged");
}

Status WeightData::readPart(const Part &part, int64_t begin, int64_t end,
                            std::byte *out, int64_t stride) const {
  const int64_t width = elementBytes(element);
  if (!part.transposed) {
    for (int64_t row = begin; row < end; ++row, out += stride) {
      part.tensor->read(static_cast<uint64_t>(part.index(row, 0)),
                        static_cast<size_t>(part.columns), element, out);
      FORESIGHT_CHECK(checkFinite(part, row, out, part.columns));
    }
    return {};
  }
  // Column c of the part is a row of the tensor. A strip of them is read, in
  // pieces that fit a cache, and turned.
  constexpr int64_t kStripColumns = 64, kStripRows = 256;
  alignas(64) std::byte strip[kStripColumns * kStripRows * 4];
  for (int64_t row = begin; row < end; row += kStripRows) {
    const int64_t rowCount = std::min(kStripRows, end - row);
    std::byte *target = out + (row - begin) * stride;
    for (int64_t c = 0; c < part.columns; c += kStripColumns) {
      const int64_t columnCount = std::min(kStripColumns, part.columns - c);
      for (int64_t i = 0; i < columnCount; ++i)
        part.tensor->read(static_cast<uint64_t>(part.index(row, c + i)),
                          static_cast<size_t>(rowCount), element,
                          strip + i * rowCount * width);
      transpose(strip, rowCount * width, target + c * width, stride,
                columnCount, rowCount, width);
    }
    for (int64_t i = 0; i < rowCount; ++i)
      FORESIGHT_CHECK(
          checkFinite(part, row + i, target + i * stride, part.columns));
  }
  return {};
}

Status WeightData::readRows(int64_t begin, int64_t end, std::byte *out,
                            int64_t stride) const {
  if (vector) {
    for (const Part &part : parts) {
      FORESIGHT_CHECK(readPart(part, 0, 1, out, stride));
      out += part.columns * elementBytes(element);
    }
    return {};
  }
  int64_t first = 0;
  for (const Part &part : parts) {
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, first + part.rows);
    if (from < to)
      FORESIGHT_CHECK(readPart(part, from - first, to - first,
                               out + (from - begin) * stride, stride));
    first += part.rows;
  }
  return {};
}

Status WeightData::readRows(int64_t begin, int64_t end, float *out) const {
  const int64_t width = elementBytes(element), stride = columns * width;
  if (element == ElementType::F32)
    return readRows(begin, end, reinterpret_cast<std::byte *>(out), stride);
  std::vector<std::byte> own(static_cast<size_t>((end - begin) * stride));
  FORESIGHT_CHECK(readRows(begin, end, own.data(), stride));
  convertToFloat(element, own.data(), out,
                 static_cast<size_t>((end - begin) * columns));
  return {};
}

std::string WeightData::key() const {
  std::string text =
      std::string(elementName(element)) + (vector ? " vector" : " matrix");
  for (const Part &part : parts)
    text += "|" + part.tensor->key + " " + std::to_string(part.rows) + "x" +
            std::to_string(part.columns) + (part.transposed ? "t" : "") + "@" +
            std::to_string(part.first) + "/" +
            std::to_string(part.tensorColumns());
  return text;
}

std::vector<std::string> WeightData::tensorNames() const {
  std::vector<std::string> names;
  names.reserve(parts.size());
  for (const Part &part : parts)
    if (names.empty() || names.back() != part.tensor->name)
      names.push_back(part.tensor->name);
  return names;
}

uint64_t WeightData::sample() const {
  // Few, since each may cost a read from disk; equalContent decides.
  constexpr int64_t kSamples = 16;
  std::vector<std::byte> values;
  for (int64_t i = 0; i < kSamples; ++i) {
    const uint64_t at = deriveSeed(1, static_cast<uint64_t>(i)) %
                        static_cast<uint64_t>(rows * columns);
    int64_t row = static_cast<int64_t>(at) / columns;
    int64_t column = static_cast<int64_t>(at) % columns;
    const Part *part = &parts.front();
    while (vector ? column >= part->columns : row >= part->rows) {
      (vector ? column : row) -= vector ? part->columns : part->rows;
      ++part;
    }
    std::byte value[8] = {};
    part->tensor->read(static_cast<uint64_t>(part->index(row, column)), 1,
                       element, value);
    values.insert(values.end(), value, value + elementBytes(element));
  }
  return hash64(values);
}

Result<std::vector<float>> packing::readSample(const WeightData &weight) {
  std::vector<float> values;
  for (const lowbit::RowRange &group : lowbit::sampleRows(weight.rows)) {
    const size_t before = values.size();
    values.resize(before + static_cast<size_t>((group.end - group.begin) *
                                               weight.columns));
    FORESIGHT_CHECK(
        weight.readRows(group.begin, group.end, values.data() + before));
  }
  return values;
}

Result<bool> packing::equalContent(const WeightData &a, const WeightData &b) {
  const int64_t stride = a.columns * elementBytes(a.element);
  const int64_t step = std::max<int64_t>(1, (1 << 20) / stride);
  std::vector<std::byte> left(static_cast<size_t>(step * stride));
  std::vector<std::byte> right(left.size());
  for (int64_t row = 0; row < a.rows; row += step) {
    const int64_t end = std::min(a.rows, row + step);
    FORESIGHT_CHECK(a.readRows(row, end, left.data(), stride));
    FORESIGHT_CHECK(b.readRows(row, end, right.data(), stride));
    if (std::memcmp(left.data(), right.data(),
                    static_cast<size_t>((end - row) * stride)) != 0)
      return false;
  }
  return true;
}
