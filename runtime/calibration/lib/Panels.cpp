//===- Panels.cpp - A matrix for products with rows of x ------------------===//
#include "foresight/calibration/Panels.h"

#include <algorithm>
#include <cstring>

namespace foresight::calibration {

Panels::Panels(int64_t rows, int64_t columns)
    : rows(rows), columns(columns), values(panels() * columns * kPanel) {}

void Panels::setRow(int64_t row, std::span<const float> from) {
  float *panel = values.data() + row / kPanel * columns * kPanel + row % kPanel;
  for (int64_t k = 0; k < columns; ++k)
    panel[k * kPanel] = from[k];
}

void Panels::getRow(int64_t row, std::span<float> out) const {
  const float *panel =
      values.data() + row / kPanel * columns * kPanel + row % kPanel;
  for (int64_t k = 0; k < columns; ++k)
    out[k] = panel[k * kPanel];
}

namespace {

/// As wide as a panel; the compiler splits it into the registers there are.
using Vector = float __attribute__((vector_size(Panels::kPanel * 4)));

/// `kTokens` rows of x times one panel. Inlined into one function for each
/// instruction set.
template <int kTokens>
[[gnu::always_inline]] inline void
panelProduct(const float *panel, const float *x, int64_t columns, float *out,
             int64_t outStride, int64_t count) {
  Vector sums[kTokens] = {};
  for (int64_t k = 0; k < columns; ++k) {
    Vector w; // copied: a panel is aligned for floats only
    std::memcpy(&w, panel + k * Panels::kPanel, sizeof w);
    for (int t = 0; t < kTokens; ++t)
      sums[t] += w * x[t * columns + k];
  }
  for (int t = 0; t < kTokens; ++t)
    for (int64_t i = 0; i < count; ++i)
      out[t * outStride + i] = sums[t][i];
}

[[gnu::always_inline]] inline void
allPanels(const float *values, const float *x, int64_t tokens, float *out,
          int64_t rows, int64_t columns, int64_t first, int64_t end) {
  constexpr int kTogether = 2;
  for (int64_t p = first; p < end; ++p) {
    const float *panel = values + p * columns * Panels::kPanel;
    const int64_t row = p * Panels::kPanel;
    const int64_t count = std::min(Panels::kPanel, rows - row);
    int64_t t = 0;
    for (; t + kTogether <= tokens; t += kTogether)
      panelProduct<kTogether>(panel, x + t * columns, columns,
                              out + t * rows + row, rows, count);
    for (; t < tokens; ++t)
      panelProduct<1>(panel, x + t * columns, columns, out + t * rows + row,
                      rows, count);
  }
}

#define FORESIGHT_PANELS(name, ...)                                            \
  __VA_ARGS__ void name(const float *values, const float *x, int64_t tokens,   \
                        float *out, int64_t rows, int64_t columns,             \
                        int64_t first, int64_t end) {                          \
    allPanels(values, x, tokens, out, rows, columns, first, end);              \
  }
FORESIGHT_PANELS(panelsBaseline)
#ifdef __x86_64__
FORESIGHT_PANELS(panelsAvx2, __attribute__((target("avx2,fma"))))
FORESIGHT_PANELS(panelsAvx512, __attribute__((target("avx512f,avx2,fma"))))
#endif
#undef FORESIGHT_PANELS

auto bestPanels() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f"))
    return panelsAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return panelsAvx2;
#endif
  return panelsBaseline;
}

} // namespace

void Panels::multiplyPanels(std::span<const float> x, int64_t tokens,
                            std::span<float> out, int64_t firstPanel,
                            int64_t endPanel) const {
  static const auto best = bestPanels();
  best(values.data(), x.data(), tokens, out.data(), rows, columns, firstPanel,
       endPanel);
}

void Panels::multiply(std::span<const float> x, int64_t tokens,
                      std::span<float> out) const {
  multiplyPanels(x, tokens, out, 0, panels());
}

} // namespace foresight::calibration
