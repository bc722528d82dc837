//===- LayerTable.cpp - What a choice costs in one layer ------------------===//
#include "foresight/calibration/LayerTable.h"

#include "foresight/calibration/Copy.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <tuple>

namespace foresight::calibration {

LayerTable::LayerTable(const MlpBytes &bytes)
    : sizes(bytes), byBits(kMaxBits - kMinBits + 1) {}

void LayerTable::add(int bits, double needed, bool isActive, double energy) {
  int bin = kBins + 1;
  if (needed < kBins * kStep)
    bin = needed < 0 ? 0 : static_cast<int>(needed / kStep) + 1;
  Bin &to = at(bits).bins[bin];
  ++to.neurons;
  to.active += isActive;
  to.energy += energy;
}

void LayerTable::merge(const LayerTable &other) {
  tokens += other.tokens;
  active += other.active;
  for (size_t b = 0; b < byBits.size(); ++b) {
    byBits[b].proofKept += other.byBits[b].proofKept;
    for (size_t i = 0; i < byBits[b].bins.size(); ++i) {
      byBits[b].bins[i].neurons += other.byBits[b].bins[i].neurons;
      byBits[b].bins[i].active += other.byBits[b].bins[i].active;
      byBits[b].bins[i].energy += other.byBits[b].bins[i].energy;
    }
  }
}

double LayerTable::activeShare() const {
  return tokens == 0 ? 0
                     : static_cast<double>(active) /
                           static_cast<double>(tokens * sizes.neurons);
}

std::vector<Candidate> LayerTable::candidates() const {
  std::vector<Candidate> out;
  if (tokens == 0)
    return out;
  const auto perToken = [&](double value) {
    return value / static_cast<double>(tokens);
  };
  const double allActive = static_cast<double>(active);

  Candidate skip;
  skip.profile.rule = LayerProfile::Rule::Skip;
  skip.selected = static_cast<double>(sizes.neurons);
  skip.found = perToken(allActive);
  skip.bytes = sizes.sparse(0, skip.selected, skip.found);
  out.push_back(skip);

  for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
    const ForBits &counts = byBits[bits - kMinBits];
    Candidate proof;
    proof.profile.rule = LayerProfile::Rule::Proof;
    proof.profile.bits = bits;
    proof.selected = perToken(static_cast<double>(counts.proofKept));
    proof.found = perToken(allActive);
    proof.bytes = sizes.sparse(bits, proof.selected, proof.found);
    out.push_back(proof);

    double missed = 0;
    for (const Bin &bin : counts.bins)
      missed += bin.energy;
    double selected = 0, found = 0;
    for (int i = 0; i <= kBins; ++i) {
      const Bin &bin = counts.bins[i];
      selected += static_cast<double>(bin.neurons);
      found += static_cast<double>(bin.active);
      missed -= bin.energy;
      Candidate margin;
      margin.profile.rule = LayerProfile::Rule::Margin;
      margin.profile.bits = bits;
      margin.profile.margin = i * kStep;
      margin.selected = perToken(selected);
      margin.found = perToken(found);
      margin.bytes = sizes.sparse(bits, margin.selected, margin.found);
      // What is left of subtracting the last energy is rounding, not error.
      margin.error = found == allActive ? 0 : perToken(std::max(missed, 0.0));
      out.push_back(margin);
    }
  }
  return out;
}

std::vector<Candidate> LayerTable::hull() const {
  std::vector<Candidate> all = candidates();
  // Of equal error the fewest bytes, and of equal bytes a proof, come first.
  std::sort(all.begin(), all.end(), [](const Candidate &a, const Candidate &b) {
    return std::tie(a.error, a.bytes, a.profile.rule) <
           std::tie(b.error, b.bytes, b.profile.rule);
  });
  std::vector<Candidate> hull;
  const auto slope = [](const Candidate &a, const Candidate &b) {
    return (a.bytes - b.bytes) / (b.error - a.error);
  };
  for (const Candidate &candidate : all) {
    if (!hull.empty() && candidate.bytes >= hull.back().bytes)
      continue;
    if (!hull.empty() && candidate.error == hull.back().error)
      continue;
    while (hull.size() >= 2 && slope(hull[hull.size() - 2], hull.back()) <=
                                   slope(hull.back(), candidate))
      hull.pop_back();
    hull.push_back(candidate);
  }
  return hull;
}

//===----------------------------------------------------------------------===//
// Filling a table
//===----------------------------------------------------------------------===//

namespace {

/// Tokens that one product takes together: their scores stay in the cache.
constexpr int64_t kTokenBlock = 32;

/// Calls body(begin, end, thread) for blocks of [0, count), on some threads.
template <typename Body>
void inBlocks(int64_t count, int threads, const Body &body) {
  const int64_t blocks = (count + kTokenBlock - 1) / kTokenBlock;
  std::vector<std::jthread> workers; // joined at the end of the scope
  workers.reserve(static_cast<size_t>(threads));
  for (int worker = 0; worker < threads; ++worker)
    workers.emplace_back([&, worker] {
      for (int64_t block = worker; block < blocks; block += threads)
        body(block * kTokenBlock, std::min(count, (block + 1) * kTokenBlock),
             worker);
    });
}

} // namespace

LayerTable tabulate(const MlpLayer &layer, std::span<const float> residuals,
                    std::span<const float> fc2Norms, const MlpBytes &bytes,
                    int threads) {
  const int64_t hidden = layer.hidden, neurons = layer.neurons;
  const auto tokens = static_cast<int64_t>(residuals.size()) / hidden;
  threads = std::max(threads, 1);
  const LayerTable empty(bytes);
  std::vector<LayerTable> tables(threads, empty);

  // Dense activations once, then every copy against them.
  std::vector<float> normalised(tokens * hidden), activations(tokens * neurons);
  std::vector<float> inverseEnergy(tokens);
  inBlocks(tokens, threads, [&](int64_t begin, int64_t end, int worker) {
    std::vector<float> x((end - begin) * hidden);
    for (int64_t t = begin; t < end; ++t) {
      const auto residual = residuals.subspan(t * hidden, hidden);
      const std::span row(normalised.data() + t * hidden, hidden);
      layer.normalise(residual, row);
      layer.applyNorm(row, {x.data() + (t - begin) * hidden, size_t(hidden)});
      double energy = 0;
      for (const float value : residual)
        energy += static_cast<double>(value) * value;
      inverseEnergy[t] = energy > 0 ? static_cast<float>(1 / energy) : 0;
    }
    const std::span out(activations.data() + begin * neurons,
                        (end - begin) * neurons);
    layer.preActivations(x, end - begin, out);
    int64_t active = 0;
    for (float &value : out) {
      value = std::max(value, 0.f);
      active += value > 0;
    }
    tables[worker].addTokens(end - begin, active);
  });

  const double root = std::sqrt(static_cast<double>(hidden));
  for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
    const Copy copy = Copy::make(layer, bits);
    inBlocks(tokens, threads, [&](int64_t begin, int64_t end, int worker) {
      const int64_t count = end - begin;
      std::vector<float> x(count * hidden), scores(count * neurons);
      std::vector<Copy::Rounded> rounded(count);
      for (int64_t t = 0; t < count; ++t)
        rounded[t] = copy.round(
            {normalised.data() + (begin + t) * hidden, size_t(hidden)},
            {x.data() + t * hidden, size_t(hidden)});
      copy.products(x, count, scores);
      LayerTable &table = tables[worker];
      int64_t kept = 0;
      for (int64_t t = 0; t < count; ++t)
        for (int64_t i = 0; i < neurons; ++i) {
          const float base = copy.base(i, scores[t * neurons + i], rounded[t]);
          const float spread = copy.spread(i, rounded[t]);
          kept += !(base + spread <= 0);
          const float activation = activations[(begin + t) * neurons + i];
          const double output = static_cast<double>(activation) * fc2Norms[i];
          // A spread of zero gives an infinity of the right sign, or a NaN
          // that no margin selects.
          table.add(bits, -static_cast<double>(base) * root / spread,
                    activation > 0, output * output * inverseEnergy[begin + t]);
        }
      table.addProof(bits, kept);
    });
  }
  for (int worker = 1; worker < threads; ++worker)
    tables[0].merge(tables[worker]);
  return std::move(tables[0]);
}

} // namespace foresight::calibration
