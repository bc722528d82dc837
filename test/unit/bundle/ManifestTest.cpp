//===- ManifestTest.cpp - What the manifest says of a scheduled module ----===//

#include "foresight/Target/Bundle/Manifest.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace foresight;
using namespace mlir;

namespace {

class ManifestTest : public testing::Test {
protected:
  ManifestTest() {
    context.loadDialect<ForesightDialect, func::FuncDialect>();
    module = parseSourceFile<ModuleOp>(
        FORESIGHT_SOURCE_DIR "/test/fixtures/bundle/scheduled.mlir", &context);
    if (!module)
      return;
    for (auto kernel : module->getOps<KernelOp>()) {
      KernelInfo info;
      info.units = 3;
      info.grain = 2;
      info.hasPrepare = true;
      info.scratchBytes = 256;
      info.weightBytes = 1000;
      if (kernel.getSymName() == "fc1_sparse") {
        info.hasCounts = true;
        info.countBytes = 128;
      }
      inputs.kernels[kernel.getSymName()] = info;
    }
    uint64_t offset = 0;
    for (const char *name : {"embed", "fc1", "b1", "gamma", "copy", "fc2"}) {
      PackedWeight weight;
      weight.name = name;
      weight.offset = offset;
      weight.bytes = 64;
      weight.element = "f16";
      weight.shape = {4, 8};
      weight.tensors = {std::string("t.") + name};
      offset += 64;
      inputs.weights.push_back(weight);
    }
    inputs.weights[4].element = "low_bit";
    inputs.weights[4].bits = 4;
    inputs.variants = {{"x86-64-v3", "haswell", {"avx2", "fma"}, 8}};
    inputs.options = {{"sparsity", "exact"}};
    inputs.model["source"] = "m.onnx";
  }

  OrderedJson build() {
    EXPECT_TRUE(module);
    FailureOr<OrderedJson> manifest = buildManifest(*module, inputs);
    EXPECT_TRUE(succeeded(manifest));
    return succeeded(manifest) ? *manifest : OrderedJson::object();
  }
  /// The error that building the manifest reports.
  std::string refusal() {
    std::string text;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      text += diagnostic.str();
      return success();
    });
    EXPECT_TRUE(failed(buildManifest(*module, inputs)));
    return text;
  }
  static int64_t find(const OrderedJson &list, const std::string &name) {
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i]["name"] == name)
        return i;
    ADD_FAILURE() << "no " << name;
    return 0;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  ManifestInputs inputs;
};

TEST_F(ManifestTest, FactsOfTheModuleAndOfTheDriverAreMerged) {
  OrderedJson m = build();
  EXPECT_EQ(m["format"], 1);
  EXPECT_EQ(m["model"]["family"], "opt");
  EXPECT_EQ(m["model"]["vocab_size"], 40);
  EXPECT_EQ(m["model"]["ffn_dim"], OrderedJson::array({96}));
  EXPECT_EQ(m["model"]["synthetic"], false);
  EXPECT_EQ(m["model"]["source"], "m.onnx");
  EXPECT_EQ(m["options"]["sparsity"], "exact");
  EXPECT_EQ(m["target"]["variants"][0]["name"], "x86-64-v3");
  EXPECT_EQ(m["target"]["variants"][0]["features"],
            OrderedJson({"avx2", "fma"}));
}

TEST_F(ManifestTest, WeightsAreListedAsTheyWerePacked) {
  OrderedJson m = build();
  ASSERT_EQ(m["weights"].size(), 6u);
  auto &fc1 = m["weights"][1];
  EXPECT_EQ(fc1["name"], "fc1");
  EXPECT_EQ(fc1["element"], "f16");
  EXPECT_EQ(fc1["shape"], OrderedJson({4, 8}));
  EXPECT_EQ(fc1["offset"], 64);
  EXPECT_EQ(fc1["bytes"], 64);
  EXPECT_EQ(fc1["tensors"], OrderedJson::array({"t.fc1"}));
  EXPECT_FALSE(fc1.contains("bits"));
  EXPECT_EQ(m["weights"][4]["bits"], 4);
}

TEST_F(ManifestTest, BuffersSayWhatLiesInThem) {
  OrderedJson m = build();
  auto &h = m["buffers"][find(m["buffers"], "h")];
  EXPECT_EQ(h["kind"], "work");
  EXPECT_EQ(h["element"], "f32");
  EXPECT_EQ(h["columns"], 96);
  EXPECT_EQ(h["row_bytes"], 384);
  EXPECT_EQ(h["offset"], 4096);
  EXPECT_EQ(m["arena_bytes"], 10240 + 16 * 256);
  auto &ids = m["buffers"][find(m["buffers"], "ids")];
  EXPECT_EQ(ids["element"], "i32");
  EXPECT_EQ(ids["columns"], 1);
  auto &kv = m["buffers"][find(m["buffers"], "kv")];
  EXPECT_EQ(kv["kv"]["heads"], 2);
  EXPECT_EQ(kv["kv"]["head_dim"], 32);
  EXPECT_EQ(kv["kv"]["capacity"], 64);
}

TEST_F(ManifestTest, StagesNameTheirArgumentsResultsAndOrder) {
  OrderedJson m = build();
  auto &decode = m["entries"]["decode"];
  EXPECT_EQ(decode["max_tokens"], 1);
  EXPECT_EQ(m["entries"]["prefill"]["max_tokens"], 16);
  EXPECT_EQ(decode["inputs"]["ids"], find(m["buffers"], "ids"));
  EXPECT_EQ(decode["inputs"]["positions"], find(m["buffers"], "positions"));
  EXPECT_EQ(decode["outputs"]["logits"], find(m["buffers"], "logits"));
  ASSERT_EQ(decode["stages"].size(), 4u);

  auto &fc1 = decode["stages"][1];
  EXPECT_EQ(fc1["name"], "layers.0.fc1");
  EXPECT_EQ(fc1["role"], "fc1");
  EXPECT_EQ(fc1["layer"], 0);
  EXPECT_EQ(m["kernels"][fc1["kernel"].get<int>()]["name"], "fc1_sparse");
  EXPECT_EQ(fc1["args"], OrderedJson({{{"buffer", find(m["buffers"], "x")}},
                                      {{"weight", find(m["weights"], "gamma")}},
                                      {{"weight", find(m["weights"], "copy")}},
                                      {{"weight", find(m["weights"], "fc1")}},
                                      {{"weight", find(m["weights"], "b1")}},
                                      {{"buffer", find(m["buffers"], "h")}}}));
  EXPECT_EQ(fc1["after"], OrderedJson::array({0}));
  EXPECT_EQ(fc1["units"], 3);
  EXPECT_EQ(fc1["grain"], 2);
  EXPECT_EQ(fc1["weight_bytes"], 1000);
  EXPECT_EQ(fc1["count_bytes"], 128);
  EXPECT_EQ(fc1["sources"], OrderedJson({"LayerNorm_1", "MatMul_2"}));
  auto &counts = m["buffers"][fc1["counts"].get<int>()];
  EXPECT_EQ(counts["element"], "i32");
  EXPECT_EQ(counts["columns"], 3);
  EXPECT_EQ(counts["rows"], 1);
  EXPECT_EQ(decode["stages"][2]["counts"], -1);
  EXPECT_EQ(decode["stages"][0]["layer"], -1);
}

TEST_F(ManifestTest, LibraryProductsAreDescribed) {
  OrderedJson m = build();
  auto &stages = m["entries"]["prefill"]["stages"];
  auto &fc1 = stages[1]["gemm"];
  EXPECT_EQ(fc1["n"], 96);
  EXPECT_EQ(fc1["k"], 64);
  EXPECT_EQ(fc1["layout"], "out_in");
  EXPECT_EQ(fc1["x"], find(m["buffers"], "x"));
  EXPECT_EQ(fc1["weight"], find(m["weights"], "fc1"));
  EXPECT_EQ(fc1["bias"], find(m["weights"], "b1"));
  EXPECT_EQ(fc1["residual"], -1);
  EXPECT_EQ(fc1["activation"], "relu");
  EXPECT_EQ(fc1["out"], find(m["buffers"], "h"));
  auto &fc2 = stages[2]["gemm"];
  EXPECT_EQ(fc2["n"], 64);
  EXPECT_EQ(fc2["k"], 96);
  EXPECT_EQ(fc2["layout"], "in_out");
  EXPECT_EQ(fc2["residual"], find(m["buffers"], "x"));
  EXPECT_EQ(fc2["activation"], "none");
  auto &kernel = m["kernels"][stages[1]["kernel"].get<int>()];
  EXPECT_EQ(kernel["library"], "gemm");
  EXPECT_EQ(kernel["has_prepare"], false);
}

TEST_F(ManifestTest, SelectionsNameBothWaysOfAnMlp) {
  OrderedJson m = build();
  ASSERT_EQ(m["selections"].size(), 1u);
  auto &s = m["selections"][0];
  EXPECT_EQ(s["layer"], 0);
  EXPECT_EQ(s["stage"], 1);
  EXPECT_EQ(s["dense_stage"], 1);
  EXPECT_EQ(s["activations"], find(m["buffers"], "h"));
  EXPECT_EQ(s["input"], find(m["buffers"], "x"));
  EXPECT_EQ(s["neurons"], 96);
  EXPECT_EQ(s["hidden"], 64);
  EXPECT_EQ(s["fc1"], find(m["weights"], "fc1"));
  EXPECT_EQ(s["bias1"], find(m["weights"], "b1"));
  EXPECT_EQ(s["gamma"], find(m["weights"], "gamma"));
  EXPECT_EQ(s["beta"], -1);
  EXPECT_EQ(s["copy"], find(m["weights"], "copy"));
  EXPECT_EQ(s["bits"], 4);
  EXPECT_EQ(s["kappa"], 1.0);
  EXPECT_EQ(s["rule"], "proof");
  EXPECT_EQ(s["lookahead"], "here");
  EXPECT_EQ(s["selected"], m["entries"]["decode"]["stages"][1]["counts"]);
}

TEST_F(ManifestTest, SmallerKappaIsAMargin) {
  module->walk([&](SelectCertifiedOp op) { op.setKappa(llvm::APFloat(0.5)); });
  EXPECT_EQ(build()["selections"][0]["rule"], "margin");
}

TEST_F(ManifestTest, EqualModulesGiveEqualText) {
  EXPECT_EQ(dumpJson(build()), dumpJson(build()));
}

TEST_F(ManifestTest, RefusesAWeightThatWasNotPacked) {
  inputs.weights[1].name = "other";
  EXPECT_THAT(refusal(), testing::HasSubstr("weight 'fc1' was not packed"));
}

TEST_F(ManifestTest, RefusesAKernelThatWasNotLowered) {
  inputs.kernels.erase("head");
  EXPECT_THAT(refusal(), testing::HasSubstr("@head was not lowered"));
}

TEST_F(ManifestTest, RefusesALibraryKernelThatIsNotOneProduct) {
  module->walk([&](KernelOp kernel) {
    if (kernel.getSymName() == "embed_n")
      kernel.setLibrary("gemm");
  });
  EXPECT_THAT(refusal(), testing::HasSubstr("not a part of a library product"));
}

TEST_F(ManifestTest, RefusesASparseMlpWithoutADenseTwin) {
  for (auto entry : module->getOps<func::FuncOp>())
    if (entry.getSymName() == "decode_dense")
      entry.walk([](LaunchOp launch) { launch.setName("renamed"); });
  EXPECT_THAT(refusal(), testing::HasSubstr("no twin in @decode_dense"));
}

} // namespace
