//===- Layout.h - Memory layout of a low-bit copy ---------------*- C++ -*-===//
//
// A low-bit copy of R rows and K columns with B bits (2..8) is one record:
//
//   codes   R rows of `rowBytes(K, B)` bytes
//   scale, bias    f32[padRows(R)] each
//   error, norm    f16[padRows(R)] each
//
// in this order, each starting at a multiple of 64 bytes.
//
// A row is cut into blocks of 128 codes (K is padded with codes that are
// multiplied by x = 0). A block is 16*B bytes: the planes that B's binary
// digits name, in this order. u is the code, an unsigned number of B bits; j
// counts bytes of a plane.
//
//   B = 8: 128 bytes, byte j is the code of element j
//   B & 4: 64 bytes, two runs v = 0, 1 of 32: low nibble of byte 32v+j is
//          bits 0..3 of element 64v+j, high nibble those of element 64v+32+j
//   B & 2: 32 bytes: bits 2m, 2m+1 of byte j are the next two bits of element
//          32m+j, m = 0..3
//   B & 1: 16 bytes: bit m of byte j is the next bit of element 16m+j,
//          m = 0..7
//
// "Next" means above the bits of the planes before it: with B = 7 the 4-bit
// plane holds bits 0..3, the 2-bit plane bits 4..5, the 1-bit plane bit 6.
//
// The value of a code is scale[i] * (u - zero(B)), zero(B) = (2^B - 1) / 2:
// levels are symmetric and none is zero.
//
// x, the normalised row (LayerNorm without gamma and beta) times balance, is
// rounded to integers xq of at most activationMax(K, B) with one scale: x ~
// xscale * xq. Then
//
//   d[i]     = 2 * sum_k u[i,k] xq[k] - (2^B - 1) * sum_k xq[k]
//   score[i] = float(d[i]) * (0.5f * scale[i] * xscale) + bias[i]
//
// d is exact in 32-bit integers that wrap around: |d| < 2^31, whatever the
// partial sums do (activationMax sees to that). It is converted to f32 only
// then: to subtract in f32 would lose more than the slack covers. Neuron i is
// kept unless
//
//   score[i] + kappa * error[i] * |x| + norm[i] * |x - xscale*xq| <= 0
//
// so that a NaN keeps it. error[i] and norm[i] are widened to f32, which is
// exact, and all else is f32 arithmetic.
//
// error[i] = |w_i - q_i| and norm[i] = |q_i| with w_i the f16/bf16/f32 row as
// it is stored times gamma, over balance; both are rounded up to f16. Denormals
// count: they must not be flushed to zero when they are widened. What is too
// large for f16 is infinite; so is the neuron's bias then, and it is always
// kept.
//
// bias[i] = b_i + w_i . beta + slack, rounded up. The slack bounds what f32
// arithmetic of this test and of the dense product can add up to;
// kernels/lowbit/README.md derives it. So a score errs upwards: it is made for
// this test, not as an estimate of the pre-activation.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LOWBIT_LAYOUT_H
#define FORESIGHT_LOWBIT_LAYOUT_H

#include <cstdint>

namespace foresight::lowbit {

constexpr int64_t kBlock = 128;
constexpr int32_t kActivationMax = 4095;

constexpr int64_t padRows(int64_t rows) { return (rows + 31) / 32 * 32; }
constexpr int64_t padColumns(int64_t columns) {
  return (columns + kBlock - 1) / kBlock * kBlock;
}
constexpr int64_t rowBytes(int64_t columns, int64_t bits) {
  return padColumns(columns) / kBlock * 16 * bits;
}

/// The largest magnitude of a rounded activation.
constexpr int32_t activationMax(int64_t columns, int64_t bits) {
  const int64_t fits = INT32_MAX / (((int64_t{1} << bits) - 1) * columns);
  return static_cast<int32_t>(fits < kActivationMax ? fits : kActivationMax);
}

/// The number that a code is relative to.
constexpr double zero(int64_t bits) {
  return static_cast<double>((int64_t{1} << bits) - 1) / 2;
}

/// What a record has for a row besides its codes.
constexpr int64_t kRowNumberBytes = 2 * 4 + 2 * 2;

/// Byte offsets in a record.
struct Record {
  int64_t codes, scale, bias, error, norm, bytes;
};

constexpr Record record(int64_t rows, int64_t columns, int64_t bits) {
  // Multiples of 64: padRows gives multiples of 32.
  const int64_t single = padRows(rows) * 4, half = padRows(rows) * 2;
  Record r{};
  r.codes = 0;
  r.scale = (rows * rowBytes(columns, bits) + 63) / 64 * 64;
  r.bias = r.scale + single;
  r.error = r.bias + single;
  r.norm = r.error + half;
  r.bytes = r.norm + half;
  return r;
}

} // namespace foresight::lowbit
#endif
