//===- PtxTest.cpp - Scheduled modules to PTX -----------------------------===//
//
// Every fixture goes to PTX; where CUDA's assembler is installed it must take
// the text and keep all values in registers.
//
//===----------------------------------------------------------------------===//

#include "PtxHarness.h"

#include "foresight/Pipelines/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace foresight;

namespace {

class PtxTest
    : public testing::TestWithParam<std::tuple<const char *, const char *>> {
protected:
  PtxTest() { context.loadDialect<ForesightDialect, func::FuncDialect>(); }

  OwningOpRef<ModuleOp> schedule(const PipelineOptions &options) {
    std::string path = std::string(FORESIGHT_SOURCE_DIR) + "/test/fixtures/" +
                       std::get<0>(GetParam()) + ".mlir";
    OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, &context);
    PassManager pm(&context);
    buildCompilePipeline(pm, options);
    if (!module || failed(pm.run(*module)))
      return nullptr;
    return module;
  }

  MLIRContext context;
};

TEST_P(PtxTest, EveryKernelIsAnEntryThatAssemblesWithoutSpills) {
  PipelineOptions options;
  options.target = "cuda";
  OwningOpRef<ModuleOp> scheduled = schedule(options);
  ASSERT_TRUE(scheduled);
  OwningOpRef<ModuleOp> code;
  ASSERT_TRUE(succeeded(lowerToGpu(*scheduled, code)));
  std::string error, ptx;
  FailureOr<CudaVariant> variant = cudaVariant(std::get<1>(GetParam()), error);
  ASSERT_TRUE(succeeded(variant)) << error;
  ASSERT_TRUE(succeeded(emitPtx(*code, *variant, ptx)));
  // Only newer chips start a kernel before the one in front has ended.
  EXPECT_EQ(ptx.find("griddepcontrol") != std::string::npos,
            variant->computeCapability >= 90);
  for (KernelOp kernel : scheduled->getOps<KernelOp>()) {
    if (!kernel.getLibraryAttr())
      EXPECT_NE(ptx.find(".entry " + gpuEntryName(kernel.getSymName()) + "("),
                std::string::npos)
          << kernel.getSymName().str();
  }
  expectNoSpills(ptx, *variant);
}

/// Behind attention there is time for the whole ring, a slot after the other.
TEST_P(PtxTest, OnlyBehindAttentionIsTheRingFilledBeforeTheInputIsThere) {
  PipelineOptions options;
  options.target = "cuda";
  OwningOpRef<ModuleOp> scheduled = schedule(options);
  ASSERT_TRUE(scheduled);
  RingFills behind = ringFills(*scheduled, "decode_out_proj");
  EXPECT_GT(behind.all, 1);
  EXPECT_EQ(behind.before, behind.all);
  RingFills other = ringFills(*scheduled, "decode_qkv");
  EXPECT_LT(other.before, other.all);
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, PtxTest,
    testing::Combine(testing::Values("step-pre-norm", "step-post-norm",
                                     "step-odd", "step-gelu"),
                     testing::Values("cuda:sm_80", "cuda:sm_90")),
    [](const auto &info) {
      std::string name = std::get<0>(info.param);
      name += "_" + std::string(std::get<1>(info.param) + 5);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(CudaVariant, AnUnknownChipIsRefusedWithTheKnownOnes) {
  std::string error;
  EXPECT_TRUE(failed(cudaVariant("cuda:sm_12", error)));
  EXPECT_NE(error.find("sm_90"), std::string::npos);
}

} // namespace
