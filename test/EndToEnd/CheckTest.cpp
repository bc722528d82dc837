//===- CheckTest.cpp - foresight-compile --check --------------------------===//
//
// What the model is goes to standard output; what is wrong with it is the error
// that compiling gives, with its exit code. Nothing is written.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

using namespace foresight::test;

namespace {

ProcessResult check(const std::string &input, const std::string &folder = "") {
  ProcessOptions options;
  options.folder = folder;
  return run({tool("foresight-compile"), "--check", input}, options);
}

/// Each of `parts`, in this order.
void expectParts(const std::string &text,
                 const std::vector<std::string> &parts) {
  size_t at = 0;
  for (const std::string &part : parts) {
    size_t found = text.find(part, at);
    EXPECT_NE(found, std::string::npos) << "'" << part << "' is not in:\n"
                                        << text;
    if (found != std::string::npos)
      at = found + part.size();
  }
}

std::string exported(const std::string &name) {
  return source("test/fixtures/exports/" + name);
}

TEST(Check, SaysWhatAnOnnxModelIs) {
  TemporaryFolder here;
  ProcessResult result =
      check(exported("optimum_past/model.onnx"), here.path());
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  expectParts(result.output,
              {"opset 18", "exporter", "pytorch", "36 tensors",
               "input_ids i64 [?, ?]", "outputs     logits",
               "2 layers, hidden size 32, 2 heads of 16, MLP 128", "in f32",
               "2 attentions, 5 LayerNorms", "tied to the embedding",
               "activation relu", "exact and predicted", "tokenizer   none",
               "can be compiled"});
  EXPECT_EQ(here.names(), std::vector<std::string>());
}

TEST(Check, SaysWhatAFolderIs) {
  ProcessResult result = check(source("examples/opt-mini"));
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  expectParts(result.output, {"Hugging Face", "exporter    transformers",
                              "in 3 files", "opt-mini: OPT, 8 layers", "in f16",
                              "tokenizer.json, ids below", "can be compiled"});
}

TEST(Check, TellsVariantsApart) {
  expectParts(check(exported("optimum_350m_like/model.onnx")).output,
              {"4 LayerNorms", "LayerNorm after", "project_in"});
  expectParts(check(exported("optimum_gelu/model.onnx")).output,
              {"activation gelu", "sparsity    none", "can be compiled"});
  expectParts(check(exported("mixed_layer_widths_pruned/model.onnx")).output,
              {"MLP 128, 96", "from layer 1"});
  expectParts(check(source("test/fixtures/huggingface/no_bias")).output,
              {"without weights", "without biases"});
}

TEST(Check, KnowsOperatorsThatStandForOthers) {
  for (const char *name : {"fused_attention", "quantized_4bits", "ort_all"}) {
    ProcessResult result =
        check(source(std::string("test/fixtures/kinds/") + name + ".onnx"));
    EXPECT_EQ(result.exitCode, 0) << result.errors;
    EXPECT_EQ(result.output.find("unknown"), std::string::npos)
        << result.output;
    expectParts(result.output, {"1 attention", "can be compiled"});
  }
}

TEST(Check, ListsEveryUnsupportedNodeAndWhatToChange) {
  ProcessResult result = check(exported("ort_dynamic_quant/model.onnx"));
  EXPECT_EQ(result.exitCode, 4);
  expectParts(result.output,
              {"onnx.quantize", "MatMulInteger x 12:", "q_proj/MatMul_quant",
               "layers.1/fc2/Gemm_MatMul_quant", "cannot be compiled",
               "before quantisation", "optimum-cli export onnx"});
  expectParts(result.errors,
              {"foresight-compile: error: ", "MatMulInteger", "12 nodes"});
}

TEST(Check, AHeadThatIsMissingCanBeTheEmbedding) {
  const std::string features = source("test/fixtures/onnx/ts_feat.onnx");
  ProcessResult refused = check(features);
  EXPECT_EQ(refused.exitCode, 4);
  expectParts(refused.output, {"cannot be compiled", "--tie-head"});
  expectParts(refused.errors, {"has no head (lm_head)", "--tie-head"});
  ProcessResult tied =
      run({tool("foresight-compile"), "--check", "--tie-head", features});
  EXPECT_EQ(tied.exitCode, 0) << tied.errors;
  expectParts(tied.output, {"head tied to the embedding", "can be compiled"});
  // Where it would do nothing it is an error.
  EXPECT_EQ(run({tool("foresight-compile"), "--check", "--tie-head",
                 source("examples/opt-mini")})
                .exitCode,
            2);
}

TEST(Check, HasTheExitCodeOfTheError) {
  TemporaryFolder folder;
  EXPECT_EQ(check(folder / "no.onnx").exitCode, 3);
  writeFile(folder / "text.onnx", "no model");
  ProcessResult damaged = check(folder / "text.onnx");
  EXPECT_EQ(damaged.exitCode, 3);
  expectParts(damaged.errors, {"text.onnx", "is not an ONNX model"});
  writeFile(folder / "config.json", "{\"model_type\": \"llama\"}");
  ProcessResult other = check(folder.path());
  EXPECT_EQ(other.exitCode, 4);
  expectParts(other.output, {"Hugging Face", "cannot be compiled"});
  EXPECT_EQ(run({tool("foresight-compile"), "--check", "-o", "x",
                 exported("optimum_past/model.onnx")})
                .exitCode,
            2);
}

TEST(Check, WarnsOfATokenizerThatCannotBeUsed) {
  TemporaryFolder folder;
  fs::copy(exported("optimum_past/model.onnx"), folder / "model.onnx");
  writeFile(folder / "tokenizer.json", "{");
  ProcessResult result = check(folder / "model.onnx");
  EXPECT_EQ(result.exitCode, 3);
  expectParts(result.output,
              {"tokenizer   cannot be used: ", "cannot be compiled"});
  writeFile(folder / "tokenizer.json", R"({"model": {"type": "Unigram"}})");
  result = check(folder / "model.onnx");
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  expectParts(result.output,
              {"tokenizer   not used: ", "token ids only", "can be compiled"});
}

} // namespace
