//===- Calibrate.cpp - A profile from text --------------------------------===//
#include "foresight/calibration/Calibrate.h"

#include <algorithm>
#include <cmath>

namespace foresight::calibration {
namespace {

/// Memory for residual rows and for dense logits; longer texts are sampled.
constexpr int64_t kResidualBytes = 256 << 20;
constexpr int64_t kLogitBytes = 128 << 20;
/// Fewer tokens than this in each half tell nothing about a budget.
constexpr int64_t kLeastTokens = 64;
/// Of the budget, what the choice aims at, and what a measured choice may use:
/// the rest is for text that was not seen.
constexpr double kAim = 0.7, kMost = 0.85;
constexpr int kMostTrials = 5;

template <typename... Parts> std::string textOf(const Parts &...parts) {
  std::ostringstream out;
  out.precision(4);
  (out << ... << parts);
  return out.str();
}

/// What the dense model said of one half of the text.
struct DenseReading {
  std::span<const int32_t> ids;
  std::vector<double> losses; ///< NaN where nothing was predicted
  int64_t stride = 1;         ///< logits of every stride-th token are kept
  int64_t vocab = 0;
  std::vector<float> logits;
  std::vector<double> logSums;

  const float *logitsOf(int64_t index) const {
    return logits.data() + index / stride * vocab;
  }
};

class Calibrator {
public:
  Calibrator(const Bundle &bundle, Session &session,
             const CalibrateOptions &options)
      : bundle(bundle), manifest(bundle.manifest()), session(session),
        options(options) {}

  Result<Calibration> run(std::span<const int32_t> ids) {
    FORESIGHT_CHECK(check(ids));
    FORESIGHT_CHECK(session.useDense(true));
    const size_t half = ids.size() / 2;
    const auto count = static_cast<int64_t>(half);
    const auto selections = static_cast<int64_t>(manifest.selections.size());

    const int64_t mostRows = std::max<int64_t>(
        kLeastTokens,
        kResidualBytes / (selections * manifest.model.hiddenSize * 4));
    ResidualRecorder recorder(manifest, (count + mostRows - 1) / mostRows,
                              mostRows);
    FORESIGHT_TRY(const DenseReading heldIn,
                  readDense(ids.first(half), &recorder));
    options.progress(textOf("read ", half, " tokens densely"));
    FORESIGHT_CHECK(tabulateLayers(recorder));
    SelectionSimulator simulator(manifest, layers);
    if (options.budget > 0)
      FORESIGHT_CHECK(weighLayers(heldIn, simulator));
    FORESIGHT_CHECK(search(heldIn, simulator));

    Calibration out;
    out.heldIn = best;
    FORESIGHT_TRY(const DenseReading heldOut,
                  readDense(ids.subspan(half), nullptr));
    FORESIGHT_CHECK(apply(bestChoice, simulator));
    FORESIGHT_TRY(out.heldOut, measure(heldOut, simulator, ids.size() - half));
    report(out, simulator);
    return out;
  }

private:
  Status check(std::span<const int32_t> ids) const {
    if (manifest.selections.empty() || manifest.entryIndex("decode_dense") < 0)
      return makeError(ErrorCode::Usage, bundle.path(),
                       ": the bundle is dense\ncompile the model with "
                       "--sparsity=predicted to calibrate it");
    if (manifest.model.synthetic)
      return makeError(ErrorCode::Usage, bundle.path(),
                       ": synthetic weights: speed only\nthere is nothing to "
                       "calibrate on weights that were made up");
    if (!(options.budget >= 0) || options.budget >= 1)
      return makeError(ErrorCode::Usage, "the budget is ", options.budget,
                       ": expected a share from 0 to 1, e.g. 0.003 for 0.3 %");
    if (static_cast<int64_t>(ids.size()) < 2 * kLeastTokens)
      return makeError(ErrorCode::Usage, "the text has ", ids.size(),
                       " tokens: calibration needs at least ", 2 * kLeastTokens,
                       ", better some thousands");
    return {};
  }

  Result<DenseReading> readDense(std::span<const int32_t> ids,
                                 StageObserver *observer) {
    DenseReading reading;
    reading.ids = ids;
    reading.losses.assign(ids.size(), NAN);
    reading.vocab = manifest.model.vocabSize;
    const int64_t mostKept =
        std::max<int64_t>(1, kLogitBytes / (reading.vocab * 4));
    reading.stride =
        (static_cast<int64_t>(ids.size()) + mostKept - 1) / mostKept;
    const size_t kept = (ids.size() + reading.stride - 1) / reading.stride;
    reading.logits.resize(kept * reading.vocab);
    reading.logSums.resize(kept);
    session.setObserver(observer);
    const Status status = readText(
        session, ids, options.window,
        [&](int64_t index, std::span<const float> logits, double loss) {
          reading.losses[index] = loss;
          if (index % reading.stride == 0) {
            const int64_t at = index / reading.stride;
            std::copy(logits.begin(), logits.end(),
                      reading.logits.begin() + at * reading.vocab);
            reading.logSums[at] = logSumExp(logits);
          }
          return Status();
        });
    session.setObserver(nullptr);
    FORESIGHT_CHECK(status);
    return reading;
  }

  Status tabulateLayers(const ResidualRecorder &recorder) {
    for (size_t i = 0; i < manifest.selections.size(); ++i) {
      const SelectionInfo &selection = manifest.selections[i];
      FORESIGHT_TRY(MlpLayer layer, MlpLayer::read(bundle, selection));
      FORESIGHT_TRY(const int64_t fc2, fc2WeightOf(bundle, selection));
      FORESIGHT_TRY(const MlpBytes bytes, MlpBytes::of(bundle, selection));
      std::vector<float> norms(selection.neurons), row(selection.hidden);
      for (int64_t j = 0; j < selection.neurons; ++j) {
        FORESIGHT_CHECK(readRows(bundle, fc2, j, 1, row));
        double sum = 0;
        for (const float value : row)
          sum += static_cast<double>(value) * value;
        norms[j] = static_cast<float>(std::sqrt(sum));
      }
      tables.push_back(
          tabulate(layer, recorder.rows(i), norms, bytes, options.threads));
      choices.push_back({tables.back().hull(), kFirstWeight});
      layers.push_back(std::move(layer));
      options.progress(textOf(
          "layer ", selection.layer, ": ", 100 * tables.back().activeShare(),
          " % of neurons active, ", choices.back().hull.size(), " choices"));
    }
    return {};
  }

  /// Measures what a unit of each layer's error costs: that layer alone is made
  /// sparse for some tokens. The cost is proportional to the error.
  Status weighLayers(const DenseReading &heldIn,
                     SelectionSimulator &simulator) {
    const int64_t sample = std::clamp<int64_t>(
        kWeighTokens / static_cast<int64_t>(layers.size()), kLeastTokens,
        static_cast<int64_t>(heldIn.ids.size()));
    const std::vector<size_t> first =
        chooseWithin(choices, kWeighLimit * std::log1p(options.budget));
    LayerProfile off;
    off.rule = LayerProfile::Rule::Skip;
    for (size_t i = 0; i < layers.size(); ++i)
      simulator.set(i, off);
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::vector<Candidate> &hull = choices[i].hull;
      size_t at = first[i];
      while (at + 1 < hull.size() && hull[at].error == 0)
        ++at;
      if (hull[at].error == 0)
        continue; // nothing that this layer can do costs anything
      simulator.set(i, hull[at].profile);
      FORESIGHT_TRY(const TextReport report,
                    measure(heldIn, simulator, sample));
      simulator.set(i, off);
      choices[i].weight = std::max(report.divergence, 1e-9) / hull[at].error;
    }
    options.progress(textOf("measured what each layer's error costs, ", sample,
                            " tokens each"));
    return {};
  }

  Status apply(const std::vector<size_t> &chosen,
               SelectionSimulator &simulator) const {
    for (size_t i = 0; i < chosen.size(); ++i)
      simulator.set(i, choices[i].hull[chosen[i]].profile);
    return {};
  }

  /// Chooses, measures, and corrects how the measured cost differs from the
  /// predicted one, until a choice fits that uses most of the budget.
  Status search(const DenseReading &heldIn, SelectionSimulator &simulator) {
    const double limit = std::log1p(options.budget);
    double aim = kAim * limit;
    double bestBytes = 0;
    bool found = false;
    for (int trial = 0; trial < kMostTrials; ++trial) {
      // The last trial of a search that found nothing takes what costs nothing.
      if (!found && trial + 1 == kMostTrials)
        aim = 0;
      const std::vector<size_t> chosen = chooseWithin(choices, aim);
      FORESIGHT_CHECK(apply(chosen, simulator));
      FORESIGHT_TRY(
          const TextReport report,
          measure(heldIn, simulator, static_cast<int64_t>(heldIn.ids.size())));
      // The divergence is what perplexity would rise by on text that the dense
      // model itself wrote: it has far less noise, but is not the thing itself.
      const double cost =
          std::max(report.divergence, std::log1p(report.increase()));
      options.progress(textOf("trial ", trial + 1, ": perplexity ",
                              report.increase() >= 0 ? "+" : "",
                              100 * report.increase(), " %, divergence ",
                              report.divergence, ", ", 100 * report.bytesShare,
                              " % of the dense MLP bytes"));
      const bool fits = cost <= kMost * limit + 1e-9;
      if (fits && (!found || report.bytesShare < bestBytes)) {
        found = true;
        best = report;
        bestBytes = report.bytesShare;
        bestChoice = chosen;
      }
      if (aim == 0 || (fits && cost >= 0.9 * kAim * limit))
        break;
      aim *= std::clamp(kAim * limit / std::max(cost, 1e-9), 0.3, 1.6);
    }
    if (!found)
      return makeError(ErrorCode::Internal,
                       "choices without error changed the perplexity");
    return {};
  }

  /// Reads the first `count` tokens with the simulator and compares.
  Result<TextReport> measure(const DenseReading &dense,
                             SelectionSimulator &simulator, int64_t count) {
    simulator.resetCounts();
    double denseLoss = 0, loss = 0, squares = 0, divergence = 0;
    int64_t tokens = 0, compared = 0;
    session.setObserver(&simulator);
    const Status status =
        readText(session, dense.ids.first(count), options.window,
                 [&](int64_t index, std::span<const float> logits, double own) {
                   const double change = own - dense.losses[index];
                   denseLoss += dense.losses[index];
                   loss += own;
                   squares += change * change;
                   ++tokens;
                   if (index % dense.stride == 0) {
                     divergence += divergenceFrom(dense, index, logits);
                     ++compared;
                   }
                   return Status();
                 });
    session.setObserver(nullptr);
    FORESIGHT_CHECK(status);

    TextReport report;
    const auto n = static_cast<double>(tokens);
    report.tokens = tokens;
    report.densePerplexity = std::exp(denseLoss / n);
    report.perplexity = std::exp(loss / n);
    report.divergence =
        compared ? divergence / static_cast<double>(compared) : 0;
    const double mean = (loss - denseLoss) / n;
    report.standardError =
        std::sqrt(std::max(0.0, squares / n - mean * mean) / n);
    double bytes = 0, denseBytes = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      bytes += bytesOf(i, simulator);
      denseBytes += tables[i].denseBytes();
    }
    report.bytesShare = bytes / denseBytes;
    return report;
  }

  static double divergenceFrom(const DenseReading &dense, int64_t index,
                               std::span<const float> logits) {
    const float *reference = dense.logitsOf(index);
    const double referenceSum = dense.logSums[index / dense.stride];
    const double sum = logSumExp(logits);
    double total = 0;
    for (size_t v = 0; v < logits.size(); ++v) {
      const double logP = reference[v] - referenceSum;
      total += std::exp(logP) * (logP - (logits[v] - sum));
    }
    return total;
  }

  /// Weight bytes that layer `i` read a token since the counts were reset.
  double bytesOf(size_t i, const SelectionSimulator &simulator) const {
    const SelectionSimulator::Counts &counts = simulator.counts(i);
    const LayerProfile &profile = simulator.profile(i);
    const auto tokens =
        static_cast<double>(std::max<int64_t>(counts.tokens, 1));
    return tables[i].bytes().sparse(
        profile.usesCopy() ? profile.bits : 0,
        static_cast<double>(counts.selected) / tokens,
        static_cast<double>(counts.active) / tokens);
  }

  /// One margin for all layers, each with the bits that read the fewest bytes.
  UniformMargin uniform(double margin) const {
    UniformMargin out{.margin = margin};
    double bytes = 0, dense = 0;
    for (size_t i = 0; i < tables.size(); ++i) {
      const Candidate *best = nullptr;
      const std::vector<Candidate> all = tables[i].candidates();
      for (const Candidate &candidate : all)
        if (candidate.profile.rule == LayerProfile::Rule::Margin &&
            candidate.profile.margin == margin &&
            (!best || candidate.bytes < best->bytes))
          best = &candidate;
      bytes += best->bytes;
      dense += tables[i].denseBytes();
      out.cost += choices[i].weight * best->error;
    }
    out.bytesShare = bytes / dense;
    return out;
  }

  void report(Calibration &out, const SelectionSimulator &simulator) const {
    for (const double margin : {1.0, 1.5, 2.0, 2.5, 3.0, 4.0})
      out.uniform.push_back(uniform(margin));
    out.profile.hiddenSize = manifest.model.hiddenSize;
    out.profile.ffnDim = manifest.model.ffnDim;
    for (size_t i = 0; i < layers.size(); ++i) {
      const SelectionInfo &selection = manifest.selections[i];
      LayerReport layer;
      layer.layer = selection.layer;
      layer.neurons = static_cast<double>(selection.neurons);
      layer.chosen = choices[i].hull[bestChoice[i]];
      layer.activeShare = tables[i].activeShare();
      layer.denseBytes = tables[i].denseBytes();
      layer.weight = choices[i].weight;
      layer.heldOutBytes = bytesOf(i, simulator);
      out.profile.layers[selection.layer] = layer.chosen.profile;
      out.layers.push_back(layer);
    }
  }

  /// Nats a unit of error before it is measured; of the order seen in OPT.
  static constexpr double kFirstWeight = 2.5;
  /// Tokens for measuring weights, all layers together, and how far above the
  /// budget the error is for that: larger stands out of rounding.
  static constexpr int64_t kWeighTokens = 3072;
  static constexpr double kWeighLimit = 3;

  const Bundle &bundle;
  const Manifest &manifest;
  Session &session;
  const CalibrateOptions &options;
  std::vector<MlpLayer> layers;
  std::vector<LayerTable> tables;
  std::vector<LayerChoices> choices;
  std::vector<size_t> bestChoice;
  TextReport best;
};

} // namespace

Result<Calibration> calibrate(const Bundle &bundle, Session &session,
                              std::span<const int32_t> ids,
                              const CalibrateOptions &options) {
  return Calibrator(bundle, session, options).run(ids);
}

} // namespace foresight::calibration
