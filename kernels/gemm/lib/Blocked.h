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

/// How a product of T tokens is cut. Two operands meet in a tile: `rows` of
/// one, whose elements are broadcast, and a panel of the other, `panel` wide.
///   OutIn  rows are outputs (W's own rows), panels are tokens
///   InOut  rows are tokens, panels are outputs (pieces of W's rows)
/// Either way W is converted without being transposed.
struct Blocking {
  int64_t panel = 16; ///< width of a panel
  int64_t block = 48; ///< outputs a unit
  int64_t depth = 0;  ///< k a block: a panel of this depth stays in L1
};

struct KernelSet {
  Blocking (*blocking)(const Product &product, int64_t tokens);
  void (*prepare)(const Product &product, int64_t tokens, float *scratch);
  void (*compute)(const Product &product, int64_t tokens, float *scratch,
                  int64_t unit);
};

extern const KernelSet kAvx2Kernels;
extern const KernelSet kAvx512Kernels;

/// Scratch memory, in floats: x packed, then W converted, then sums.
struct Scratch {
  int64_t weight, sums, total;
};
inline constexpr int64_t roundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
inline constexpr Scratch scratchLayout(const Product &product, int64_t tokens,
                                       const Blocking &blocking) {
  const bool outIn = product.layout == Layout::OutIn;
  const int64_t paddedTokens = outIn ? roundUp(tokens, blocking.panel) : tokens;
  const int64_t depth = roundUp(blocking.depth, 16);
  const int64_t chunks = (product.k + blocking.depth - 1) / blocking.depth;
  Scratch scratch{};
  scratch.weight = roundUp(chunks * depth * paddedTokens, 16);
  scratch.sums = scratch.weight + roundUp(depth * blocking.block, 16);
  scratch.total = scratch.sums + roundUp(paddedTokens * blocking.block, 16);
  return scratch;
}

/// gelu, exact or its tanh form; not for inner loops.
float activate(float value, Activation activation);

} // namespace foresight::gemm
#endif
