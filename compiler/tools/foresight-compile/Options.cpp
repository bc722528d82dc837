//===- Options.cpp - The command line of foresight-compile ----------------===//
//
// Not llvm::cl: linking runs lld in this process, which resets its options, and
// its errors have another style and exit code.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "foresight/Import/Shape/ImportShape.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>

using namespace foresight;

std::string foresight::usageText() {
  return R"(usage: foresight-compile MODEL [options] -o FILE
       foresight-compile --check MODEL
       foresight-compile --shape=NAME --weights=synthetic:SEED [options] -o FILE

MODEL is an ONNX file, a Hugging Face folder (config.json and *.safetensors), or
an .mlir file of a raised or later phase.

  -o FILE             where to write; - is standard output, the default for text
  --sparsity=MODE     none: dense
                      exact: read only what a proof cannot rule out; the same
                      results as dense (default)
                      predicted: the same with a margin instead of the proof
  --margin=Z          standard errors of rounding that --sparsity=predicted
                      allows for (default 4)
  --profile=FILE      how each layer is made sparse, from `foresight calibrate`
  --predictors=FILE   low-rank predictors for --sparsity=predicted, a safetensors
                      file: docs/design/weights.md
  --predictor=low-rank:R  the same, made up, of rank R, with --shape
  --dtype=TYPE        auto, f32, f16 or bf16: what weights and KV cache are kept
                      in (default auto: bf16 if the model is bf16, else f16)
  --max-seq=N         tokens that the KV cache has room for (default: all that
                      the model allows)
  --max-batch=N       sequences that are decoded together at most (default 1):
                      the KV cache has room for each
  --target=TARGET     cpu: all variants, the runtime takes the best
                      cpu:x86-64-v3, cpu:x86-64-v4, cpu:native: one
                      cuda:sm_90 and the like: NVIDIA GPUs of it and newer
  --cubin=auto|off    auto: with --target=cuda, where ptxas is installed, also
                      what it makes of the PTX, which loads faster (default)
  --emit=PHASE        onnx, foresight, scheduled, llvm: text
                      object: code of one variant
                      bundle: what `foresight` runs (default)
                      exe: one executable of runtime and bundle
  --dump=DIR          also write every phase, and the IR after each pass, to DIR
  --allow-links       follow links of weight files that lead out of the model's
                      folder
  --tie-head          give an ONNX model that ends with hidden states (OPTModel)
                      a head: the token embedding
  --check             say what the model is, what was recognised, and, where it
                      cannot be compiled, why and what to change; no output
  --verify=FILE       run the bundle on the sequences of a safetensors file and
                      compare logits and greedy tokens; `foresight verify
                      --help` says what it holds
  --explain           say what was recognised and chosen, and why
  --shape=NAME        opt-125m .. opt-175b, opt-mini, or a config.json, with
  --weights=synthetic:SEED  made-up weights: good for measuring speed only
  --density=P         share of active neurons of such weights (default 0.075)
  -q, --quiet         no progress
  --version, --help

Exit codes: 0 success, 2 command line, 3 bad input, 4 unsupported model,
6 disk or memory, 7 --verify found a difference, 70 internal error.
)";
}

namespace {

Error usage(const std::string &message) {
  return makeError(ErrorCode::Usage, message, "; see foresight-compile --help");
}

/// The value that `text` names in a list of names.
template <typename T>
Result<T> choose(const std::string &option, const std::string &text,
                 const std::vector<std::pair<std::string, T>> &choices) {
  std::string allowed;
  for (const auto &[name, value] : choices) {
    if (name == text)
      return value;
    allowed += (allowed.empty() ? "" : ", ") + name;
  }
  return usage(option + " is one of " + allowed + ", not '" + text + "'");
}

template <typename T>
Result<T> number(const std::string &option, const std::string &text, T least,
                 T most) {
  T value{};
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !(value >= least && value <= most)) {
    std::ostringstream range;
    range << option << " is a number from " << least << " to " << most
          << ", not '" << text << "'";
    return usage(range.str());
  }
  return value;
}

/// Larger batches are products of prompts, which the library is better at.
constexpr int64_t kMostSequences = 256;

/// Options with a value.
constexpr std::array valued = {
    "-o",          "--sparsity", "--margin",  "--density",   "--max-seq",
    "--dtype",     "--emit",     "--target",  "--profile",   "--verify",
    "--dump",      "--shape",    "--weights", "--max-batch", "--predictors",
    "--predictor", "--cubin"};

const std::vector<std::pair<std::string, Sparsity>> sparsities = {
    {"none", Sparsity::None},
    {"exact", Sparsity::Exact},
    {"predicted", Sparsity::Predicted}};

class Parser {
public:
  Result<CompileOptions> parse(const std::vector<std::string> &arguments) {
    bool onlyInputs = false;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string &argument = arguments[i];
      if (argument == "--" && !onlyInputs) {
        onlyInputs = true;
        continue;
      }
      if (onlyInputs || argument.size() < 2 || argument[0] != '-') {
        if (!options.input.empty())
          return usage("there are two inputs, '" + options.input + "' and '" +
                       argument + "'");
        options.input = argument;
        continue;
      }
      size_t equals = argument.find('=');
      std::string name = argument.substr(0, equals);
      if (bool *flag = flagOf(name)) {
        if (equals != std::string::npos)
          return usage(name + " takes no value");
        *flag = true;
        continue;
      }
      std::string value;
      if (argument.size() > 2 && argument.starts_with("-o") && equals != 2) {
        name = "-o";
        value = argument.substr(2);
      } else if (std::find(valued.begin(), valued.end(), name) == valued.end())
        return usage("there is no option " + name);
      else if (equals != std::string::npos)
        value = argument.substr(equals + 1);
      else if (i + 1 < arguments.size())
        value = arguments[++i];
      if (value.empty())
        return usage(name + " needs a value");
      if (!given.emplace(name, value).second)
        return usage(name + " is given twice");
      FORESIGHT_CHECK(set(name, value));
    }
    if (!options.help && !options.version)
      FORESIGHT_CHECK(finish());
    return std::move(options);
  }

private:
  bool *flagOf(const std::string &name) {
    if (name == "--allow-links")
      return &options.allowLinks;
    if (name == "--tie-head")
      return &options.tieHead;
    if (name == "--check")
      return &options.check;
    if (name == "--explain")
      return &options.explain;
    if (name == "--quiet" || name == "-q")
      return &options.quiet;
    if (name == "--help" || name == "-h")
      return &options.help;
    if (name == "--version")
      return &options.version;
    return nullptr;
  }

  Status set(const std::string &name, const std::string &value) {
    if (name == "-o") {
      options.output = value;
    } else if (name == "--sparsity") {
      FORESIGHT_TRY(options.sparsity, choose(name, value, sparsities));
    } else if (name == "--margin") {
      FORESIGHT_TRY(options.margin, number(name, value, 0.0, 100.0));
    } else if (name == "--density") {
      FORESIGHT_TRY(options.density, number(name, value, 0.001, 1.0));
    } else if (name == "--max-seq") {
      FORESIGHT_TRY(options.maxSeq,
                    number<int64_t>(name, value, 1, int64_t{1} << 24));
    } else if (name == "--max-batch") {
      FORESIGHT_TRY(options.maxBatch,
                    number<int64_t>(name, value, 1, kMostSequences));
    } else if (name == "--dtype") {
      FORESIGHT_TRY(options.dtype, choose<std::string>(name, value,
                                                       {{"auto", "auto"},
                                                        {"f32", "f32"},
                                                        {"f16", "f16"},
                                                        {"bf16", "bf16"}}));
    } else if (name == "--cubin") {
      FORESIGHT_TRY(
          options.cubin,
          choose<bool>(name, value, {{"auto", true}, {"off", false}}));
    } else if (name == "--emit") {
      FORESIGHT_TRY(options.emit, choose<Emit>(name, value,
                                               {{"onnx", Emit::Onnx},
                                                {"foresight", Emit::Foresight},
                                                {"scheduled", Emit::Scheduled},
                                                {"llvm", Emit::Llvm},
                                                {"object", Emit::Object},
                                                {"bundle", Emit::Bundle},
                                                {"exe", Emit::Exe}}));
    } else if (name == "--target") {
      options.target = value;
    } else if (name == "--profile") {
      options.profile = value;
    } else if (name == "--verify") {
      options.verify = value;
    } else if (name == "--predictors") {
      options.predictors = value;
    } else if (name == "--predictor") {
      const std::string kind = "low-rank:";
      if (!value.starts_with(kind))
        return usage(name + " is low-rank:R, not '" + value + "'");
      FORESIGHT_TRY(options.predictorRank,
                    number<int64_t>(name + "=" + kind + "R",
                                    value.substr(kind.size()), 16, 4096));
    } else if (name == "--dump") {
      options.dump = value;
    } else if (name == "--shape") {
      options.shape = value;
    } else if (name == "--weights") {
      FORESIGHT_TRY(options.seed, parseSyntheticSeed(value));
    }
    return {};
  }

  Status finish() {
    if (options.input.empty() == options.shape.empty())
      return usage(options.input.empty() ? "no model was given"
                                         : "--shape and '" + options.input +
                                               "' exclude each other");
    if (options.shape.empty() != !given.count("--weights"))
      return usage("--shape and --weights=synthetic:SEED go together");
    if (options.tieHead && !options.shape.empty())
      return usage("--tie-head is for an ONNX file");
    if (given.count("--density") && options.shape.empty())
      return usage("--density is for --shape");
    if (given.count("--margin") && options.sparsity != Sparsity::Predicted)
      return usage("--margin is for --sparsity=predicted");
    if (!options.profile.empty() && options.sparsity == Sparsity::None)
      return usage("--profile is for --sparsity=exact or predicted");
    if (options.check && (!options.output.empty() || given.count("--emit")))
      return usage("--check writes nothing: leave -o and --emit out");
    if (!options.verify.empty() && options.emit < Emit::Bundle)
      return usage("--verify runs a bundle; --emit is bundle or exe with it");
    const bool lowRank = options.predictorRank || !options.predictors.empty();
    if (lowRank && options.sparsity != Sparsity::Predicted)
      return usage("--predictors and --predictor are for "
                   "--sparsity=predicted");
    if (lowRank && !options.profile.empty())
      return usage("--profile and low-rank predictors exclude each other");
    if (options.predictorRank && options.shape.empty())
      return usage("--predictor=low-rank:R is for --shape; --predictors=FILE "
                   "gives those of a model");
    if (!options.predictors.empty() && !options.shape.empty())
      return usage("--predictors=FILE is for a model; --predictor=low-rank:R "
                   "for --shape");
    std::string why;
    if (llvm::StringRef(options.target).starts_with("cuda")) {
      auto variant = cudaVariant(options.target, why);
      if (failed(variant))
        return usage("--target=" + options.target + ": " + why);
      options.cuda = std::move(*variant);
    } else {
      auto variants = cpuVariants(options.target, why);
      if (failed(variants))
        return usage("--target=" + options.target + ": " + why);
      options.variants = std::move(*variants);
    }
    if (given.count("--cubin") &&
        (!options.cuda || options.emit < Emit::Bundle || options.check))
      return usage("--cubin is for a bundle of --target=cuda");
    if (options.output.empty() && !options.check) {
      if (options.emit >= Emit::Object)
        return usage("-o FILE says where to write");
      options.output = "-";
    }
    if (options.output == "-" && options.emit >= Emit::Bundle)
      return usage("a bundle is written to a file: -o FILE");
    return {};
  }

  CompileOptions options;
  std::map<std::string, std::string> given;
};

} // namespace

std::string foresight::nameOf(Sparsity sparsity) {
  for (const auto &[name, value] : sparsities)
    if (value == sparsity)
      return name;
  return "";
}

std::vector<std::pair<std::string, std::string>>
CompileOptions::record() const {
  std::vector<std::pair<std::string, std::string>> list;
  auto add = [&](const char *name, const auto &value) {
    std::ostringstream text;
    text << value;
    list.emplace_back(name, text.str());
  };
  add("sparsity", nameOf(sparsity));
  if (predictorRank)
    add("predictor", "low-rank:" + std::to_string(predictorRank));
  else if (!predictors.empty())
    add("predictors", predictors.substr(predictors.rfind('/') + 1));
  else if (sparsity == Sparsity::Predicted)
    add("margin", margin);
  add("target", target);
  add("dtype", dtype);
  if (tieHead)
    add("tie-head", "true");
  if (maxSeq)
    add("max-seq", maxSeq);
  if (maxBatch > 1)
    add("max-batch", maxBatch);
  if (!profile.empty())
    add("profile", profile.substr(profile.rfind('/') + 1));
  if (!shape.empty()) {
    add("shape", shape);
    add("weights", "synthetic:" + std::to_string(seed));
    add("density", density);
  }
  return list;
}

Result<CompileOptions>
foresight::parseOptions(const std::vector<std::string> &arguments) {
  return Parser().parse(arguments);
}
