//===- SparsityTest.cpp - What sparsity changes and what it does not ------===//

#include "Harness.h"
#include "Model.h"

#include "foresight/calibration/MlpBytes.h"
#include "foresight/text/Tokenizer.h"

#include <cmath>
#include <cstring>
#include <map>

using namespace foresight;
using namespace foresight::test;

namespace {

const char *const kModel = "examples/opt-mini/model.onnx";

std::vector<int32_t> tokens(const std::string &text) {
  auto tokenizer = text::Tokenizer::fromFolder(source("examples/opt-mini"));
  EXPECT_TRUE(tokenizer.ok());
  auto ids = tokenizer->encode(text);
  EXPECT_TRUE(ids.ok());
  return *ids;
}

/// Tokens of running text that the model was not trained on.
std::vector<int32_t> validationTokens(size_t count) {
  std::vector<int32_t> ids =
      tokens(readFile(source("test/fixtures/text/validation.txt")));
  EXPECT_GE(ids.size(), count);
  ids.resize(std::min(ids.size(), count));
  return ids;
}

bool sameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// Weight bytes that the MLPs read since `startTrace`, over what they read
/// densely in as many steps.
double mlpShare(Model &model) {
  const Manifest &manifest = model.manifest();
  for (const SessionTrace &trace : model.session().traces()) {
    const EntryInfo &entry = manifest.entries[trace.entry];
    if (entry.name != "decode")
      continue;
    double read = 0, dense = 0;
    for (size_t i = 0; i < entry.stages.size(); ++i)
      if (entry.stages[i].role == "fc1" || entry.stages[i].role == "fc2")
        read += trace.stages[i].weightBytes;
    const EntryInfo &twin =
        manifest.entries[manifest.entryIndex("decode_dense")];
    for (const StageInfo &stage : twin.stages)
      if (stage.role == "fc1" || stage.role == "fc2")
        dense += static_cast<double>(stage.weightBytes) * trace.steps;
    return read / dense;
  }
  ADD_FAILURE() << "nothing was decoded";
  return 0;
}

/// 2,000 tokens over texts of different kinds, up to the end of the context.
TEST(Exact, LogitsAreBitForBitThoseOfDense) {
  Model dense(compiled({source(kModel), "--sparsity=none"}));
  Model exact(compiled({source(kModel), "--sparsity=exact"}));
  const std::pair<const char *, int64_t> prompts[] = {
      {"The history of the city begins", 990},
      {"In 1987 , the number of", 400},
      {"= = Reception = =", 300},
      {"\n", 310},
  };
  int64_t compared = 0;
  for (const auto &[text, count] : prompts) {
    SCOPED_TRACE(text);
    std::vector<int32_t> ids = tokens(text);
    ASSERT_TRUE(dense.session().reset().ok());
    ASSERT_TRUE(exact.session().reset().ok());
    std::span<const float> a = dense.prompt(ids);
    std::span<const float> b = exact.prompt(ids);
    for (int64_t i = 0; i < count; ++i, ++compared) {
      ASSERT_TRUE(sameBits(a, b)) << "token " << i;
      int32_t next = argmax(a);
      a = dense.decode(next);
      b = exact.decode(next);
    }
  }
  EXPECT_EQ(compared, 2000);
}

TEST(Exact, DenseEntryOfTheSameBundleGivesTheSameBits) {
  Model model(compiled({source(kModel), "--sparsity=exact"}));
  std::vector<int32_t> ids = validationTokens(200);
  std::vector<std::vector<float>> rows;
  for (bool dense : {true, false}) {
    ASSERT_TRUE(model.session().reset().ok());
    ASSERT_TRUE(model.session().useDense(dense).ok());
    for (size_t i = 0; i < ids.size(); ++i) {
      std::span<const float> logits = model.decode(ids[i]);
      if (dense)
        rows.emplace_back(logits.begin(), logits.end());
      else
        ASSERT_TRUE(sameBits(logits, rows[i])) << "token " << i;
    }
  }
}

TEST(Exact, ReadsAtMostAThirdOfTheMlps) {
  Model model(compiled({source(kModel), "--sparsity=exact"}));
  model.session().startTrace();
  model.negativeLogLikelihood(validationTokens(500));
  EXPECT_LE(mlpShare(model), 0.32);
}

TEST(Predicted, PerplexityStaysAndAFifthOfTheMlpsIsRead) {
  Model model(compiled({source(kModel), "--sparsity=predicted"}));
  std::vector<int32_t> ids = validationTokens(1000);
  ASSERT_TRUE(model.session().useDense(true).ok());
  double dense = model.negativeLogLikelihood(ids);
  ASSERT_TRUE(model.session().useDense(false).ok());
  model.session().startTrace();
  double predicted = model.negativeLogLikelihood(ids);
  // On the whole validation text it is 0.05 %; a thousand tokens vary more.
  EXPECT_NEAR(std::exp(predicted - dense), 1.0, 2e-3);
  // Bits come from the weights alone; text like this reads 20.9 %.
  EXPECT_LE(mlpShare(model), 0.21);
}

TEST(Predicted, AWiderMarginReadsMoreAndComesCloser) {
  std::vector<int32_t> ids = validationTokens(300);
  double share[2], error[2];
  const char *const margins[] = {"--margin=1", "--margin=6"};
  for (int i = 0; i < 2; ++i) {
    Model model(compiled({source(kModel), "--sparsity=predicted", margins[i]}));
    ASSERT_TRUE(model.session().useDense(true).ok());
    double dense = model.negativeLogLikelihood(ids);
    ASSERT_TRUE(model.session().useDense(false).ok());
    model.session().startTrace();
    error[i] = std::fabs(model.negativeLogLikelihood(ids) - dense);
    share[i] = mlpShare(model);
  }
  EXPECT_LT(share[0], share[1]);
  EXPECT_GT(error[0], error[1]);
}

/// One layer of each kind that changes nothing, and the rest by option.
TEST(ProfileOption, DecidesTheLayersThatItLists) {
  TemporaryFolder folder;
  const std::string profile = folder / "profile.json";
  writeFile(profile, R"({"format": 1,
    "model": {"hidden_size": 384, "layers": 8,
              "ffn_dim": [1536, 1536, 1536, 1536, 1536, 1536, 1536, 1536]},
    "layers": [{"layer": 0, "rule": "skip"}, {"layer": 1, "rule": "dense"},
               {"layer": 2, "rule": "proof", "bits": 8},
               {"layer": 3, "rule": "margin", "bits": 4, "margin": 2.5}]})");
  Model model(
      compiled({source(kModel), "--sparsity=exact", "--profile=" + profile}));
  std::map<int64_t, SelectionInfo> layers;
  for (const SelectionInfo &selection : model.manifest().selections)
    layers[selection.layer] = selection;
  EXPECT_EQ(layers.size(), 7u);
  EXPECT_EQ(layers[0].rule, "skip");
  EXPECT_FALSE(layers.count(1)) << "a dense layer selects nothing";
  EXPECT_EQ(layers[2].rule, "proof");
  EXPECT_EQ(layers[2].bits, 8);
  EXPECT_EQ(layers[3].rule, "margin");
  EXPECT_EQ(layers[3].bits, 4);
  EXPECT_NEAR(layers[3].kappa, 2.5 / std::sqrt(384.0), 1e-9);
  for (int64_t layer = 4; layer < 8; ++layer)
    EXPECT_EQ(layers[layer].rule, "proof") << layer;

  // It runs, and as well as its margin promises.
  std::vector<int32_t> ids = validationTokens(200);
  ASSERT_TRUE(model.session().useDense(true).ok());
  double dense = model.negativeLogLikelihood(ids);
  ASSERT_TRUE(model.session().useDense(false).ok());
  EXPECT_NEAR(model.negativeLogLikelihood(ids), dense, 5e-3);
}

/// What calibration expects a rule to read is what its stages count.
TEST(ProfileOption, ReadsTheBytesThatCalibrationCounts) {
  TemporaryFolder folder;
  const std::string profile = folder / "profile.json";
  writeFile(profile, R"({"format": 1,
    "model": {"hidden_size": 384, "layers": 8,
              "ffn_dim": [1536, 1536, 1536, 1536, 1536, 1536, 1536, 1536]},
    "layers": [{"layer": 0, "rule": "skip"},
               {"layer": 1, "rule": "margin", "bits": 3, "margin": 1}]})");
  Model model(
      compiled({source(kModel), "--sparsity=exact", "--profile=" + profile}));
  model.session().startTrace();
  model.negativeLogLikelihood(validationTokens(100));
  const Manifest &manifest = model.manifest();
  const EntryInfo &decode = manifest.entries[manifest.entryIndex("decode")];
  ASSERT_EQ(manifest.selections.size(), 8u);
  int compared = 0;
  for (const SessionTrace &trace : model.session().traces()) {
    if (&manifest.entries[trace.entry] != &decode)
      continue;
    const auto steps = static_cast<double>(trace.steps);
    for (size_t i = 0; i < manifest.selections.size(); ++i, ++compared) {
      const SelectionInfo &selection = manifest.selections[i];
      double read = 0;
      for (size_t s = 0; s < decode.stages.size(); ++s)
        if (decode.stages[s].layer == selection.layer &&
            (decode.stages[s].role == "fc1" || decode.stages[s].role == "fc2"))
          read += static_cast<double>(trace.stages[s].weightBytes);
      auto bytes = calibration::MlpBytes::of(model.file(), selection);
      ASSERT_TRUE(bytes.ok());
      const auto counted = bytes->sparse(
          selection.bits,
          static_cast<double>(trace.selections[i].selected) / steps,
          static_cast<double>(trace.selections[i].active) / steps);
      EXPECT_NEAR(counted, read / steps, 1e-6 * counted)
          << "layer " << selection.layer;
    }
  }
  EXPECT_EQ(compared, 8);
}

/// A model without neurons that are exactly zero: dense, and said so.
TEST(Gelu, IsCompiledDenseWithAWarning) {
  TemporaryFolder folder;
  ProcessResult result =
      run({tool("foresight-compile"),
           source("test/fixtures/exports/optimum_gelu/model.onnx"),
           "--sparsity=predicted", "-q", "-o", folder / "m.fsb"});
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_NE(result.errors.find("foresight-compile: warning: "),
            std::string::npos);
  EXPECT_NE(result.errors.find("ReLU"), std::string::npos) << result.errors;
  Model model(folder / "m.fsb");
  EXPECT_EQ(model.manifest().model.sparsity, "none");
  EXPECT_TRUE(model.manifest().selections.empty());
}

} // namespace
