//===- Statistics.h - Numbers for people ------------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_STATISTICS_H
#define FORESIGHT_TOOLS_STATISTICS_H

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace foresight::tools {

/// The value that a share `q` of the values lies below, interpolated; 0 of
/// none.
double quantileOf(std::span<const double> values, double q);
inline double medianOf(std::span<const double> values) {
  return quantileOf(values, 0.5);
}

inline double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// "3.14" with `digits` digits behind the point.
std::string fixed(double value, int digits);
/// "12.5 %" of a share.
std::string percent(double share, int digits = 1);
/// "12.3 MB", "1.23 GB": powers of ten.
std::string bytesText(double bytes);

/// Columns aligned: `align` has an l or r for each, and r for those beyond it.
class Table {
public:
  explicit Table(std::vector<std::string> header, std::string align = "l")
      : align(std::move(align)) {
    rows.push_back(std::move(header));
  }
  void add(std::vector<std::string> row) { rows.push_back(std::move(row)); }
  std::string text() const;

private:
  std::string align;
  std::vector<std::vector<std::string>> rows;
};

} // namespace foresight::tools
#endif
