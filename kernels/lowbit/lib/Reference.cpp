//===- Reference.cpp - Scores and the test, loop by loop ------------------===//

#include "foresight/lowbit/Reference.h"

#include <algorithm>
#include <cmath>

using namespace foresight;
using namespace foresight::lowbit;

Activations lowbit::quantiseActivations(std::span<const float> x, int bits) {
  Activations result;
  result.values.resize(x.size());
  const auto limit =
      static_cast<float>(activationMax(static_cast<int64_t>(x.size()), bits));
  float largest = 0;
  for (float v : x)
    largest = std::max(largest, std::fabs(v));
  result.scale = largest / limit;
  const float inverse = largest > 0 ? limit / largest : 0;
  float norm = 0, residual = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    const float rounded =
        std::clamp(std::nearbyint(x[k] * inverse), -limit, limit);
    // A NaN has no integer; the norm carries it, so that everything is kept.
    result.values[k] =
        std::isnan(rounded) ? int16_t{0} : static_cast<int16_t>(rounded);
    result.sum += result.values[k];
    const float lost =
        x[k] - result.scale * static_cast<float>(result.values[k]);
    norm += x[k] * x[k];
    residual += lost * lost;
  }
  result.norm = std::sqrt(norm);
  result.residual = std::sqrt(residual);
  return result;
}

float lowbit::score(const RecordView &record, int64_t row,
                    const Activations &x) {
  std::vector<uint8_t> codes(record.getColumns());
  record.codes(row, codes);
  uint32_t products = 0;
  for (size_t k = 0; k < codes.size(); ++k)
    products += static_cast<uint32_t>(codes[k] * int32_t{x.values[k]});
  const uint32_t levels = (1u << record.getBits()) - 1;
  const auto d = static_cast<int32_t>(2 * products -
                                      levels * static_cast<uint32_t>(x.sum));
  return static_cast<float>(d) * (0.5f * record.scale(row) * x.scale) +
         record.bias(row);
}

bool lowbit::keeps(const RecordView &record, int64_t row, const Activations &x,
                   float score, float kappa) {
  const float bound = score + kappa * record.error(row) * x.norm +
                      record.norm(row) * x.residual;
  return !(bound <= 0);
}

std::vector<int32_t> lowbit::select(const RecordView &record,
                                    const Activations &x, float kappa) {
  std::vector<int32_t> kept;
  for (int64_t i = 0; i < record.getRows(); ++i)
    if (keeps(record, i, x, score(record, i, x), kappa))
      kept.push_back(static_cast<int32_t>(i));
  return kept;
}
