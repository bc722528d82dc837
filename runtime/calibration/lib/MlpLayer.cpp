//===- MlpLayer.cpp - One layer's MLP, computed on the side ---------------===//
#include "foresight/calibration/MlpLayer.h"

#include "foresight/abi/Kernel.h"
#include "foresight/lowbit/Balance.h"
#include "foresight/support/Float.h"

#include <cmath>
#include <cstring>

namespace foresight::calibration {

int64_t paddedColumns(int64_t columns) {
  constexpr int64_t kPad = FORESIGHT_ROW_PAD;
  return (columns + kPad - 1) / kPad * kPad;
}

int64_t storedRowBytes(const WeightInfo &weight) {
  return paddedColumns(weight.shape.back()) * elementBytes(weight.element);
}

Status readRows(const Bundle &bundle, int64_t index, int64_t firstRow,
                int64_t rows, std::span<float> out) {
  const WeightInfo &weight = bundle.manifest().weights[index];
  const int64_t columns = weight.shape.back();
  const int64_t stride = storedRowBytes(weight);
  const std::byte *base =
      bundle.weights().data() + weight.offset + firstRow * stride;
  for (int64_t i = 0; i < rows; ++i) {
    const std::byte *from = base + i * stride;
    float *to = out.data() + i * columns;
    switch (weight.element) {
    case Element::F32:
      std::memcpy(to, from, columns * sizeof(float));
      break;
    case Element::F16:
      halfToFloat(reinterpret_cast<const uint16_t *>(from), to, columns);
      break;
    case Element::BF16:
      bfloatToFloat(reinterpret_cast<const uint16_t *>(from), to, columns);
      break;
    default:
      return makeError(ErrorCode::BadBundle, bundle.path(), ": weight '",
                       weight.name, "' is ", elementName(weight.element),
                       ": expected f32, f16 or bf16");
    }
  }
  return {};
}

Result<std::vector<float>> readVector(const Bundle &bundle, int64_t index) {
  const WeightInfo &weight = bundle.manifest().weights[index];
  std::vector<float> values(weight.shape.back());
  FORESIGHT_CHECK(readRows(bundle, index, 0, 1, values));
  return values;
}

Result<MlpLayer> MlpLayer::read(const Bundle &bundle,
                                const SelectionInfo &selection) {
  MlpLayer layer{.neurons = selection.neurons,
                 .hidden = selection.hidden,
                 .epsilon = selection.epsilon,
                 .gamma = {},
                 .beta = {},
                 .balance = {},
                 .bias = std::vector<float>(selection.neurons),
                 .fc1 = Panels(selection.neurons, selection.hidden)};
  if (selection.gamma >= 0) {
    FORESIGHT_TRY(layer.gamma, readVector(bundle, selection.gamma));
  }
  if (selection.beta >= 0) {
    FORESIGHT_TRY(layer.beta, readVector(bundle, selection.beta));
  }
  if (selection.bias1 >= 0) {
    FORESIGHT_TRY(layer.bias, readVector(bundle, selection.bias1));
  }
  std::vector<float> row(selection.hidden);
  for (int64_t i = 0; i < selection.neurons; ++i) {
    FORESIGHT_CHECK(readRows(bundle, selection.fc1, i, 1, row));
    layer.fc1.setRow(i, row);
  }
  std::vector<float> sample;
  for (const lowbit::RowRange &group : lowbit::sampleRows(layer.neurons))
    for (int64_t i = group.begin; i < group.end; ++i) {
      layer.fc1.getRow(i, row);
      sample.insert(sample.end(), row.begin(), row.end());
    }
  layer.balance = lowbit::balanceColumns(sample, layer.hidden, layer.gamma);
  return layer;
}

void MlpLayer::normalise(std::span<const float> residual,
                         std::span<float> out) const {
  double sum = 0;
  for (int64_t k = 0; k < hidden; ++k)
    sum += residual[k];
  const double mean = sum / static_cast<double>(hidden);
  double squares = 0;
  for (int64_t k = 0; k < hidden; ++k)
    squares += (residual[k] - mean) * (residual[k] - mean);
  const double factor =
      1 / std::sqrt(squares / static_cast<double>(hidden) + epsilon);
  for (int64_t k = 0; k < hidden; ++k)
    out[k] = static_cast<float>((residual[k] - mean) * factor);
}

void MlpLayer::applyNorm(std::span<const float> normalised,
                         std::span<float> out) const {
  for (int64_t k = 0; k < hidden; ++k)
    out[k] = normalised[k] * (gamma.empty() ? 1.f : gamma[k]) +
             (beta.empty() ? 0.f : beta[k]);
}

void MlpLayer::preActivations(std::span<const float> x, int64_t tokens,
                              std::span<float> out) const {
  fc1.multiply(x, tokens, out);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < neurons; ++i)
      out[t * neurons + i] += bias[i];
}

} // namespace foresight::calibration
