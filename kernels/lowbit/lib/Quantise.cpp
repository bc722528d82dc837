//===- Quantise.cpp - The scale of a row with the least squared error -----===//

#include "foresight/lowbit/Pack.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace foresight;

namespace {

constexpr int kLanes = 16;

/// The step that suits normal values of deviation 1, for 2 to 8 bits (Max,
/// "Quantizing for minimum distortion", table II, and its asymptote). The
/// search starts below it: flatter distributions want a smaller one.
constexpr float kNormalStep[] = {0.9957f, 0.5860f, 0.3352f, 0.1881f,
                                 0.1041f, 0.0569f, 0.0308f};
constexpr float kSearchBelow = 0.6f;
constexpr int kSteps = 9;

/// What a scale does to a row: the squared error, and the scale that suits its
/// codes best.
struct Trial {
  float error;
  float better;
};

/// Levels are symmetric, so that magnitudes are enough. `magnitudes` is padded
/// with copies of nothing: its size is a multiple of kLanes and padding is
/// marked by a negative number.
Trial tryScale(const std::vector<float> &magnitudes, float scale, float half) {
  float error[kLanes] = {}, product[kLanes] = {}, square[kLanes] = {};
  const float inverse = 1 / scale;
  for (size_t i = 0; i < magnitudes.size(); i += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      const float m = magnitudes[i + j];
      const float valid = m < 0 ? 0.0f : 1.0f;
      const float steps = std::min(m * inverse, half - 1);
      const float level =
          (static_cast<float>(static_cast<int32_t>(steps)) + 0.5f) * valid;
      const float lost = m * valid - level * scale;
      error[j] += lost * lost;
      product[j] += m * level;
      square[j] += level * level;
    }
  float e = 0, p = 0, s = 0;
  for (int j = 0; j < kLanes; ++j) {
    e += error[j];
    p += product[j];
    s += square[j];
  }
  return {e, p / s};
}

float findScale(std::span<const float> row, int bits) {
  std::vector<float> magnitudes((row.size() + kLanes - 1) / kLanes * kLanes,
                                -1.0f);
  float largest = 0, energy = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    magnitudes[i] = std::fabs(row[i]);
    if (!std::isfinite(row[i]))
      return 0;
    largest = std::max(largest, magnitudes[i]);
    energy += magnitudes[i] * magnitudes[i];
  }
  // Below, levels times scales times activations would come near denormals.
  if (largest < 0x1p-60f || !std::isfinite(energy))
    return 0;

  const float half = static_cast<float>(1 << (bits - 1));
  const float widest = largest / half;
  const float deviation = std::sqrt(energy / static_cast<float>(row.size()));
  const float narrowest =
      std::min(widest, kSearchBelow * kNormalStep[bits - 2] * deviation);
  const float ratio =
      std::pow(widest / narrowest, 1.0f / static_cast<float>(kSteps - 1));
  float best = widest;
  Trial trial = tryScale(magnitudes, widest, half);
  auto improve = [&](float scale) {
    const Trial next = tryScale(magnitudes, scale, half);
    if (!(next.error < trial.error))
      return false;
    best = scale;
    trial = next;
    return true;
  };
  for (int i = 1; i < kSteps && ratio > 1; ++i)
    improve(widest / std::pow(ratio, static_cast<float>(i)));
  float step = ratio;
  for (int i = 0; i < 3; ++i) {
    step = std::sqrt(step);
    if (!improve(best * step))
      improve(best / step);
  }
  // Below that grid: alternate between the best scale for the codes and the
  // best codes for the scale.
  for (int i = 0; i < 2 && improve(trial.better); ++i) {
  }
  return best;
}

} // namespace

float lowbit::quantiseRow(std::span<const float> row, int bits,
                          std::span<uint8_t> codes) {
  const float scale = findScale(row, bits);
  const int half = 1 << (bits - 1);
  if (scale == 0) {
    std::fill(codes.begin(), codes.end(), static_cast<uint8_t>(half));
    return 0;
  }
  const float inverse = 1 / scale, limit = static_cast<float>(half) - 1;
  for (size_t i = 0; i < row.size(); ++i) {
    const int level =
        static_cast<int>(std::min(std::fabs(row[i]) * inverse, limit));
    codes[i] =
        static_cast<uint8_t>(row[i] < 0 ? half - 1 - level : half + level);
  }
  return scale;
}
