//===- CalibrateCommand.cpp - foresight calibrate -------------------------===//
#include "Commands.h"
#include "Model.h"
#include "Statistics.h"

#include "foresight/calibration/Calibrate.h"
#include "foresight/support/AtomicFile.h"

#include <chrono>
#include <cstdio>

namespace foresight::tools {
namespace {

using calibration::Calibration;
using calibration::LayerReport;
using calibration::TextReport;

std::string signedPercent(double share) {
  return (share >= 0 ? "+" : "") + percent(share, 3);
}

void printText(const char *name, const TextReport &report) {
  std::printf("%s %lld tokens: perplexity %.4f -> %.4f (%s, standard error "
              "%s), %s of the dense MLP bytes\n",
              name, static_cast<long long>(report.tokens),
              report.densePerplexity, report.perplexity,
              signedPercent(report.increase()).c_str(),
              percent(report.standardError, 3).c_str(),
              percent(report.bytesShare).c_str());
}

void explain(const Calibration &calibration) {
  Table table({"layer", "active", "rule", "bits", "margin", "selected",
               "recall", "bytes", "bytes held out", "cost"});
  for (const LayerReport &layer : calibration.layers) {
    const LayerProfile &profile = layer.chosen.profile;
    const bool margin = profile.rule == LayerProfile::Rule::Margin;
    table.add(
        {std::to_string(layer.layer), percent(layer.activeShare),
         std::string(ruleName(profile.rule)),
         profile.usesCopy() ? std::to_string(profile.bits) : "-",
         margin ? fixed(profile.margin, 4) : "-",
         percent(layer.chosen.selected / layer.neurons),
         layer.activeShare > 0
             ? percent(layer.chosen.found / (layer.activeShare * layer.neurons),
                       2)
             : "-",
         percent(layer.chosen.bytes / layer.denseBytes),
         percent(layer.heldOutBytes / layer.denseBytes),
         fixed(layer.weight * layer.chosen.error * 1e4, 2)});
  }
  Table uniform({"one margin for all layers", "bytes", "cost"});
  for (const calibration::UniformMargin &margin : calibration.uniform)
    uniform.add({fixed(margin.margin, 1), percent(margin.bytesShare),
                 fixed(margin.cost * 1e4, 2)});
  std::printf(
      "%s\n%scost: expected increase of the loss, 1e-4 nats a token\n\n",
      table.text().c_str(), uniform.text().c_str());
}

Status calibrate(const Args &args) {
  if (!args.has("text"))
    return makeError(ErrorCode::Usage, "which text? Give --text=FILE");
  if (!args.has("o"))
    return makeError(ErrorCode::Usage, "where to? Give -o profile.json");
  calibration::CalibrateOptions options;
  FORESIGHT_TRY(options.budget, args.number("budget", options.budget));
  FORESIGHT_TRY(const std::string split,
                args.choice("split", {"none", "paragraphs"}));
  FORESIGHT_TRY(const int64_t tokens, args.integer("tokens", 8192, 2));
  // Found out before the work, not after it.
  FORESIGHT_TRY(const std::string bundle, bundlePath(args));
  FORESIGHT_CHECK(
      checkOutput("-o", args.text("o"), {bundle, args.text("text")}));
  FORESIGHT_TRY(const std::string text, readTextFile(args.text("text")));
  FORESIGHT_TRY(Model model, loadModel(args));
  FORESIGHT_TRY(options.window,
                args.integer("window",
                             std::min<int64_t>(model.session->capacity(), 1024),
                             2, model.session->capacity()));
  FORESIGHT_TRY(const text::Tokenizer tokenizer, model.tokenizer());
  FORESIGHT_TRY(
      std::vector<int32_t> ids,
      encodeText(tokenizer, text,
                 split == "none" ? TextSplit::None : TextSplit::Paragraphs,
                 args.text("text")));
  if (static_cast<int64_t>(ids.size()) > tokens)
    ids.resize(tokens);
  FORESIGHT_TRY(const int64_t threads,
                args.integer("threads", 0, 1, kMostThreads));
  options.threads =
      threads > 0 ? static_cast<int>(threads) : availableThreads();

  const auto start = std::chrono::steady_clock::now();
  options.progress = [&](const std::string &line) {
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "[%5.1f s] %s\n", seconds.count(), line.c_str());
  };
  FORESIGHT_TRY(
      Calibration made,
      calibration::calibrate(*model.bundle, *model.session, ids, options));
  made.profile.calibration =
      Profile::Calibration{.text = args.text("text"),
                           .tokens = static_cast<int64_t>(ids.size()),
                           .budget = options.budget,
                           .densePerplexity = made.heldOut.densePerplexity,
                           .perplexity = made.heldOut.perplexity};
  FORESIGHT_CHECK(writeFileAtomically(args.text("o"), made.profile.toJson()));

  if (args.has("explain"))
    explain(made);
  printText("chosen on", made.heldIn);
  printText("held out ", made.heldOut);
  if (made.heldOut.increase() > options.budget)
    std::printf("the held-out text costs more than the budget: use more "
                "--tokens or a smaller --budget\n");
  std::printf("wrote %s: foresight-compile ... --sparsity=predicted "
              "--profile=%s\n",
              args.text("o").c_str(), args.text("o").c_str());
  return flushOutput();
}

} // namespace

Command calibrateCommand() {
  return {{"calibrate", "choose bits and margins on text",
           "[BUNDLE] --text=FILE -o PROFILE [OPTIONS]",
           "Chooses for every layer how many bits its copy of fc1 has and how "
           "wide its margin is,\nso that the fewest MLP bytes are read while "
           "the perplexity rises by no more than the\nbudget. Half of the text "
           "is used to choose, half to check. BUNDLE is any sparse bundle\nof "
           "the model; docs/design/calibration.md tells the method.",
           withDeviceOptions({
               {"text", "FILE", "UTF-8 text; - is standard input"},
               {"o", "FILE", "the profile to write"},
               {"budget", "SHARE",
                "accepted increase of perplexity (default: 0.003)"},
               {"tokens", "N", "tokens of the text to use (default: 8192)"},
               {"window", "N",
                "start a new sequence every N tokens (default:\n1024)"},
               {"split", "none|paragraphs",
                "paragraphs: special tokens (</s>) at every paragraph\ninstead "
                "of once in front (default: none)"},
               {"explain", nullptr, "print what was chosen, layer by layer"},
           })},
          calibrate};
}

} // namespace foresight::tools
