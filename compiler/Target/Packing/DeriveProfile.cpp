//===- DeriveProfile.cpp - Bits chosen from the weights -------------------===//

#include "foresight/Target/Packing/DeriveProfile.h"

#include "LowBitData.h"
#include "WeightData.h"

#include "foresight/lowbit/Balance.h"
#include "foresight/lowbit/Estimate.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <thread>

using namespace mlir;
using namespace foresight;
using namespace foresight::packing;

namespace {

/// How balanced inputs of trained models differ from random directions. They
/// are shorter, since they are large where fc1's columns are small. Part of
/// them is a mean that all inputs share, and it leans away from the common
/// direction of fc1's rows; hence so few active neurons. Measured on opt-mini
/// and 1,500 tokens of its training text, layer by layer: |x| is 0.54 to 0.98
/// of what random directions give, the component along the common direction
/// -0.15 to -0.26 of |x|, the deviation of a pre-activation 1.11 to 1.25 of
/// |v| |x| / sqrt(d). These are the means.
constexpr double kTrainedLength = 0.77, kTrainedSpread = 1.16,
                 kTrainedLean = 0.195;

/// One layer's MLP as far as an estimate needs it.
struct Layer {
  LowBitData fc1; ///< bits are set for each candidate
  bool canCertify = false;
  bool relu = false;
  int64_t neurons = 0, hidden = 0;
};

/// The symbol of the weight that a value is, or "none".
std::string symbolOf(Value value) {
  auto get = value ? value.getDefiningOp<GetWeightOp>() : nullptr;
  return get ? get.getWeight().str() : "none";
}

} // namespace

/// The MLPs of the entry that decoding is made from, in order.
static Result<SmallVector<MlpOp>> findMlps(ModuleOp module) {
  func::FuncOp entry;
  for (StringRef name : {"decode", "step"})
    for (auto function : module.getOps<func::FuncOp>())
      if (auto attr = function->getAttrOfType<StringAttr>("foresight.entry");
          !entry && attr && attr.getValue() == name)
        entry = function;
  if (!entry)
    return makeError(ErrorCode::BadInput,
                     "the module has no entry @decode or @step");
  SmallVector<MlpOp> mlps;
  entry.walk([&](MlpOp op) { mlps.push_back(op); });
  return mlps;
}

static Result<Layer> describe(Resolver &resolver, MlpOp mlp) {
  Layer layer;
  auto type = cast<RankedTensorType>(mlp.getFc1().getType());
  layer.neurons = type.getDimSize(0);
  layer.hidden = type.getDimSize(1);
  layer.relu = mlp.getActivation() == Activation::Relu;
  auto norm = mlp.getX().getDefiningOp<LayerNormOp>();
  const std::string fc1 = symbolOf(mlp.getFc1());
  // The bound needs |x| <= sqrt(d), which LayerNorm gives.
  layer.canCertify = layer.relu && norm && fc1 != "none" &&
                     layer.hidden <= LowBitData::kMaxColumns;
  if (!layer.canCertify)
    return layer;
  FORESIGHT_TRY(layer.fc1,
                LowBitData::resolve(resolver, fc1, symbolOf(mlp.getBias1()),
                                    symbolOf(norm.getGamma()),
                                    symbolOf(norm.getBeta()), "none"));
  return layer;
}

namespace {

/// Rows of a layer's fc1, and what is assumed of its inputs.
class Sample {
public:
  static Result<Sample> take(LowBitData &fc1, bool trained);

  /// Shares of neurons when fc1 is rounded to `bits`.
  Result<lowbit::Density> estimate(const LowBitData &fc1, int64_t bits,
                                   double kappa) const;

private:
  struct Group {
    int64_t begin, end;
    std::vector<double> shift;
  };
  std::vector<Group> groups;
  double length = 0, spread = 1;
};

} // namespace

/// Of trained weights, balances the columns too.
Result<Sample> Sample::take(LowBitData &fc1, bool trained) {
  Sample sample;
  for (const lowbit::RowRange &group : lowbit::sampleRows(fc1.rows))
    sample.groups.push_back({group.begin, group.end, {}});
  if (!trained)
    return sample;

  FORESIGHT_TRY(std::vector<float> values, readSample(fc1.weight));
  fc1.balance = lowbit::balanceColumns(values, fc1.columns, fc1.gamma);
  double square = 0;
  for (const float c : fc1.balance)
    square += double(c) * c;
  sample.length = kTrainedLength * std::sqrt(square);
  sample.spread = kTrainedSpread;

  // Rows as they are rounded, and the mean of their directions.
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t k = i % fc1.columns;
    values[i] *= (fc1.gamma.empty() ? 1 : fc1.gamma[k]) / fc1.balance[k];
  }
  std::vector<double> common(fc1.columns);
  for (size_t row = 0; row < values.size(); row += fc1.columns) {
    double rowSquare = 1e-30;
    for (int64_t k = 0; k < fc1.columns; ++k)
      rowSquare += double(values[row + k]) * values[row + k];
    for (int64_t k = 0; k < fc1.columns; ++k)
      common[k] += values[row + k] / std::sqrt(rowSquare);
  }
  double commonSquare = 1e-30;
  for (double value : common)
    commonSquare += value * value;
  const double factor = -kTrainedLean * sample.length / std::sqrt(commonSquare);
  size_t row = 0;
  for (Group &group : sample.groups)
    for (int64_t i = group.begin; i < group.end; ++i, row += fc1.columns) {
      double product = 0;
      for (int64_t k = 0; k < fc1.columns; ++k)
        product += values[row + k] * common[k];
      group.shift.push_back(factor * product);
    }
  return sample;
}

Result<lowbit::Density> Sample::estimate(const LowBitData &fc1, int64_t bits,
                                         double kappa) const {
  LowBitData copy = fc1;
  copy.bits = static_cast<int>(bits);
  lowbit::Density sum{0, 0};
  double counted = 0;
  std::vector<std::byte> record;
  for (const Group &group : groups) {
    FORESIGHT_CHECK(copy.pack(group.begin, group.end, record));
    const int64_t size = group.end - group.begin;
    const lowbit::RecordView view(record.data(), size, copy.columns, copy.bits);
    const lowbit::Density density =
        lowbit::expectedDensity(view, kappa, {length, spread, group.shift});
    sum.active += density.active * static_cast<double>(size);
    sum.kept += density.kept * static_cast<double>(size);
    counted += static_cast<double>(size);
  }
  return lowbit::Density{sum.active / counted, sum.kept / counted};
}

/// What the copy of a neuron's row takes, as a share of the row and its fc2
/// row.
static double copyShare(const LowBitData &fc1, int64_t bits) {
  constexpr auto kVectors = static_cast<double>(lowbit::kRowNumberBytes);
  const double dense =
      2.0 * static_cast<double>(fc1.columns * elementBytes(fc1.weight.element));
  return (static_cast<double>(lowbit::rowBytes(fc1.columns, bits)) + kVectors) /
         dense;
}

/// All that may be chosen for a layer, with what it is expected to read.
static Result<std::vector<LayerEstimate>>
consider(Layer &layer, const DeriveOptions &options, bool trained) {
  using Rule = LayerProfile::Rule;
  LayerEstimate dense;
  dense.choice.rule = Rule::Dense;
  dense.active = dense.kept = dense.share = 1;
  if (options.sparsity == Sparsity::None || !layer.relu)
    return std::vector<LayerEstimate>{dense};

  LayerEstimate skip;
  skip.choice.rule = Rule::Skip;
  skip.kept = 1;
  skip.active = 0.5; // not known without a norm before the layer
  std::vector<LayerEstimate> result;
  if (layer.canCertify) {
    const bool exact = options.sparsity == Sparsity::Exact;
    FORESIGHT_TRY(Sample sample, Sample::take(layer.fc1, trained));
    for (int64_t bits = exact ? 5 : 2; bits <= (exact ? 8 : 6); ++bits) {
      LayerEstimate candidate;
      candidate.choice.rule = exact ? Rule::Proof : Rule::Margin;
      candidate.choice.bits = bits;
      candidate.choice.margin = exact ? 0 : options.margin;
      FORESIGHT_TRY(lowbit::Density density,
                    sample.estimate(layer.fc1, bits,
                                    candidate.choice.kappa(layer.hidden)));
      candidate.active = density.active;
      candidate.kept = density.kept;
      candidate.share = copyShare(layer.fc1, bits) + density.kept / 2 +
                        std::min(density.active, density.kept) / 2;
      skip.active = density.active; // best known with the most bits
      result.push_back(candidate);
    }
  }
  skip.share = 0.5 + skip.active / 2;
  result.push_back(skip);
  return result;
}

/// The choice of least share. Where a margin's are close, more bits win: they
/// also select more truly.
static const LayerEstimate &best(const std::vector<LayerEstimate> &all) {
  constexpr double kClose = 1.01;
  auto least =
      std::min_element(all.begin(), all.end(),
                       [](const LayerEstimate &a, const LayerEstimate &b) {
                         return a.share < b.share;
                       });
  const LayerEstimate *chosen = &*least;
  for (const LayerEstimate &candidate : all)
    if (chosen->choice.rule == LayerProfile::Rule::Margin &&
        candidate.choice.rule == LayerProfile::Rule::Margin &&
        candidate.choice.bits > chosen->choice.bits &&
        candidate.share <= least->share * kClose)
      chosen = &candidate;
  return *chosen;
}

Result<DerivedProfile> foresight::deriveProfile(ModuleOp module,
                                                const DeriveOptions &options,
                                                const Profile *given) {
  FORESIGHT_TRY(SmallVector<MlpOp> mlps, findMlps(module));
  // Random weights need no assumption: their inputs are random directions.
  auto facts = module->getAttrOfType<DictionaryAttr>("foresight.model");
  auto synthetic = facts ? facts.getAs<BoolAttr>("synthetic") : BoolAttr();
  const bool trained = !synthetic || !synthetic.getValue();
  Resolver resolver(module);
  std::vector<Layer> layers;
  DerivedProfile derived;
  for (MlpOp mlp : mlps) {
    FORESIGHT_TRY(Layer layer, describe(resolver, mlp));
    derived.profile.ffnDim.push_back(layer.neurons);
    derived.profile.hiddenSize = layer.hidden;
    layers.push_back(std::move(layer));
  }
  if (given)
    FORESIGHT_CHECK(given->checkModel("the profile", derived.profile.hiddenSize,
                                      derived.profile.ffnDim));

  derived.considered.resize(layers.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::optional<Error> failure;
  auto work = [&] {
    for (size_t i = next++; i < layers.size(); i = next++) {
      if (given && given->find(static_cast<int64_t>(i)))
        continue;
      auto estimates = consider(layers[i], options, trained);
      std::lock_guard<std::mutex> lock(mutex);
      if (!estimates.ok())
        failure = estimates.error();
      else
        derived.considered[i] = std::move(*estimates);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  if (failure)
    return *failure;

  for (size_t i = 0; i < layers.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    if (const LayerProfile *fixed = given ? given->find(number) : nullptr) {
      derived.profile.layers[number] = *fixed;
      continue;
    }
    derived.profile.layers[number] = best(derived.considered[i]).choice;
  }
  if (given)
    derived.profile.calibration = given->calibration;
  return derived;
}
