//===- Transpose.cpp - Small matrix transposes ----------------------------===//

#include "Transpose.h"

#include <cstring>
#include <emmintrin.h>
#include <xmmintrin.h>

using namespace foresight;

namespace {

__m128i load(const std::byte *from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
}
void store(std::byte *to, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i *>(to), value);
}

/// 8 x 8 elements of 16 bits: three rounds of interleaving.
void transpose8x8(const std::byte *in, int64_t inStride, std::byte *out,
                  int64_t outStride) {
  __m128i a[8], b[8];
  for (int i = 0; i < 8; ++i)
    a[i] = load(in + i * inStride);
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
    b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm_unpacklo_epi16(b[i], b[i + 4]);
    a[2 * i + 1] = _mm_unpackhi_epi16(b[i], b[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    store(out + 2 * i * outStride, _mm_unpacklo_epi16(a[i], a[i + 4]));
    store(out + (2 * i + 1) * outStride, _mm_unpackhi_epi16(a[i], a[i + 4]));
  }
}

/// 4 x 4 elements of 32 bits.
void transpose4x4(const std::byte *in, int64_t inStride, std::byte *out,
                  int64_t outStride) {
  __m128i a[4], b[4];
  for (int i = 0; i < 4; ++i)
    a[i] = load(in + i * inStride);
  for (int i = 0; i < 2; ++i) {
    b[2 * i] = _mm_unpacklo_epi32(a[i], a[i + 2]);
    b[2 * i + 1] = _mm_unpackhi_epi32(a[i], a[i + 2]);
  }
  for (int i = 0; i < 2; ++i) {
    store(out + 2 * i * outStride, _mm_unpacklo_epi32(b[i], b[i + 2]));
    store(out + (2 * i + 1) * outStride, _mm_unpackhi_epi32(b[i], b[i + 2]));
  }
}

} // namespace

void packing::transpose(const std::byte *in, int64_t inStride, std::byte *out,
                        int64_t outStride, int64_t rows, int64_t columns,
                        int64_t elementBytes) {
  const int64_t tile = 16 / elementBytes;
  const int64_t wholeRows = rows / tile * tile;
  const int64_t wholeColumns = columns / tile * tile;
  auto address = [&](int64_t r, int64_t c) {
    return in + r * inStride + c * elementBytes;
  };
  auto target = [&](int64_t r, int64_t c) {
    return out + c * outStride + r * elementBytes;
  };
  for (int64_t c = 0; c < wholeColumns; c += tile)
    for (int64_t r = 0; r < wholeRows; r += tile)
      if (elementBytes == 2)
        transpose8x8(address(r, c), inStride, target(r, c), outStride);
      else
        transpose4x4(address(r, c), inStride, target(r, c), outStride);
  // The edges.
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < wholeRows ? wholeColumns : 0; c < columns; ++c)
      std::memcpy(target(r, c), address(r, c), elementBytes);
}
