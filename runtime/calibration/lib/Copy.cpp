//===- Copy.cpp - A low-bit copy for measuring ----------------------------===//
#include "foresight/calibration/Copy.h"

#include "foresight/lowbit/Pack.h"
#include "foresight/lowbit/Reference.h"

namespace foresight::calibration {

Copy Copy::make(const MlpLayer &layer, int bits) {
  const int64_t neurons = layer.neurons, hidden = layer.hidden;
  std::vector<std::byte> record(lowbit::record(neurons, hidden, bits).bytes);
  const lowbit::Packer packer(neurons, hidden, bits, layer.gamma, layer.beta,
                              record, layer.balance);
  Copy copy(neurons, hidden, bits);
  copy.balance = layer.balance;
  const lowbit::RecordView view(record.data(), neurons, hidden, bits);
  std::vector<float> row(hidden);
  std::vector<uint8_t> codes(hidden);
  for (int64_t i = 0; i < neurons; ++i) {
    layer.fc1.getRow(i, row);
    packer.pack(i, row, layer.bias[i]);
    view.codes(i, codes);
    for (int64_t k = 0; k < hidden; ++k)
      row[k] = static_cast<float>(view.valueOf(i, codes[k]));
    copy.values.setRow(i, row);
    copy.bias.push_back(view.bias(i));
    copy.error.push_back(view.error(i));
    copy.norm.push_back(view.norm(i));
  }
  return copy;
}

Copy::Rounded Copy::round(std::span<const float> normalised,
                          std::span<float> out) const {
  std::copy(normalised.begin(), normalised.end(), out.begin());
  for (size_t k = 0; k < balance.size(); ++k)
    out[k] *= balance[k];
  const lowbit::Activations x =
      lowbit::quantiseActivations(out.first(normalised.size()), bits);
  for (size_t k = 0; k < normalised.size(); ++k)
    out[k] = x.scale * static_cast<float>(x.values[k]);
  return {x.norm, x.residual};
}

} // namespace foresight::calibration
