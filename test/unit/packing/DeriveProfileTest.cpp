//===- DeriveProfileTest.cpp - Bits chosen from the weights ---------------===//

#include "foresight/Target/Packing/DeriveProfile.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/HuggingFace/ImportHuggingFace.h"
#include "foresight/Import/Shape/ImportShape.h"
#include "foresight/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace mlir;
using namespace foresight;
using Rule = LayerProfile::Rule;

namespace {

class DeriveProfileTest : public testing::Test {
protected:
  OwningOpRef<ModuleOp> formMlps(Result<OwningOpRef<ModuleOp>> module) {
    EXPECT_TRUE(module.ok()) << module.error().message;
    PassManager passes(&context);
    passes.addPass(createFormMlpPass());
    EXPECT_TRUE(succeeded(passes.run(**module)));
    return std::move(*module);
  }
  OwningOpRef<ModuleOp> example() {
    return formMlps(
        importHuggingFace(context, FORESIGHT_SOURCE_DIR "/examples/opt-mini"));
  }
  OwningOpRef<ModuleOp> synthetic(double density) {
    ShapeOptions options;
    options.shape = "opt-125m";
    options.density = density;
    return formMlps(importShape(context, options));
  }
  DerivedProfile derive(ModuleOp module, const DeriveOptions &options,
                        const Profile *given = nullptr) {
    auto derived = deriveProfile(module, options, given);
    EXPECT_TRUE(derived.ok()) << derived.error().message;
    return derived.ok() ? std::move(*derived) : DerivedProfile{};
  }
  /// The mean share that the chosen rules are expected to read.
  static double meanShare(const DerivedProfile &derived) {
    double sum = 0;
    for (const auto &[layer, choice] : derived.profile.layers)
      for (const LayerEstimate &estimate : derived.considered[layer])
        if (estimate.choice == choice)
          sum += estimate.share;
    return sum / static_cast<double>(derived.profile.layers.size());
  }
  static std::vector<int64_t> bits(const DerivedProfile &derived) {
    std::vector<int64_t> result;
    result.reserve(derived.profile.layers.size());
    for (const auto &[layer, choice] : derived.profile.layers)
      result.push_back(choice.bits);
    return result;
  }

  MLIRContext context;
};

// What text measures on the example without biases: 28.0 % of the dense MLP
// bytes for the proof, 20.1 % at 4 standard errors.
TEST_F(DeriveProfileTest, TheExampleIsProvedWithAboutSixBits) {
  auto module = example();
  DerivedProfile derived = derive(*module, {Sparsity::Exact});
  ASSERT_EQ(derived.profile.layers.size(), 8u);
  for (const auto &[layer, choice] : derived.profile.layers)
    EXPECT_EQ(choice.rule, Rule::Proof);
  EXPECT_THAT(bits(derived), testing::Each(testing::AnyOf(5, 6)));
  EXPECT_GE(llvm::count(bits(derived), 6), 6);
  EXPECT_NEAR(meanShare(derived), 0.275, 0.015);
}

TEST_F(DeriveProfileTest, TheExampleIsPredictedWithTwoToFourBits) {
  auto module = example();
  DerivedProfile derived = derive(*module, {Sparsity::Predicted, 4});
  for (const auto &[layer, choice] : derived.profile.layers) {
    EXPECT_EQ(choice.rule, Rule::Margin);
    EXPECT_EQ(choice.margin, 4);
  }
  EXPECT_THAT(bits(derived), testing::Each(testing::AnyOf(2, 3, 4)));
  EXPECT_GE(llvm::count(bits(derived), 3), 3);
  EXPECT_NEAR(meanShare(derived), 0.197, 0.015);
}

TEST_F(DeriveProfileTest, ASmallerMarginWantsFewerBits) {
  auto module = example();
  const auto wide = bits(derive(*module, {Sparsity::Predicted, 8}));
  const auto narrow = bits(derive(*module, {Sparsity::Predicted, 1}));
  for (size_t i = 0; i < wide.size(); ++i)
    EXPECT_GT(wide[i], narrow[i]) << i;
}

TEST_F(DeriveProfileTest, SyntheticWeightsHaveTheDensityTheyWereMadeFor) {
  auto module = synthetic(0.075);
  DerivedProfile derived = derive(*module, {Sparsity::Exact});
  for (const auto &considered : derived.considered)
    EXPECT_NEAR(considered.front().active, 0.075, 0.005);
}

TEST_F(DeriveProfileTest, DenseNeuronsAreOnlySkipped) {
  // Half of all neurons active: a copy costs more than it saves.
  auto module = synthetic(0.5);
  DerivedProfile derived = derive(*module, {Sparsity::Exact});
  for (const auto &[layer, choice] : derived.profile.layers)
    EXPECT_EQ(choice.rule, Rule::Skip) << layer;
}

TEST_F(DeriveProfileTest, AGivenProfileWinsWhereItHasALayer) {
  auto module = example();
  Profile given;
  given.hiddenSize = 384;
  given.ffnDim.assign(8, 1536);
  given.layers[3] = {Rule::Margin, 2, 1.5};
  DerivedProfile derived = derive(*module, {Sparsity::Exact}, &given);
  EXPECT_EQ(*derived.profile.find(3), given.layers[3]);
  EXPECT_EQ(derived.profile.find(2)->rule, Rule::Proof);

  given.ffnDim[5] = 1024;
  auto refused = deriveProfile(*module, {Sparsity::Exact}, &given);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              testing::HasSubstr("1024 neurons in layer 5"));
}

TEST_F(DeriveProfileTest, OtherActivationsStayDense) {
  auto module = formMlps(importHuggingFace(
      context, FORESIGHT_SOURCE_DIR "/test/fixtures/huggingface/no_bias"));
  DerivedProfile derived = derive(*module, {Sparsity::Exact});
  ASSERT_EQ(derived.profile.layers.size(), 2u);
  EXPECT_EQ(derived.profile.find(0)->rule, Rule::Dense);
}

TEST_F(DeriveProfileTest, WithoutSparsityEveryLayerIsDense) {
  auto module = example();
  DerivedProfile derived = derive(*module, {Sparsity::None});
  EXPECT_EQ(derived.profile.find(7)->rule, Rule::Dense);
}

} // namespace
