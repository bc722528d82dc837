//===- PromptPtxTest.cpp - Attention of a prompt, to PTX ------------------===//
//
// Every head size and element type, for the oldest chip and a newer one.
//
//===----------------------------------------------------------------------===//

#include "PtxHarness.h"

using namespace mlir;
using namespace foresight;

namespace {

struct Case {
  int64_t heads, headDim;
  const char *element;
  const char *chip;
  bool usesTensorCores = true;
};

class PromptPtxTest : public testing::TestWithParam<Case> {
protected:
  PromptPtxTest() { context.loadDialect<ForesightDialect>(); }

  OwningOpRef<ModuleOp> parse() {
    const Case &c = GetParam();
    std::string rows =
        llvm::formatv("tensor<?x{0}xf32>", c.heads * c.headDim).str();
    std::string cache =
        llvm::formatv("!foresight.kv_cache<{0} x {1}, 256, {2}>", c.heads,
                      c.headDim, c.element)
            .str();
    return parseSourceString<ModuleOp>(
        llvm::formatv(
            "foresight.kernel @attention(%q: {0}, %kv: {1}, %p: "
            "tensor<?xi32>) {{\n%a = foresight.attention %q, %kv at %p scale = "
            "0.125 : {0}, {1}, tensor<?xi32> -> {0}\nforesight.yield %a : "
            "{0}\n}",
            rows, cache)
            .str(),
        &context);
  }

  MLIRContext context;
};

TEST_P(PromptPtxTest, AssemblesWithoutSpills) {
  const Case &c = GetParam();
  OwningOpRef<ModuleOp> module = parse();
  ASSERT_TRUE(module);
  OwningOpRef<ModuleOp> code;
  ASSERT_TRUE(succeeded(lowerToGpu(*module, code)));
  std::string error, ptx;
  FailureOr<CudaVariant> variant = cudaVariant(c.chip, error);
  ASSERT_TRUE(succeeded(variant)) << error;
  ASSERT_TRUE(succeeded(emitPtx(*code, *variant, ptx)));
  std::string product = llvm::formatv("mma.sync.aligned.m16n8k16.row.col.f32."
                                      "{0}.{0}.f32",
                                      c.element)
                            .str();
  EXPECT_EQ(ptx.find(product) != std::string::npos, c.usesTensorCores);
  expectNoSpills(ptx, *variant);
}

TEST_P(PromptPtxTest, ABlockTakesManyTokensWhereTensorCoresDo) {
  const Case &c = GetParam();
  OwningOpRef<ModuleOp> module = parse();
  ASSERT_TRUE(module);
  FailureOr<GpuLaunch> launch =
      analyzeGpuKernel(module->lookupSymbol<KernelOp>("attention"));
  ASSERT_TRUE(succeeded(launch));
  EXPECT_EQ(launch->tokensPerBlock, c.usesTensorCores ? 64 : 1);
  EXPECT_EQ(launch->blocks, c.heads);
  // What a block can have on every chip since sm_80.
  EXPECT_LE(launch->sharedBytes, 99 << 10);
}

INSTANTIATE_TEST_SUITE_P(
    Heads, PromptPtxTest,
    testing::Values(
        Case{4, 16, "f16", "cuda:sm_80"}, Case{12, 64, "f16", "cuda:sm_80"},
        Case{32, 80, "f16", "cuda:sm_90"}, Case{32, 128, "f16", "cuda:sm_80"},
        Case{32, 128, "f16", "cuda:sm_90"}, Case{72, 128, "bf16", "cuda:sm_90"},
        Case{5, 20, "bf16", "cuda:sm_80"}, Case{3, 12, "f16", "cuda:sm_90"},
        Case{12, 64, "f32", "cuda:sm_90", false},
        Case{4, 256, "f16", "cuda:sm_90", false}),
    [](const auto &info) {
      return llvm::formatv("d{0}_{1}_{2}", info.param.headDim,
                           info.param.element,
                           llvm::StringRef(info.param.chip).substr(5))
          .str();
    });

} // namespace
