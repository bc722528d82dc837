//===- Balance.cpp - Columns of like size for rounding --------------------===//

#include "foresight/lowbit/Balance.h"

#include <algorithm>
#include <cmath>

using namespace foresight;
using namespace foresight::lowbit;

namespace {

constexpr int64_t kGroups = 16, kGroupRows = 16;
/// Slack grows with the longest rows there could be: a few wide columns must
/// not make all others count for more.
constexpr double kMostAboveMedian = 4;
/// Below, a column is taken for one that says nothing.
constexpr double kLeast = 0x1p-10;

} // namespace

std::vector<RowRange> lowbit::sampleRows(int64_t rows) {
  const int64_t count = std::min(kGroups, (rows + kGroupRows - 1) / kGroupRows);
  std::vector<RowRange> groups;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i * rows / count, stop = (i + 1) * rows / count;
    groups.push_back({begin, std::min(begin + kGroupRows, stop)});
  }
  return groups;
}

std::vector<float> lowbit::balanceColumns(std::span<const float> sample,
                                          int64_t columns,
                                          std::span<const float> gamma) {
  std::vector<double> sizes(columns);
  for (size_t i = 0; i < sample.size(); ++i) {
    const double w = sample[i];
    sizes[i % columns] += w * w;
  }
  for (int64_t k = 0; k < columns; ++k)
    sizes[k] =
        std::sqrt(sizes[k]) * (gamma.empty() ? 1.0 : std::fabs(gamma[k]));
  std::vector<float> balance(columns, 1.0f);
  // Not sorted with a NaN: it has no place.
  if (!std::all_of(sizes.begin(), sizes.end(),
                   [](double size) { return std::isfinite(size); }))
    return balance;
  std::vector<double> sorted = sizes;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2], largest = sorted.back();
  const double top =
      median > 0 ? std::min(largest, kMostAboveMedian * median) : largest;
  if (top == 0)
    return balance;
  for (int64_t k = 0; k < columns; ++k)
    balance[k] = static_cast<float>(std::clamp(sizes[k] / top, kLeast, 1.0));
  return balance;
}
