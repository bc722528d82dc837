//===- ShapeTest.cpp - A size and a seed to @step -------------------------===//

#include "foresight/Import/Shape/ImportShape.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/support/Synthetic.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

using namespace mlir;
using namespace foresight;
using testing::HasSubstr;

namespace {

class ShapeTest : public testing::Test {
protected:
  OwningOpRef<ModuleOp> import(const std::string &shape, uint64_t seed = 1,
                               double density = 0.075) {
    ShapeOptions options;
    options.shape = shape;
    options.seed = seed;
    options.density = density;
    auto module = importShape(context, options);
    EXPECT_TRUE(module.ok()) << module.error().message;
    return module.ok() ? std::move(*module) : nullptr;
  }

  static std::vector<float> values(ModuleOp module, StringRef symbol) {
    auto weight = module.lookupSymbol<WeightOp>(symbol);
    auto source = cast<SyntheticAttr>(weight.getSource());
    std::vector<float> result(
        cast<RankedTensorType>(weight.getType()).getNumElements());
    Synthetic{static_cast<uint64_t>(source.getSeed()),
              static_cast<float>(source.getMean().getValueAsDouble()),
              static_cast<float>(source.getDeviation().getValueAsDouble())}
        .fill(0, result.data(), result.size());
    return result;
  }

  MLIRContext context;
};

TEST_F(ShapeTest, SizesHaveTheParametersOfThePublishedModels) {
  const std::pair<const char *, int64_t> cases[] = {
      {"opt-mini", 17736192},   {"opt-125m", 125239296},
      {"opt-350m", 331196416},  {"opt-1.3b", 1315758080},
      {"opt-2.7b", 2651596800}, {"opt-6.7b", 6658473984},
      {"opt-13b", 12853473280}, {"opt-30b", 29974540288},
      {"opt-66b", 65719701504}, {"opt-175b", 174604468224}};
  for (const auto &[name, parameters] : cases) {
    OwningOpRef<ModuleOp> module = import(name);
    ASSERT_TRUE(module);
    auto facts = getModelFacts(*module);
    EXPECT_EQ(facts->parameters, parameters) << name;
    EXPECT_TRUE(facts->synthetic);
    EXPECT_EQ(facts->dtype, "f16");
    EXPECT_EQ(facts->name, name);
  }
}

TEST_F(ShapeTest, AConfigFileGivesAShapeToo) {
  OwningOpRef<ModuleOp> module =
      import(FORESIGHT_SOURCE_DIR "/examples/opt-mini/config.json");
  ASSERT_TRUE(module);
  EXPECT_EQ(getModelFacts(*module)->parameters, 17736192);
  EXPECT_EQ(getModelFacts(*module)->name, "opt-mini");
}

TEST_F(ShapeTest, TheShareOfActiveNeuronsIsTheDensity) {
  for (double density : {0.03, 0.075, 0.5}) {
    OwningOpRef<ModuleOp> module = import("opt-mini", 5, density);
    ASSERT_TRUE(module);
    const std::vector<float> w = values(*module, "layers.3.fc1.weight");
    const std::vector<float> bias = values(*module, "layers.3.fc1.bias");
    // Normalised inputs: rows of another matrix, scaled to length sqrt(d).
    const std::vector<float> inputs = values(*module, "layers.2.fc1.weight");
    int64_t active = 0, all = 0;
    for (int64_t t = 0; t < 20; ++t) {
      const float *x = inputs.data() + t * 384;
      double square = 0;
      for (int64_t k = 0; k < 384; ++k)
        square += x[k] * x[k];
      const double scale = std::sqrt(384 / square);
      for (int64_t i = 0; i < 1536; ++i, ++all) {
        double sum = bias[i];
        for (int64_t k = 0; k < 384; ++k)
          sum += w[i * 384 + k] * x[k] * scale;
        active += sum > 0;
      }
    }
    EXPECT_NEAR(static_cast<double>(active) / all, density,
                0.01 + 0.05 * density);
  }
}

TEST_F(ShapeTest, EveryTensorHasASeedOfItsOwnAndTheSeedDecides) {
  OwningOpRef<ModuleOp> module = import("opt-125m", 1);
  OwningOpRef<ModuleOp> again = import("opt-125m", 1);
  OwningOpRef<ModuleOp> other = import("opt-125m", 2);
  ASSERT_TRUE(module && again && other);
  std::set<int64_t> seeds;
  int64_t count = 0;
  for (WeightOp weight : module->getOps<WeightOp>()) {
    ++count;
    seeds.insert(cast<SyntheticAttr>(weight.getSource()).getSeed());
    const auto source = [&](ModuleOp in) {
      return in.lookupSymbol<WeightOp>(weight.getSymName()).getSource();
    };
    EXPECT_EQ(source(*again), weight.getSource());
    EXPECT_NE(source(*other), weight.getSource());
  }
  EXPECT_EQ(static_cast<int64_t>(seeds.size()), count);
}

TEST_F(ShapeTest, OptionsThatMakeNoSenseAreErrors) {
  ShapeOptions options;
  options.shape = "opt-7b";
  auto module = importShape(context, options);
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.error().code, ErrorCode::Usage);
  EXPECT_THAT(module.error().message, HasSubstr("opt-6.7b"));
  options.shape = "opt-125m";
  options.density = 1;
  EXPECT_FALSE(importShape(context, options).ok());

  EXPECT_EQ(*parseSyntheticSeed("synthetic:42"), 42u);
  for (const char *text : {"", "synthetic", "synthetic:", "synthetic:x",
                           "synthetic:1x", "synthetic:-1", "random:1"})
    EXPECT_FALSE(parseSyntheticSeed(text).ok()) << text;
}

} // namespace
