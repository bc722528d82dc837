//===- Pack.cpp - Planes of codes, and the rest of a record ---------------===//

#include "foresight/lowbit/Pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace foresight;
using namespace foresight::lowbit;

namespace {

/// A plane holds `bits` bits of every element of a block, those above `shift`.
struct Plane {
  int bits, shift, bytes;
};

/// The planes of a code, in the order they lie in a block.
template <typename Fn> void forEachPlane(int bits, Fn &&fn) {
  int shift = 0, offset = 0;
  for (int width : {8, 4, 2, 1})
    if (bits & width) {
      const Plane plane{width, shift, static_cast<int>(kBlock) * width / 8};
      fn(plane, offset);
      shift += width;
      offset += plane.bytes;
    }
}

/// Where the piece `m` of byte `j` of a plane comes from. A 4-bit plane is two
/// runs of 32 bytes, so that 64 elements come out of one 32-byte load.
int elementOf(const Plane &plane, int j, int m) {
  if (plane.bits == 4)
    return j / 32 * 64 + j % 32 + 32 * m;
  return j + plane.bytes * m;
}

float roundUp(double value) {
  // What the sums that led to `value` may have lost themselves.
  value += std::fabs(value) * 1e-9;
  const auto rounded = static_cast<float>(value);
  if (rounded >= value)
    return rounded;
  return std::nextafter(rounded, std::numeric_limits<float>::infinity());
}

/// The least f16 number that is not below `value`, which is not negative:
/// infinity if there is no other.
uint16_t roundUpToHalf(double value) {
  const float single = roundUp(value);
  const uint16_t nearest = floatToHalf(single);
  // The next number of the same sign has the next bits.
  return halfToFloat(nearest) < single ? nearest + 1 : nearest;
}

} // namespace

double lowbit::slackOf(int64_t columns, double folded, double norm,
                       double error, double magnitude) {
  const auto count = static_cast<double>(columns);
  const double radius = 1.01 * std::sqrt(count);
  return 1.02 * 0x1p-24 * (count + 32) *
             (radius * (folded + norm + error) + magnitude) +
         0x1p-80;
}

void lowbit::packCodes(std::span<const uint8_t> codes, int bits,
                       std::byte *out) {
  const auto columns = static_cast<int64_t>(codes.size());
  uint8_t block[kBlock];
  for (int64_t k = 0; k < columns; k += kBlock, out += 16 * bits) {
    const int64_t count = std::min(kBlock, columns - k);
    std::memset(block, 0, sizeof(block));
    std::memcpy(block, codes.data() + k, count);
    forEachPlane(bits, [&](const Plane &plane, int offset) {
      const int pieces = 8 / plane.bits, mask = (1 << plane.bits) - 1;
      for (int j = 0; j < plane.bytes; ++j) {
        int byte = 0;
        for (int m = 0; m < pieces; ++m)
          byte |= (block[elementOf(plane, j, m)] >> plane.shift & mask)
                  << (m * plane.bits);
        out[offset + j] = static_cast<std::byte>(byte);
      }
    });
  }
}

void lowbit::unpackCodes(const std::byte *in, int bits,
                         std::span<uint8_t> codes) {
  const auto columns = static_cast<int64_t>(codes.size());
  uint8_t block[kBlock];
  for (int64_t k = 0; k < columns; k += kBlock, in += 16 * bits) {
    std::memset(block, 0, sizeof(block));
    forEachPlane(bits, [&](const Plane &plane, int offset) {
      const int pieces = 8 / plane.bits, mask = (1 << plane.bits) - 1;
      for (int j = 0; j < plane.bytes; ++j)
        for (int m = 0; m < pieces; ++m)
          block[elementOf(plane, j, m)] |= static_cast<uint8_t>(
              (static_cast<int>(in[offset + j]) >> (m * plane.bits) & mask)
              << plane.shift);
    });
    std::memcpy(codes.data() + k, block, std::min(kBlock, columns - k));
  }
}

Packer::Packer(int64_t rows, int64_t columns, int bits,
               std::span<const float> gamma, std::span<const float> beta,
               std::span<std::byte> record, std::span<const float> balance)
    : rows(rows), columns(columns), bits(bits), gamma(gamma), beta(beta),
      balance(balance), base(record.data()) {
  const Record layout = lowbit::record(rows, columns, bits);
  // Codes of rows are written whole; only what lies behind them is not.
  const int64_t codes = rows * rowBytes(columns, bits);
  std::memset(base + codes, 0, layout.bytes - codes);
}

void Packer::pack(int64_t i, std::span<const float> weight, float bias) const {
  // Products of two f32 numbers are exact in f64.
  std::vector<double> exact(columns);
  std::vector<float> row(columns);
  for (int64_t k = 0; k < columns; ++k) {
    exact[k] = weight[k];
    if (!gamma.empty())
      exact[k] *= gamma[k];
    if (!balance.empty())
      exact[k] /= balance[k];
    row[k] = static_cast<float>(exact[k]);
  }
  std::vector<uint8_t> codes(columns);
  const float scale = quantiseRow(row, bits, codes);

  double error = 0, norm = 0, energy = 0, shift = 0, magnitude = 0;
  for (int64_t k = 0; k < columns; ++k) {
    const double w = weight[k], folded = exact[k];
    const double rounded = scale * (codes[k] - zero(bits));
    error += (folded - rounded) * (folded - rounded);
    norm += rounded * rounded;
    energy += folded * folded;
    if (!beta.empty()) {
      shift += w * beta[k];
      magnitude += std::fabs(w * beta[k]);
    }
  }
  const uint16_t errorBits = roundUpToHalf(std::sqrt(error)),
                 normBits = roundUpToHalf(std::sqrt(norm));
  magnitude += std::fabs(static_cast<double>(bias));

  // Of what the test reads, so that rounding it is part of what slack covers.
  // Whatever is not a number, or infinite, makes a bias that keeps the neuron.
  const double slack =
      slackOf(columns, std::sqrt(energy), halfToFloat(normBits),
              halfToFloat(errorBits), magnitude);
  const float bound =
      roundUp(static_cast<double>(bias) + shift + magnitude * 1e-9 + slack);

  const Record layout = record(rows, columns, bits);
  packCodes(codes, bits, base + layout.codes + i * rowBytes(columns, bits));
  reinterpret_cast<float *>(base + layout.scale)[i] = scale;
  reinterpret_cast<float *>(base + layout.bias)[i] = bound;
  reinterpret_cast<uint16_t *>(base + layout.error)[i] = errorBits;
  reinterpret_cast<uint16_t *>(base + layout.norm)[i] = normBits;
}
