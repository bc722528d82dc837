//===- Eval.cpp - foresight eval ------------------------------------------===//
#include "Commands.h"
#include "MlpUse.h"
#include "Model.h"
#include "Statistics.h"

#include "foresight/calibration/Measure.h"
#include "foresight/calibration/MlpLayer.h"

#include <chrono>
#include <cmath>
#include <cstdio>

namespace foresight::tools {
namespace {

/// Compares the neurons that a sparse step computed with those that fc1, all of
/// it, makes active for the same input.
class RecallMeter : public StageObserver {
public:
  static Result<std::unique_ptr<RecallMeter>> create(const Bundle &bundle) {
    std::unique_ptr<RecallMeter> meter(new RecallMeter(bundle.manifest()));
    for (const SelectionInfo &selection : meter->manifest.selections) {
      FORESIGHT_TRY(auto layer, calibration::MlpLayer::read(bundle, selection));
      meter->layers.push_back(std::move(layer));
    }
    meter->found.resize(meter->layers.size());
    meter->active.resize(meter->layers.size());
    return meter;
  }

  Status afterStage(Program &program, int64_t entry, int64_t stage,
                    const Step &step) override {
    if (entry != sparseEntry)
      return {};
    for (size_t i = 0; i < layers.size(); ++i)
      if (manifest.selections[i].stage == stage)
        return compare(program, i);
    return {};
  }

  double recall(size_t i) const {
    return active[i]
               ? static_cast<double>(found[i]) / static_cast<double>(active[i])
               : 1;
  }

private:
  explicit RecallMeter(const Manifest &manifest)
      : manifest(manifest), sparseEntry(manifest.entryIndex("decode")) {}

  Status compare(Program &program, size_t i) {
    const SelectionInfo &selection = manifest.selections[i];
    const calibration::MlpLayer &layer = layers[i];
    FORESIGHT_TRY(const auto residual,
                  calibration::rowOf(program, selection.input, layer.hidden));
    FORESIGHT_TRY(
        const auto computed,
        calibration::rowOf(program, selection.activations, layer.neurons));
    x.resize(layer.hidden);
    dense.resize(layer.neurons);
    layer.normalise(residual, x);
    layer.applyNorm(x, x);
    layer.preActivations(x, 1, dense);
    for (int64_t j = 0; j < layer.neurons; ++j) {
      active[i] += dense[j] > 0;
      found[i] += dense[j] > 0 && computed[j] > 0;
    }
    return {};
  }

  const Manifest &manifest;
  int64_t sparseEntry;
  std::vector<calibration::MlpLayer> layers;
  std::vector<int64_t> found, active;
  std::vector<float> x, dense;
};

Status eval(const Args &args) {
  if (!args.has("text"))
    return makeError(ErrorCode::Usage, "which text? Give --text=FILE");
  FORESIGHT_TRY(const std::string split,
                args.choice("split", {"none", "paragraphs"}));
  FORESIGHT_TRY(const int64_t most, args.integer("max-tokens", -1, 2));
  FORESIGHT_TRY(const std::string text, readTextFile(args.text("text")));
  FORESIGHT_TRY(Model model, loadModel(args));
  Session &session = *model.session;
  FORESIGHT_TRY(const int64_t window, args.integer("window", session.capacity(),
                                                   2, session.capacity()));
  const bool recalls = args.has("recall");
  if (args.has("dense"))
    FORESIGHT_CHECK(session.useDense(true));
  if (recalls && session.isDense())
    return makeError(ErrorCode::Usage, "--recall needs a sparse bundle and no "
                                       "--dense: nothing is selected");
  FORESIGHT_TRY(const text::Tokenizer tokenizer, model.tokenizer());
  FORESIGHT_TRY(
      std::vector<int32_t> ids,
      encodeText(tokenizer, text,
                 split == "none" ? TextSplit::None : TextSplit::Paragraphs,
                 args.text("text")));
  if (most > 0 && most < static_cast<int64_t>(ids.size()))
    ids.resize(most);

  std::unique_ptr<RecallMeter> meter;
  if (recalls) {
    FORESIGHT_TRY(meter, RecallMeter::create(*model.bundle));
    session.setObserver(meter.get());
  }
  session.startTrace();
  double loss = 0;
  int64_t tokens = 0;
  const auto start = std::chrono::steady_clock::now();
  auto lastShown = start;
  const auto perplexity = [&] { return std::exp(loss / double(tokens)); };
  FORESIGHT_CHECK(calibration::readText(
      session, ids, window,
      [&](int64_t index, std::span<const float>, double own) {
        loss += own;
        ++tokens;
        const auto now = std::chrono::steady_clock::now();
        if (now - lastShown > std::chrono::seconds(5)) {
          lastShown = now;
          std::fprintf(stderr, "%lld of %zu tokens, perplexity %.4f\n",
                       static_cast<long long>(index + 1), ids.size(),
                       perplexity());
        }
        return Status();
      }));
  session.stopTrace();
  session.setObserver(nullptr);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();

  const Manifest &manifest = model.manifest();
  const SessionTrace *trace = decodeTrace(session);
  const std::vector<MlpUse> layers =
      trace ? mlpUse(manifest, *trace) : std::vector<MlpUse>();
  const MlpUse total = totalUse(manifest, layers);
  const double bytes = trace ? static_cast<double>(trace->weightBytes()) /
                                   static_cast<double>(trace->tokens)
                             : 0;
  if (args.has("json")) {
    OrderedJson out = {{"text", args.text("text")},
                       {"decode", session.isDense() ? "dense" : "sparse"},
                       {"tokens", tokens},
                       {"window", window},
                       {"split", split},
                       {"perplexity", perplexity()},
                       {"nll", loss / double(tokens)},
                       {"seconds_per_token", seconds / double(tokens)},
                       {"weight_bytes_per_token", bytes}};
    if (!layers.empty()) {
      out["mlp_bytes"] = total.bytes;
      out["selected"] = total.selected;
      out["active"] = total.active;
      out["layers"] = mlpUseJson(layers);
      if (meter)
        for (size_t i = 0; i < layers.size(); ++i)
          out["layers"][i]["recall"] = meter->recall(i);
    }
    if (manifest.model.synthetic)
      out["note"] = kSyntheticNote;
    std::printf("%s\n", dumpJson(out, 2).c_str());
    return flushOutput();
  }

  std::printf("%s decoding, %lld token%s predicted, windows of %lld\n",
              session.isDense() ? "dense" : "sparse",
              static_cast<long long>(tokens), tokens == 1 ? "" : "s",
              static_cast<long long>(window));
  std::printf("perplexity %.6f  (%.8f nats a token)\n", perplexity(),
              loss / double(tokens));
  std::printf("%.2f ms a token, %s of weights read a token\n",
              seconds * 1e3 / double(tokens), bytesText(bytes).c_str());
  if (!layers.empty())
    std::printf("\n%s", mlpUseTable(layers, total).c_str());
  if (meter) {
    Table table({"layer", "recall"});
    for (size_t i = 0; i < layers.size(); ++i)
      table.add(
          {std::to_string(layers[i].layer), percent(meter->recall(i), 3)});
    std::printf("\n%s", table.text().c_str());
  }
  return flushOutput();
}

} // namespace

Command evalCommand() {
  return {{"eval", "measure perplexity", "[BUNDLE] --text=FILE [OPTIONS]",
           "Reads a text token by token through the kernels that run decodes "
           "with, and tells the\nperplexity, what was read, and for a sparse "
           "bundle how many neurons of each layer were\nselected and active. "
           "\"MLP bytes\" is a share of what the dense MLP reads, prediction "
           "included.",
           withDeviceOptions({
               {"text", "FILE", "UTF-8 text; - is standard input"},
               {"max-tokens", "N", "read only the first N tokens"},
               {"window", "N",
                "start a new sequence every N tokens (default:\nas many as the "
                "bundle holds)"},
               {"split", "none|paragraphs",
                "paragraphs: special tokens (</s>) at every paragraph\ninstead "
                "of once in front (default: none)"},
               {"dense", nullptr, "through decode_dense"},
               {"recall", nullptr,
                "also compute fc1 on the side and tell the share of\nactive "
                "neurons that were selected"},
               {"json", nullptr, "print JSON"},
           })},
          eval};
}

} // namespace foresight::tools
