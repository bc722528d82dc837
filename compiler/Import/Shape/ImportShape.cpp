//===- ImportShape.cpp - A size and a seed to @step -----------------------===//
//
// Deviations are chosen so that numbers stay of order one however many layers
// there are, and so that a chosen share of the neurons is active:
//
//   q, k, v, fc1     1 / sqrt(d): outputs of variance 1 for a normalised input
//   fc1's bias       -z, with P(normal > z) the density, since w_i . x is close
//                    to standard normal over the neurons
//   out_proj, fc2    what makes each branch add 1 / (2 layers) to the variance
//                    of the residual stream, which ends near 1
//   embeddings       0.02: small against the branches, so that the tied head
//                    does not merely find the last token again
//
//===----------------------------------------------------------------------===//

#include "foresight/Import/Shape/ImportShape.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/support/Synthetic.h"

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

using namespace mlir;
using namespace foresight;

namespace {

struct Size {
  const char *name;
  int64_t layers, heads, hidden, embed, vocabulary, positions;
};

/// What the published models have; ffn is 4 * hidden.
constexpr std::array<Size, 10> kSizes = {{
    {"opt-mini", 8, 6, 384, 384, 8192, 1024},
    {"opt-125m", 12, 12, 768, 768, 50272, 2048},
    {"opt-350m", 24, 16, 1024, 512, 50272, 2048},
    {"opt-1.3b", 24, 32, 2048, 2048, 50272, 2048},
    {"opt-2.7b", 32, 32, 2560, 2560, 50272, 2048},
    {"opt-6.7b", 32, 32, 4096, 4096, 50272, 2048},
    {"opt-13b", 40, 40, 5120, 5120, 50272, 2048},
    {"opt-30b", 48, 56, 7168, 7168, 50272, 2048},
    {"opt-66b", 64, 72, 9216, 9216, 50272, 2048},
    {"opt-175b", 96, 96, 12288, 12288, 50272, 2048},
}};

/// The normal distribution of one tensor.
struct Distribution {
  double mean = 0, deviation = 0;
};

/// Gives each weight of a model its distribution.
class Recipe {
public:
  Recipe(const OptConfig &config, double density)
      : threshold(-normalQuantile(density)),
        branch(1 / (2.0 * static_cast<double>(config.layers))) {}

  Distribution of(StringRef name, ArrayRef<int64_t> shape) const {
    constexpr double kEmbedding = 0.02, kBias = 0.01;
    if (name.ends_with("norm.weight"))
      return {1, 0};
    if (name.ends_with("norm.bias"))
      return {0, 0};
    if (name.ends_with("fc1.bias"))
      return {-threshold, 0};
    if (name.ends_with(".bias"))
      return {0, kBias};
    if (name.starts_with("embed_"))
      return {0, kEmbedding};
    const auto in = static_cast<double>(shape[1]);
    if (name.ends_with("out_proj.weight"))
      return {0, std::sqrt(branch / in)};
    if (name.ends_with("fc2.weight"))
      return {0, std::sqrt(branch / (in * energyAbove(threshold)))};
    return {0, 1 / std::sqrt(in)};
  }

private:
  /// E[max(x - z, 0)^2] of a standard normal x: what a ReLU lets through.
  static double energyAbove(double z) {
    const double above = 0.5 * std::erfc(z / std::sqrt(2.0));
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    return (1 + z * z) * above - z * density;
  }

  double threshold, branch;
};

} // namespace

static Result<OptConfig> configOf(const std::string &shape, std::string &name) {
  namespace fs = std::filesystem;
  std::string known;
  for (const Size &size : kSizes) {
    known += (known.empty() ? "" : ", ") + std::string(size.name);
    if (shape != size.name)
      continue;
    OptConfig config;
    config.layers = size.layers;
    config.heads = size.heads;
    config.hiddenSize = size.hidden;
    config.embedSize = size.embed;
    config.vocabSize = size.vocabulary;
    config.maxPositions = size.positions;
    config.ffnDim.assign(size.layers, 4 * size.hidden);
    // 350m alone normalises after each branch and not before the head.
    config.normBefore = config.finalNorm = size.embed == size.hidden;
    name = size.name;
    return config;
  }
  std::error_code failure;
  if (!fs::exists(shape, failure))
    return makeError(ErrorCode::Usage, "--shape=", shape,
                     ": expected the path of a config.json, or one of ", known);
  fs::path path = shape;
  if (fs::is_directory(path, failure))
    path /= "config.json";
  name = path.parent_path().filename().string();
  if (name.empty())
    name = "opt";
  FORESIGHT_TRY(Json json, readJsonFile(path.string()));
  FORESIGHT_TRY(OptConfig config, OptConfig::parse(json, path.string()));
  FORESIGHT_TRY(config.tokens, readTokenIds(path.parent_path().string()));
  return config;
}

static ElementType elementOf(const std::string &dtype) {
  if (dtype == "float32")
    return ElementType::F32;
  return dtype == "bfloat16" ? ElementType::BF16 : ElementType::F16;
}

Result<OwningOpRef<ModuleOp>>
foresight::importShape(MLIRContext &context, const ShapeOptions &options) {
  context.loadDialect<ForesightDialect>();
  if (!(options.density > 0 && options.density < 1))
    return makeError(ErrorCode::Usage, "--density=", options.density,
                     ": expected a share between 0 and 1");
  ModelFacts facts;
  FORESIGHT_TRY(OptConfig config, configOf(options.shape, facts.name));
  facts.source = "synthetic:" + std::to_string(options.seed);
  facts.synthetic = true;
  ImportOptions chosen = options.import;
  if (!chosen.dtype)
    chosen.dtype = elementOf(config.dtype);

  const Recipe recipe(config, options.density);
  Builder b(&context);
  uint64_t made = 0;
  auto provider =
      [&](const std::string &name,
          ArrayRef<int64_t> shape) -> Result<std::optional<WeightSource>> {
    if (name == "lm_head.weight" && config.tiedHead)
      return std::optional<WeightSource>();
    const Distribution distribution = recipe.of(name, shape);
    WeightSource source;
    source.name = name;
    source.source = SyntheticAttr::get(
        &context, static_cast<int64_t>(deriveSeed(options.seed, made++) >> 1),
        b.getF64FloatAttr(distribution.mean),
        b.getF64FloatAttr(distribution.deviation));
    return std::optional<WeightSource>(std::move(source));
  };
  return buildOptStep(context, config, chosen, provider, facts);
}

Result<uint64_t> foresight::parseSyntheticSeed(const std::string &text) {
  const std::string prefix = "synthetic:";
  uint64_t seed = 0;
  const char *end = text.data() + text.size();
  if (text.starts_with(prefix)) {
    auto [stop, failure] =
        std::from_chars(text.data() + prefix.size(), end, seed);
    if (failure == std::errc() && stop == end)
      return seed;
  }
  return makeError(ErrorCode::Usage, "--weights=", text,
                   ": expected synthetic:SEED, SEED a whole number");
}
