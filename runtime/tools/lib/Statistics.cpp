//===- Statistics.cpp - Numbers for people --------------------------------===//
#include "Statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace foresight::tools {

double quantileOf(std::span<const double> values, double q) {
  if (values.empty())
    return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] +
         (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string percent(double share, int digits) {
  return fixed(share * 100, digits) + " %";
}

std::string bytesText(double bytes) {
  static constexpr const char *kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (std::abs(bytes) >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  const int digits = unit == 0 ? 0 : bytes < 10 ? 2 : bytes < 100 ? 1 : 0;
  return fixed(bytes, digits) + " " + kUnits[unit];
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      widths.resize(std::max(widths.size(), i + 1));
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string out;
  for (const auto &row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      const bool left = i < align.size() && align[i] == 'l';
      line += (i == 0 ? "" : "  ") + (left ? row[i] + pad : pad + row[i]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

} // namespace foresight::tools
