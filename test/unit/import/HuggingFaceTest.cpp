//===- HuggingFaceTest.cpp - Model folders to @step -----------------------===//

#include "foresight/Import/HuggingFace/ImportHuggingFace.h"

#include "SafetensorsWriter.h"
#include "TempFolder.h"

#include "foresight/Dialect/Foresight.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

using namespace mlir;
using namespace foresight;
using namespace foresight::test;
using testing::HasSubstr;

namespace {

/// A small model folder whose parts a test may change before it is written.
struct ModelFolder {
  std::string prefix = "model.decoder.";
  std::map<std::string, std::vector<int64_t>> tensors;
  Json config = {{"model_type", "opt"},
                 {"vocab_size", 40},
                 {"hidden_size", 16},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 2},
                 {"ffn_dim", 32},
                 {"max_position_embeddings", 24}};
  float headValue = 0.5f; ///< all other tensors have 0.5
  TempFolder folder;

  ModelFolder() {
    tensors["embed_tokens.weight"] = {40, 16};
    tensors["embed_positions.weight"] = {26, 16};
    addNorm("final_layer_norm");
    for (int layer = 0; layer < 2; ++layer) {
      const std::string name = "layers." + std::to_string(layer);
      for (const char *part : {"q_proj", "k_proj", "v_proj", "out_proj"})
        addLinear(name + ".self_attn." + part, 16, 16);
      addLinear(name + ".fc1", 32, 16);
      addLinear(name + ".fc2", 16, 32);
      addNorm(name + ".self_attn_layer_norm");
      addNorm(name + ".final_layer_norm");
    }
  }
  void addLinear(const std::string &name, int64_t out, int64_t in) {
    tensors[name + ".weight"] = {out, in};
    tensors[name + ".bias"] = {out};
  }
  void addNorm(const std::string &name) {
    tensors[name + ".weight"] = {16};
    tensors[name + ".bias"] = {16};
  }
  void drop(const std::string &end) {
    std::erase_if(
        tensors, [&](const auto &entry) { return entry.first.ends_with(end); });
  }

  Result<OwningOpRef<ModuleOp>> import(MLIRContext &context,
                                       const ImportOptions &options = {}) {
    SafetensorsWriter writer;
    for (const auto &[name, shape] : tensors)
      writer.add(
          name == "lm_head.weight" ? name : prefix + name, shape,
          std::vector<float>(*elementCount(shape),
                             name == "lm_head.weight" ? headValue : 0.5f));
    folder.write("model.safetensors", writer.bytes());
    folder.write("config.json", dumpJson(config));
    return importHuggingFace(context, folder.str(), options);
  }
};

class HuggingFaceTest : public testing::Test {
protected:
  OwningOpRef<ModuleOp> import(const ImportOptions &options = {}) {
    auto module = model.import(context, options);
    EXPECT_TRUE(module.ok()) << module.error().message;
    return module.ok() ? std::move(*module) : nullptr;
  }
  void expectError(ErrorCode code, const std::string &message,
                   const ImportOptions &options = {}) {
    auto module = model.import(context, options);
    ASSERT_FALSE(module.ok()) << "expected: " << message;
    EXPECT_EQ(module.error().code, code);
    EXPECT_THAT(module.error().message, HasSubstr(message));
  }

  template <typename OpT> static int64_t count(ModuleOp module) {
    int64_t found = 0;
    module.walk([&](OpT) { ++found; });
    return found;
  }
  static std::string print(Operation *op) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    op->print(stream);
    return text;
  }

  ModelFolder model;
  MLIRContext context;
};

TEST_F(HuggingFaceTest, TheExampleBecomesAStep) {
  auto module =
      importHuggingFace(context, FORESIGHT_SOURCE_DIR "/examples/opt-mini/");
  ASSERT_TRUE(module.ok()) << module.error().message;
  auto step = (*module)->lookupSymbol<func::FuncOp>("step");
  ASSERT_TRUE(step);
  EXPECT_THAT(print(step.getOperation()),
              HasSubstr("(%arg0: tensor<?xi32>, %arg1: tensor<?xi32>, %arg2: "
                        "!foresight.kv_cache<6 x 64, 1024, f16>"));
  EXPECT_EQ(step.getFunctionType().getNumResults(), 9u);
  EXPECT_EQ(count<LinearOp>(**module), 8 * 6 + 1);
  EXPECT_EQ(count<LayerNormOp>(**module), 8 * 2 + 1);
  auto facts = getModelFacts(**module);
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_EQ(facts->name, "opt-mini");
  EXPECT_EQ(facts->dtype, "f16");
  EXPECT_EQ(facts->ffnDim, std::vector<int64_t>(8, 1536));
  EXPECT_EQ(facts->maxSeq, 1024);
  EXPECT_EQ(facts->parameters, 17736192);
  EXPECT_FALSE(facts->synthetic);
}

TEST_F(HuggingFaceTest, EveryPrefixGivesTheSameStep) {
  std::string expected;
  for (const char *prefix : {"model.decoder.", "decoder.", "",
                             "_orig_mod.model.decoder.", "module.decoder."}) {
    model.prefix = prefix;
    OwningOpRef<ModuleOp> module = import();
    ASSERT_TRUE(module);
    const std::string step = print(module->lookupSymbol("step"));
    if (expected.empty())
      expected = step;
    EXPECT_EQ(step, expected) << prefix;
  }
}

TEST_F(HuggingFaceTest, AHeadOfItsOwnIsUsed) {
  model.tensors["lm_head.weight"] = {40, 16};
  OwningOpRef<ModuleOp> module = import();
  ASSERT_TRUE(module);
  EXPECT_TRUE(module->lookupSymbol("lm_head.weight"));
  EXPECT_EQ(getModelFacts(*module)->parameters,
            40 * 16 * 2 + 26 * 16 + 32 +
                2 * (4 * (256 + 16) + 512 + 32 + 512 + 16 + 64));
}

TEST_F(HuggingFaceTest, ATiedHeadThatDiffersIsUsedWithAWarning) {
  model.tensors["lm_head.weight"] = {40, 16};
  std::vector<std::string> warnings;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    warnings.push_back(diagnostic.str());
    return success();
  });
  EXPECT_TRUE(import());
  EXPECT_TRUE(warnings.empty()) << warnings.front();
  model.headValue = 0.25f;
  OwningOpRef<ModuleOp> module = import();
  ASSERT_TRUE(module);
  EXPECT_TRUE(module->lookupSymbol("lm_head.weight"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("tie_word_embeddings is true"));
  // Said to be of its own, it may differ.
  model.config["tie_word_embeddings"] = false;
  EXPECT_TRUE(import());
  EXPECT_EQ(warnings.size(), 1u);
}

TEST_F(HuggingFaceTest, AHeadStandsInForTheEmbeddingItIsTiedTo) {
  model.tensors["lm_head.weight"] = {40, 16};
  model.tensors.erase("embed_tokens.weight");
  OwningOpRef<ModuleOp> module = import();
  ASSERT_TRUE(module);
  EXPECT_FALSE(module->lookupSymbol("lm_head.weight"));
  EXPECT_THAT(print(module->lookupSymbol("embed_tokens.weight")),
              HasSubstr("tensor<40x16xf32>"));
  model.config["tie_word_embeddings"] = false;
  expectError(ErrorCode::BadInput, "embed_tokens.weight' is missing");
}

TEST_F(HuggingFaceTest, TwoModelsInAFolderAreAnError) {
  model.tensors["other.embed_positions.weight"] = {26, 16};
  expectError(ErrorCode::BadInput, "holds 2 models");
}

TEST_F(HuggingFaceTest, AMissingFinalNormSaysHowToLeaveItOut) {
  model.tensors.erase("final_layer_norm.weight");
  model.tensors.erase("final_layer_norm.bias");
  expectError(ErrorCode::BadInput, "\"_remove_final_layer_norm\": true");
  model.config["_remove_final_layer_norm"] = true;
  OwningOpRef<ModuleOp> module = import();
  ASSERT_TRUE(module);
  EXPECT_EQ(count<LayerNormOp>(*module), 4);
}

TEST_F(HuggingFaceTest, AMissingHeadThatIsNotTiedIsAnError) {
  model.config["tie_word_embeddings"] = false;
  expectError(ErrorCode::BadInput, "'lm_head.weight' is missing");
}

TEST_F(HuggingFaceTest, PostNormWithProjectionsIsAs350m) {
  model.config["do_layer_norm_before"] = false;
  model.config["word_embed_proj_dim"] = 8;
  model.tensors["embed_tokens.weight"] = {40, 8};
  model.tensors["project_in.weight"] = {16, 8};
  model.tensors["project_out.weight"] = {8, 16};
  model.tensors.erase("final_layer_norm.weight");
  model.tensors.erase("final_layer_norm.bias");
  OwningOpRef<ModuleOp> module = import();
  ASSERT_TRUE(module);
  EXPECT_EQ(count<LayerNormOp>(*module), 4);
  EXPECT_EQ(count<LinearOp>(*module), 2 * 6 + 3);
  // Each norm reads a residual sum.
  module->walk([](LayerNormOp norm) {
    EXPECT_TRUE(norm.getX().getDefiningOp<AddOp>());
  });
}

TEST_F(HuggingFaceTest, ModelsWithoutBiasesOrAffineNorms) {
  model.config["enable_bias"] = false;
  model.config["layer_norm_elementwise_affine"] = false;
  model.config["activation_function"] = "gelu";
  for (const char *end :
       {"proj.bias", "fc1.bias", "fc2.bias", "norm.weight", "norm.bias"})
    model.drop(end);
  OwningOpRef<ModuleOp> module = import();
  ASSERT_TRUE(module);
  module->walk([](LinearOp op) { EXPECT_FALSE(op.getBias()); });
  module->walk([](LayerNormOp op) { EXPECT_FALSE(op.getGamma()); });
  module->walk(
      [](ActivationOp op) { EXPECT_EQ(op.getActivation(), Activation::Gelu); });
}

TEST_F(HuggingFaceTest, LayersMayHaveWidthsOfTheirOwn) {
  model.addLinear("layers.1.fc1", 24, 16);
  model.addLinear("layers.1.fc2", 16, 24);
  OwningOpRef<ModuleOp> module = import();
  ASSERT_TRUE(module);
  EXPECT_EQ(getModelFacts(*module)->ffnDim, (std::vector<int64_t>{32, 24}));
}

TEST_F(HuggingFaceTest, OptionsChooseElementsAndCapacity) {
  OwningOpRef<ModuleOp> module = import({ElementType::BF16, 12});
  ASSERT_TRUE(module);
  EXPECT_THAT(print(module->lookupSymbol("step")),
              HasSubstr("!foresight.kv_cache<2 x 8, 12, bf16>"));
  EXPECT_THAT(print(module->lookupSymbol("layers.0.fc1.weight")),
              HasSubstr("tensor<32x16xbf16>"));
  EXPECT_THAT(print(module->lookupSymbol("layers.0.fc1.bias")),
              HasSubstr("tensor<32xf32>"));
  EXPECT_EQ(getModelFacts(*module)->dtype, "bf16");
  expectError(ErrorCode::Usage, "has 24 positions", {{}, 25});
}

TEST_F(HuggingFaceTest, GenerationConfigHasTheLastWordOnIds) {
  model.config["eos_token_id"] = 5;
  model.folder.write("generation_config.json",
                     R"({"eos_token_id": [7, 8], "bos_token_id": 3})");
  OwningOpRef<ModuleOp> module = import();
  ASSERT_TRUE(module);
  auto facts = getModelFacts(*module);
  EXPECT_EQ(facts->eosTokenIds, (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(facts->bosTokenId, 3);
  EXPECT_EQ(facts->padTokenId, 1);
  // Null is no end at all, and nothing said is what config.json says.
  for (const auto &[text, expected] :
       {std::pair(R"({"eos_token_id": null})", std::vector<int64_t>()),
        std::pair(R"({})", std::vector<int64_t>{5})}) {
    model.folder.write("generation_config.json", text);
    module = import();
    ASSERT_TRUE(module);
    EXPECT_EQ(getModelFacts(*module)->eosTokenIds, expected);
  }
}

TEST_F(HuggingFaceTest, OtherFamiliesAreRefused) {
  model.config["model_type"] = "llama";
  expectError(ErrorCode::Unsupported, "model_type is 'llama'");
  model.config["model_type"] = "opt";
  model.config["architectures"] = {"OPTForSequenceClassification"};
  expectError(ErrorCode::Unsupported, "OPTForSequenceClassification");
  model.config.erase("architectures");
  model.config["activation_function"] = "swish";
  expectError(ErrorCode::Unsupported, "'swish'");
  model.config.erase("activation_function");
  model.config["quantization_config"] = {{"bits", 4}};
  expectError(ErrorCode::Unsupported, "quantised");
}

TEST_F(HuggingFaceTest, ErrorsNameTensorAndShapes) {
  model.tensors["layers.1.fc2.weight"] = {32, 16};
  expectError(ErrorCode::BadInput,
              "tensor 'model.decoder.layers.1.fc2.weight' has shape [32, 16] "
              "but config.json asks for [16, 32]");
  model.tensors.erase("layers.1.fc2.weight");
  expectError(ErrorCode::BadInput,
              "'model.decoder.layers.1.fc2.weight' is missing");
}

TEST_F(HuggingFaceTest, TensorsWithoutAPlaceAreAnError) {
  model.config["_remove_final_layer_norm"] = true;
  expectError(ErrorCode::BadInput,
              "'model.decoder.final_layer_norm.bias' has no place");
  model.config.erase("_remove_final_layer_norm");
  model.config["num_hidden_layers"] = 1;
  expectError(ErrorCode::BadInput, "belongs to layer 1");
}

TEST_F(HuggingFaceTest, ConfigsThatContradictThemselvesAreErrors) {
  model.config["num_attention_heads"] = 3;
  expectError(ErrorCode::BadInput, "not a multiple of 3 heads");
  model.config["num_attention_heads"] = 0;
  expectError(ErrorCode::BadInput, "\"num_attention_heads\" is 0");
  model.config["num_attention_heads"] = "two";
  expectError(ErrorCode::BadInput, "must be a whole number");
  model.config["num_attention_heads"] = 2;
  model.config["num_hidden_layers"] = 5000;
  expectError(ErrorCode::BadInput, "\"num_hidden_layers\" is 5000");
}

/// As large as a config may say: counted without overflow, and soon.
TEST_F(HuggingFaceTest, TheLargestConfigIsReadInSeconds) {
  context.loadDialect<ForesightDialect>();
  const int64_t largest = 1 << 24;
  const Json config = {
      {"num_hidden_layers", 4096}, {"hidden_size", largest},
      {"num_attention_heads", 1},  {"ffn_dim", largest},
      {"vocab_size", largest},     {"max_position_embeddings", largest}};
  auto parsed = OptConfig::parse(config, "config.json");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ImportOptions options;
  options.dtype = ElementType::F16;
  auto source =
      [&](const std::string &name,
          llvm::ArrayRef<int64_t>) -> Result<std::optional<WeightSource>> {
    mlir::Builder b(&context);
    return std::optional<WeightSource>(
        {SyntheticAttr::get(&context, 1, b.getF64FloatAttr(0),
                            b.getF64FloatAttr(1)),
         name});
  };
  auto module = buildOptStep(context, *parsed, options, source, {});
  ASSERT_TRUE(module.ok()) << module.error().message;
  EXPECT_GT(getModelFacts(**module)->parameters, int64_t{1} << 62);
}

TEST_F(HuggingFaceTest, PickledWeightsAreRefusedWithTheWayOut) {
  TempFolder folder;
  folder.write("config.json", dumpJson(model.config));
  folder.write("pytorch_model.bin", "PK");
  auto module = importHuggingFace(context, folder.str());
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.error().code, ErrorCode::Unsupported);
  EXPECT_THAT(module.error().message, HasSubstr("save_pretrained"));
  EXPECT_THAT(module.error().message, HasSubstr("pytorch_model.bin"));
}

TEST_F(HuggingFaceTest, AFolderWithoutAModelIsAnError) {
  TempFolder folder;
  auto module = importHuggingFace(context, folder.str());
  ASSERT_FALSE(module.ok());
  EXPECT_THAT(module.error().message, HasSubstr("has no config.json"));
  folder.write("config.json", dumpJson(model.config));
  module = importHuggingFace(context, folder.str());
  ASSERT_FALSE(module.ok());
  EXPECT_THAT(module.error().message, HasSubstr("no *.safetensors"));
}

} // namespace
