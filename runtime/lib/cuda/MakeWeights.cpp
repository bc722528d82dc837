//===- MakeWeights.cpp - Weights that a bundle only has rules for ---------===//
#include "CudaProgram.h"

namespace foresight::cuda {
namespace {

/// The compiler's promise: threads of a block, elements of a thread of
/// foresight_fill_*, rows of a block of foresight_quantise_*.
constexpr unsigned kThreads = 256;
constexpr int64_t kThreadElements = 4, kBlockRows = 8;

int64_t padded(int64_t columns) {
  return (columns + FORESIGHT_ROW_PAD - 1) / FORESIGHT_ROW_PAD *
         FORESIGHT_ROW_PAD;
}

} // namespace

Status CudaProgram::makeWeight(const WeightInfo &weight,
                               const std::string &entry, int64_t blocks,
                               void **parameters) {
  Function function = nullptr;
  FORESIGHT_CHECK(driver.check(
      driver.moduleGetFunction(&function, module, entry.c_str()),
      "find '" + entry + "' to make weight '" + weight.name + "'"));
  LaunchConfig config{};
  config.gridX = static_cast<unsigned>(blocks);
  config.gridY = config.gridZ = config.blockY = config.blockZ = 1;
  config.blockX = kThreads;
  config.stream = stream;
  return driver.check(driver.launch(&config, function, parameters, nullptr),
                      "make weight '" + weight.name + "'");
}

/// Padding stays zero, values are near normal: speed is all they are for.
Status CudaProgram::generateWeights() {
  FORESIGHT_CHECK(
      driver.check(driver.fill8(weights.data(), 0,
                                static_cast<size_t>(weights.size()), stream),
                   "clear weights"));
  const auto at = [&](const WeightInfo &weight) {
    return weights.data() + static_cast<Pointer>(weight.offset);
  };
  for (const WeightInfo &weight : manifest().weights) {
    if (!weight.synthetic)
      continue;
    const bool isMatrix = weight.shape.size() > 1;
    int64_t columns = isMatrix ? weight.shape[1] : weight.shape[0];
    int64_t stride = padded(columns);
    int64_t count = (isMatrix ? weight.shape[0] : 1) * stride;
    Pointer memory = at(weight);
    int64_t seed = static_cast<int64_t>(weight.synthetic->seed);
    float mean = weight.synthetic->mean,
          deviation = weight.synthetic->deviation;
    void *parameters[] = {&memory, &count, &columns,  &stride,
                          &seed,   &mean,  &deviation};
    const int64_t perBlock = kThreads * kThreadElements;
    FORESIGHT_CHECK(makeWeight(
        weight, "foresight_fill_" + std::string(elementName(weight.element)),
        (count + perBlock - 1) / perBlock, parameters));
  }
  // Low-bit copies, of what is there by now: a stream keeps the order.
  for (const WeightInfo &weight : manifest().weights) {
    if (!weight.quantised)
      continue;
    const auto source = [&](int64_t index) -> const WeightInfo & {
      return manifest().weights[static_cast<size_t>(index)];
    };
    const WeightInfo &matrix = source(weight.quantised->weight);
    Pointer pointers[] = {at(weight), at(matrix),
                          at(source(weight.quantised->bias)),
                          at(source(weight.quantised->gamma)),
                          at(source(weight.quantised->beta))};
    int64_t rows = weight.shape[0], columns = weight.shape[1];
    void *parameters[] = {&pointers[0], &pointers[1], &pointers[2],
                          &pointers[3], &pointers[4], &rows,
                          &columns};
    FORESIGHT_CHECK(makeWeight(
        weight,
        "foresight_quantise_" + std::string(elementName(matrix.element)) + "_" +
            std::to_string(weight.bits),
        (rows + kBlockRows - 1) / kBlockRows, parameters));
  }
  return finish("make weights");
}

} // namespace foresight::cuda
