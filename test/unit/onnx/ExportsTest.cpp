//===- ExportsTest.cpp - Real exports against PyTorch ---------------------===//
//
// Every export is run twice: as it was written, by the evaluator, and raised,
// by the interpreter of the dialect. Both must give PyTorch's logits.
//
//===----------------------------------------------------------------------===//

#include "foresight/Import/Onnx/Evaluator.h"
#include "foresight/Import/Onnx/ImportOnnx.h"
#include "foresight/Import/Opt/ModelFacts.h"
#include "foresight/Raise/Raise.h"
#include "foresight/support/Json.h"
#include "foresight/support/Safetensors.h"

#include "Decoder.h"
#include "TempFolder.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace foresight;
using test::Decoder;

namespace {

struct Export {
  const char *folder, *file;
  /// PyTorch rounds to f32, or to f16 in one model, where both sides here do
  /// not; more so the wider the model is.
  double tolerance = 1e-5;
};

void PrintTo(const Export &e, std::ostream *os) {
  *os << e.folder << "/" << e.file;
}

class ExportsTest : public testing::TestWithParam<Export> {
protected:
  std::string folder =
      std::string(FORESIGHT_SOURCE_DIR "/test/fixtures/exports/") +
      GetParam().folder;
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::optional<Safetensors> expected;

  void SetUp() override {
    auto imported = importOnnx(context, folder + "/" + GetParam().file);
    ASSERT_TRUE(succeeded(imported));
    module = std::move(*imported);
    auto tensors = Safetensors::openFile(folder + "/expected.safetensors");
    ASSERT_TRUE(tensors.ok()) << tensors.error().message;
    expected = std::move(*tensors);
  }

  std::vector<int64_t> integers(const std::string &name) {
    const TensorInfo *tensor = expected->find(name);
    EXPECT_NE(tensor, nullptr) << name;
    std::vector<int64_t> values(tensor->bytes / 8);
    std::memcpy(values.data(), tensor->data(), tensor->bytes);
    return values;
  }
  std::vector<float> floats(const std::string &name) {
    const TensorInfo *tensor = expected->find(name);
    EXPECT_NE(tensor, nullptr) << name;
    std::vector<float> values(tensor->bytes / 4);
    std::memcpy(values.data(), tensor->data(), tensor->bytes);
    return values;
  }
};

//===----------------------------------------------------------------------===//
// As written
//===----------------------------------------------------------------------===//

/// Logits of the graph for a batch without a cache.
std::vector<double> runGraph(onnx::GraphOp graph, int64_t batch,
                             const std::vector<int64_t> &ids,
                             const std::vector<int64_t> &mask) {
  int64_t tokens = static_cast<int64_t>(ids.size()) / batch;
  SmallVector<onnx::Tensor> inputs;
  for (auto [arg, name] :
       llvm::zip(graph.getBody().front().getArguments(), graph.getInputs())) {
    auto type = cast<RankedTensorType>(arg.getType());
    StringRef text = cast<StringAttr>(name).getValue();
    std::vector<int64_t> values(ids.size());
    if (text == "input_ids") {
      values = ids;
    } else if (text == "attention_mask") {
      values = mask;
    } else if (text == "position_ids") {
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t t = 0, next = 0; t < tokens; ++t)
          values[b * tokens + t] = mask[b * tokens + t] ? next++ : -1;
    } else if (type.getRank() == 4) {
      inputs.push_back(
          onnx::Tensor(type.getElementType(),
                       {batch, type.getDimSize(1), 0, type.getDimSize(3)}));
      continue;
    } else {
      inputs.push_back(onnx::Tensor(type.getElementType(), {1}));
      continue; // use_cache_branch: false
    }
    inputs.push_back(onnx::Tensor::ofInts(type.getElementType(),
                                          {batch, tokens}, std::move(values)));
  }
  auto outputs = onnx::evaluate(graph, inputs);
  if (!outputs) {
    ADD_FAILURE() << llvm::toString(outputs.takeError());
    return {};
  }
  return (*outputs)[0].floats();
}

TEST_P(ExportsTest, GraphAsWrittenGivesTheLogitsOfPyTorch) {
  if (std::string(GetParam().file) == "decoder_with_past_model.onnx")
    GTEST_SKIP() << "it takes one token after others, not a prompt";
  auto graph = *module->getOps<onnx::GraphOp>().begin();
  std::vector<int64_t> ids = integers("single.input_ids");
  std::vector<double> found =
      runGraph(graph, 1, ids, std::vector<int64_t>(ids.size(), 1));
  std::vector<float> logits = floats("single.logits");
  ASSERT_EQ(found.size(), logits.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i)
    worst = std::max(worst, std::abs(found[i] - logits[i]));
  EXPECT_LT(worst, GetParam().tolerance);
}

TEST_P(ExportsTest, GraphAsWrittenHeedsPadding) {
  auto graph = *module->getOps<onnx::GraphOp>().begin();
  if (!llvm::is_contained(graph.getInputs(),
                          StringAttr::get(&context, "attention_mask")) ||
      std::string(GetParam().file) == "decoder_with_past_model.onnx")
    GTEST_SKIP() << "it takes no mask, or no prompt";
  std::vector<int64_t> ids = integers("left_padded.input_ids");
  std::vector<int64_t> mask = integers("left_padded.attention_mask");
  std::vector<double> found = runGraph(graph, 3, ids, mask);
  std::vector<float> logits = floats("left_padded.logits");
  ASSERT_EQ(found.size(), logits.size());
  size_t vocabulary = logits.size() / ids.size();
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i)
    if (mask[i / vocabulary])
      worst = std::max(worst, std::abs(found[i] - logits[i]));
  EXPECT_LT(worst, GetParam().tolerance);
}

//===----------------------------------------------------------------------===//
// Raised
//===----------------------------------------------------------------------===//

TEST_P(ExportsTest, RaisedStepGivesTheLogitsOfPyTorchTokenByToken) {
  ASSERT_TRUE(succeeded(raise(*module)));
  std::vector<int64_t> ids = integers("single.input_ids");
  std::vector<float> logits = floats("single.logits");
  Decoder decoder(*module);
  size_t vocabulary = logits.size() / ids.size();
  for (size_t t = 0; t < ids.size(); ++t) {
    std::vector<double> found = decoder.next(ids[t]);
    ASSERT_EQ(found.size(), vocabulary);
    double worst = 0;
    for (size_t i = 0; i < vocabulary; ++i)
      worst = std::max(worst, std::abs(found[i] - logits[t * vocabulary + i]));
    EXPECT_LT(worst, GetParam().tolerance) << "token " << t;
  }
}

TEST_P(ExportsTest, RaisedStepContinuesAPromptAsPyTorchDoes) {
  ASSERT_TRUE(succeeded(raise(*module)));
  std::vector<int64_t> tokens = integers("greedy.tokens");
  constexpr size_t kGenerated = 24;
  ASSERT_GT(tokens.size(), kGenerated);
  Decoder decoder(*module);
  // The prompt at once, then one token a step.
  ArrayRef<int64_t> given = ArrayRef(tokens).drop_back(kGenerated);
  for (size_t n = given.size(); n < tokens.size(); ++n) {
    std::vector<double> logits = decoder.next(given);
    ASSERT_FALSE(logits.empty());
    auto best = std::max_element(logits.begin(), logits.end());
    ASSERT_EQ(best - logits.begin(), tokens[n]) << "token " << n;
    given = ArrayRef(tokens).slice(n, 1);
  }
}

TEST_P(ExportsTest, RaisedModuleStatesTheFactsOfTheModel) {
  ASSERT_TRUE(succeeded(raise(*module)));
  auto facts = getModelFacts(*module);
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  auto json = readJsonFile(folder + "/model_facts.json");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(facts->vocabSize, (*json)["vocab_size"]);
  EXPECT_EQ(facts->hiddenSize, (*json)["hidden_size"]);
  EXPECT_EQ(facts->layers, (*json)["num_hidden_layers"]);
  EXPECT_EQ(facts->heads, (*json)["num_attention_heads"]);
  EXPECT_EQ(facts->maxSeq, (*json)["max_position_embeddings"]);
  EXPECT_EQ(facts->ffnDim.front(), (*json)["ffn_dim"]);
  bool pruned = std::string(GetParam().folder) == "mixed_layer_widths_pruned";
  EXPECT_EQ(facts->ffnDim.back(),
            int64_t((*json)["ffn_dim"]) - (pruned ? 32 : 0));
}

/// A graph with wrong bytes is refused, or means what it says; it never crashes
/// the compiler.
TEST(DamagedExportTest, FlippedBytesNeverCrashRaising) {
  const std::string path =
      FORESIGHT_SOURCE_DIR "/test/fixtures/exports/optimum_past/model.onnx";
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  // The weights, which nothing looks at, are most of the file.
  const size_t graph = whole.rfind("/decoder/Shape");
  ASSERT_NE(graph, std::string::npos);
  test::TempFolder folder;
  MLIRContext context;
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) {});
  std::mt19937 random(23);
  int raised = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    size_t at =
        i % 2 ? random() % graph : graph + random() % (whole.size() - graph);
    damaged[at] = static_cast<char>(random());
    auto module = importOnnx(context, folder.write("model.onnx", damaged));
    if (failed(module))
      continue;
    (succeeded(raise(**module)) ? raised : refused) += 1;
  }
  EXPECT_GT(raised, 0);
  EXPECT_GT(refused, 0);
}

constexpr const char *kModel = "model.onnx";
INSTANTIATE_TEST_SUITE_P(
    All, ExportsTest,
    testing::Values(
        Export{"optimum_past", kModel}, Export{"optimum_past_opset14", kModel},
        Export{"optimum_nopast", kModel}, Export{"optimum_350m_like", kModel},
        Export{"optimum_headdim80", kModel, 5e-5},
        Export{"optimum_gelu", kModel}, Export{"ts_ids_only_op17", kModel},
        Export{"ts_op14", kModel}, Export{"ts_fp16_op17", kModel, 2e-2},
        Export{"dynamo_eager", kModel}, Export{"dynamo_sdpa_external", kModel},
        Export{"old_optimum_merged", "decoder_model.onnx"},
        Export{"old_optimum_merged", "decoder_with_past_model.onnx"},
        Export{"old_optimum_merged", "decoder_model_merged.onnx"},
        Export{"old_by_hand_op12", kModel}, Export{"tf5_dynamo", kModel},
        Export{"mixed_layer_widths_pruned", kModel}),
    [](const testing::TestParamInfo<Export> &info) {
      std::string name = info.param.folder;
      if (std::string(info.param.file) != kModel)
        name += std::string("_") + info.param.file;
      for (char &c : name)
        c = c == '.' ? '_' : c;
      return name;
    });

} // namespace
