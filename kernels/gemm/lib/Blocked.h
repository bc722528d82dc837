//===- Blocked.h - What a vector instruction set provides -------*- C++ -*-===//
//
// BlockedKernels.inc is compiled once an instruction set, with that set's
// compiler flags. So that no code compiled for a newer CPU can be linked in
// place of code for an older one, those files include no header with inline
// functions but the intrinsics; everything they define is in their own
// namespace.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_GEMM_BLOCKED_H
#define FORESIGHT_GEMM_BLOCKED_H

#include "foresight/gemm/Gemm.h"

namespace foresight::gemm {

/// Outputs that are converted and multiplied together: whole tiles of 6, 12 and
/// 24.
constexpr int64_t kBlock = 48;

/// Blocks of a unit. With InOut a row of weights is a page and more away from
/// the next, and every block reads a piece of each: blocks beside each other
/// take turns over a block of k, so that its pages are still known to the TLB.
/// Twelve units at least, so that a few threads share them evenly.
inline constexpr int64_t unitBlocks(const Product &product) {
  const int64_t blocks = product.n / kBlock / 12;
  if (product.layout == Layout::OutIn || blocks < 1)
    return 1;
  return blocks < 4 ? blocks : 4;
}
inline constexpr int64_t unitOutputs(const Product &product) {
  return unitBlocks(product) * kBlock;
}

/// How a product of T tokens is cut: into blocks of outputs (units), of k, and
/// panels of tokens. In a tile the weights of a few outputs are broadcast and
/// meet vectors of tokens; so weights are converted to f32 as they lie and
/// never transposed, whatever their layout.
struct Blocking {
  int64_t panel = 16; ///< tokens of a panel
  int64_t depth = 0;  ///< k a block: a panel of this depth stays in L1
};

struct KernelSet {
  Blocking (*blocking)(const Product &product, int64_t tokens);
  void (*prepare)(const Product &product, int64_t tokens, float *scratch);
  void (*compute)(const Product &product, int64_t tokens, float *scratch,
                  int64_t unit);
  /// Up to kFewTokens tokens: floats of scratch memory, a unit.
  int64_t (*fewScratch)(const Product &product, int64_t tokens);
  void (*computeFew)(const Product &product, int64_t tokens, float *scratch,
                     int64_t unit);
};

/// Tokens up to which products are computed as FewTokens.inc does.
constexpr int64_t kFewTokens = 24;

extern const KernelSet kAvx2Kernels;
extern const KernelSet kAvx512Kernels;

/// Scratch memory, in floats: x packed, then W converted, then sums.
struct Scratch {
  int64_t weight, sums, total;
};
inline constexpr int64_t roundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
/// Floats from an output (OutIn) or a tile (InOut) to the next; rows whose
/// length is a power of two would share cache sets.
inline constexpr int64_t convertedStride(const Blocking &blocking, int64_t rows,
                                         Layout layout) {
  return layout == Layout::OutIn ? roundUp(blocking.depth, 16)
                                 : blocking.depth * rows + 16;
}
/// Floats of converted weights. InOut has two blocks of k: one is converted
/// while the other is multiplied.
inline constexpr int64_t convertedFloats(const Blocking &blocking,
                                         Layout layout) {
  return layout == Layout::OutIn ? convertedStride(blocking, 1, layout) * kBlock
                                 : 2 * (blocking.depth + 16) * kBlock;
}
inline constexpr Scratch scratchLayout(const Product &product, int64_t tokens,
                                       const Blocking &blocking) {
  const int64_t paddedTokens = roundUp(tokens, blocking.panel);
  Scratch scratch{};
  scratch.weight = roundUp(product.k * paddedTokens, 16);
  scratch.sums = scratch.weight + convertedFloats(blocking, product.layout);
  scratch.total = scratch.sums + paddedTokens * unitOutputs(product);
  return scratch;
}

/// gelu, exact or its tanh form; not for inner loops.
float activate(float value, Activation activation);

} // namespace foresight::gemm
#endif
