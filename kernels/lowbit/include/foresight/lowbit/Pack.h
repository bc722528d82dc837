//===- Pack.h - Making and reading low-bit copies ---------------*- C++ -*-===//
#ifndef FORESIGHT_LOWBIT_PACK_H
#define FORESIGHT_LOWBIT_PACK_H

#include "foresight/lowbit/Layout.h"
#include "foresight/support/Float.h"

#include <cstddef>
#include <span>

namespace foresight::lowbit {

/// Rounds `row` to symmetric mid-rise levels scale * (u - zero(bits)) and
/// returns the scale: of those searched, the one with the least squared error.
/// Writes one code an element. A row that is zero (or so small that a scale
/// would be denormal, or not finite) gets scale 0.
float quantiseRow(std::span<const float> row, int bits,
                  std::span<uint8_t> codes);

/// Writes `codes` (fewer than 2^bits each) as planes: rowBytes(size, bits)
/// bytes.
void packCodes(std::span<const uint8_t> codes, int bits, std::byte *out);

/// Reads `codes.size()` codes back.
void unpackCodes(const std::byte *in, int bits, std::span<uint8_t> codes);

/// What the f32 arithmetic of the test and of the dense product can add up to
/// for one row: README.md derives it. `folded` is the norm of the row with
/// gamma and balance, `norm` and `error` are as the record has them,
/// `magnitude` is |b| + sum |w_k beta_k|.
double slackOf(int64_t columns, double folded, double norm, double error,
               double magnitude);

/// Fills one record row by row. Different rows may be given by different
/// threads at once. All that is given must outlive the packer.
class Packer {
public:
  /// `record` has record(rows, columns, bits).bytes bytes. `gamma` and `beta`
  /// are LayerNorm's, empty for 1 and 0. `balance` divides the columns, each
  /// number above 0 and at most 1, and x is multiplied by it where the copy is
  /// used; empty for 1. What no row writes is set to zero.
  Packer(int64_t rows, int64_t columns, int bits, std::span<const float> gamma,
         std::span<const float> beta, std::span<std::byte> record,
         std::span<const float> balance = {});

  /// Packs row `i`: `weight` has one element a column, exactly as it is stored
  /// (converted to f32), without gamma.
  void pack(int64_t i, std::span<const float> weight, float bias) const;

private:
  int64_t rows, columns;
  int bits;
  std::span<const float> gamma, beta, balance;
  std::byte *base;
};

/// Reads a record.
class RecordView {
public:
  RecordView(const std::byte *base, int64_t rows, int64_t columns, int bits)
      : base(base), rows(rows), columns(columns), bits(bits),
        layout(record(rows, columns, bits)) {}

  int64_t getRows() const { return rows; }
  int64_t getColumns() const { return columns; }
  int getBits() const { return bits; }

  float scale(int64_t i) const { return at<float>(layout.scale, i); }
  /// With slack.
  float bias(int64_t i) const { return at<float>(layout.bias, i); }
  float error(int64_t i) const { return halfToFloat(errorBits(i)); }
  float norm(int64_t i) const { return halfToFloat(normBits(i)); }
  uint16_t errorBits(int64_t i) const { return at<uint16_t>(layout.error, i); }
  uint16_t normBits(int64_t i) const { return at<uint16_t>(layout.norm, i); }

  /// Writes the codes of row `i`, one a column.
  void codes(int64_t i, std::span<uint8_t> out) const {
    unpackCodes(base + layout.codes + i * rowBytes(columns, bits), bits, out);
  }

  /// The value of code `u` in row `i`.
  double valueOf(int64_t i, uint8_t u) const {
    return static_cast<double>(scale(i)) * (u - zero(bits));
  }

private:
  template <typename T> T at(int64_t vector, int64_t i) const {
    return reinterpret_cast<const T *>(base + vector)[i];
  }

  const std::byte *base;
  int64_t rows, columns;
  int bits;
  Record layout;
};

} // namespace foresight::lowbit
#endif
