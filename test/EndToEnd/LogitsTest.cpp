//===- LogitsTest.cpp - Results against PyTorch ---------------------------===//
//
// expected.safetensors beside a model holds the logits and greedy tokens that
// PyTorch computes in f32 from the same weights.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "Model.h"

#include <cmath>

using namespace foresight;
using namespace foresight::test;

namespace {

/// Weights and KV cache in 16 bits against f32: what the project promises.
constexpr float kTolerance = 2e-2f;

const char *const kPrompts[] = {"compiler", "history", "number"};

class OptMini : public testing::TestWithParam<const char *> {
protected:
  Expected expected{source("examples/opt-mini/expected.safetensors")};
};

TEST_P(OptMini, DecodingGivesTheLogitsOfPyTorch) {
  Model model(compiled({source(GetParam()), "--sparsity=none"}));
  for (std::string prompt : kPrompts) {
    SCOPED_TRACE(prompt);
    expectLogits(model, expected.ids(prompt + ".input_ids"),
                 expected.floats(prompt + ".logits"), kTolerance);
  }
}

TEST_P(OptMini, PromptProcessingGivesTheLogitsOfPyTorch) {
  Model model(compiled({source(GetParam()), "--sparsity=none"}));
  for (std::string prompt : kPrompts) {
    SCOPED_TRACE(prompt);
    std::vector<int32_t> ids = expected.ids(prompt + ".input_ids");
    std::vector<float> logits = expected.floats(prompt + ".logits");
    ASSERT_TRUE(model.session().reset().ok());
    std::span<const float> row = model.prompt(ids);
    const float *last = logits.data() + logits.size() - row.size();
    for (size_t i = 0; i < row.size(); ++i)
      ASSERT_NEAR(row[i], last[i], kTolerance) << "logit " << i;
  }
}

TEST_P(OptMini, GreedyTokensAreThoseOfPyTorch) {
  for (const char *sparsity : {"none", "exact"}) {
    Model model(
        compiled({source(GetParam()), std::string("--sparsity=") + sparsity}));
    for (std::string prompt : kPrompts) {
      SCOPED_TRACE(prompt + " " + sparsity);
      std::vector<int32_t> ids = expected.ids(prompt + ".input_ids");
      std::vector<int32_t> all = expected.ids(prompt + ".greedy");
      EXPECT_EQ(model.greedy(ids, all.size() - ids.size()), all);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Inputs, OptMini,
                         testing::Values("examples/opt-mini/model.onnx",
                                         "examples/opt-mini"),
                         [](const auto &info) {
                           return info.index == 0 ? "Onnx" : "Folder";
                         });

TEST(OptMiniBundle, SaysWhatTheModelIs) {
  for (const char *input :
       {"examples/opt-mini/model.onnx", "examples/opt-mini"}) {
    SCOPED_TRACE(input);
    Model model(compiled({source(input), "--sparsity=none"}));
    const ModelFacts &facts = model.manifest().model;
    EXPECT_EQ(facts.family, "opt");
    EXPECT_EQ(facts.name, "opt-mini");
    EXPECT_EQ(facts.vocabSize, 8192);
    EXPECT_EQ(facts.hiddenSize, 384);
    EXPECT_EQ(facts.layers, 8);
    EXPECT_EQ(facts.heads, 6);
    EXPECT_EQ(facts.headDim, 64);
    EXPECT_EQ(facts.ffnDim, std::vector<int64_t>(8, 1536));
    EXPECT_EQ(facts.maxSeq, 1024);
    EXPECT_EQ(facts.dtype, "f16");
    EXPECT_EQ(facts.sparsity, "none");
    EXPECT_FALSE(facts.synthetic);
    EXPECT_EQ(facts.bosTokenId, 2);
    EXPECT_EQ(facts.eosTokenIds, std::vector<int64_t>{2});
    EXPECT_EQ(facts.padTokenId, 1);
  }
}

} // namespace
