//===- Panels.h - A matrix for products with rows of x ----------*- C++ -*-===//
#ifndef FORESIGHT_CALIBRATION_PANELS_H
#define FORESIGHT_CALIBRATION_PANELS_H

#include <cstdint>
#include <span>
#include <vector>

namespace foresight::calibration {

/// A matrix [rows, columns] in f32, stored in panels of kPanel rows so that a
/// product fills vectors with neighbouring results. Measures with it run beside
/// the compiled kernels and share no code with them.
class Panels {
public:
  static constexpr int64_t kPanel = 32;

  Panels(int64_t rows, int64_t columns);

  int64_t getRows() const { return rows; }
  int64_t getColumns() const { return columns; }
  void setRow(int64_t row, std::span<const float> values);
  void getRow(int64_t row, std::span<float> out) const;

  /// out[t, i] = sum_k x[t, k] * this[i, k], in f32, in the order of k.
  void multiply(std::span<const float> x, int64_t tokens,
                std::span<float> out) const;
  /// The same for rows [firstPanel, endPanel) * kPanel: for several threads.
  void multiplyPanels(std::span<const float> x, int64_t tokens,
                      std::span<float> out, int64_t firstPanel,
                      int64_t endPanel) const;
  int64_t panels() const { return (rows + kPanel - 1) / kPanel; }

private:
  int64_t rows, columns;
  std::vector<float> values; ///< [panel][column][row in panel]
};

} // namespace foresight::calibration
#endif
