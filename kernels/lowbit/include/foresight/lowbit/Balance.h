//===- Balance.h - Columns of like size for rounding ------------*- C++ -*-===//
#ifndef FORESIGHT_LOWBIT_BALANCE_H
#define FORESIGHT_LOWBIT_BALANCE_H

#include <cstdint>
#include <span>
#include <vector>

namespace foresight::lowbit {

/// Rows [begin, end).
struct RowRange {
  int64_t begin, end;
};

/// Rows that speak for all of a matrix: at most 256, in groups, since rows
/// beside each other are cheap to read even where it is stored transposed.
std::vector<RowRange> sampleRows(int64_t rows);

/// Numbers c_k > 0, none above 1 and some 1, that v_k / c_k has columns of like
/// size for: the root mean square of each column of v = weight * gamma over the
/// largest, which is taken as at most four times the median. `sample` has whole
/// rows, as they are stored; `gamma` is empty for 1. Any such numbers keep a
/// copy's proof valid.
std::vector<float> balanceColumns(std::span<const float> sample,
                                  int64_t columns,
                                  std::span<const float> gamma);

} // namespace foresight::lowbit
#endif
