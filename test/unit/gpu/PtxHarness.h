//===- PtxHarness.h - Kernels to PTX and through ptxas ----------*- C++ -*-===//
#ifndef FORESIGHT_TEST_UNIT_GPU_PTXHARNESS_H
#define FORESIGHT_TEST_UNIT_GPU_PTXHARNESS_H

#include "foresight/Conversion/ForesightToGpu/ForesightToGpu.h"
#include "foresight/Dialect/Foresight.h"
#include "foresight/Target/Cuda/CudaTarget.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"

#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"

namespace foresight {

constexpr int64_t kKiB = 1 << 10;

/// Assembles `ptx` and expects all values in registers; records how many.
inline void expectNoSpills(const std::string &ptx, const CudaVariant &variant) {
  std::string error, ptxas = findPtxas();
  if (ptxas.empty())
    GTEST_SKIP() << "no ptxas: the PTX was not assembled";
  mlir::FailureOr<PtxasResult> result = assemblePtx(ptxas, ptx, variant, error);
  ASSERT_TRUE(succeeded(result)) << error << ptx;
  EXPECT_FALSE(result->entries.empty());
  for (const PtxasEntry &entry : result->entries) {
    EXPECT_EQ(entry.spillBytes, 0) << entry.name;
    EXPECT_EQ(entry.stackBytes, 0) << entry.name;
    EXPECT_GT(entry.registers, 0) << entry.name;
    testing::Test::RecordProperty(entry.name,
                                  static_cast<int>(entry.registers));
  }
}

/// Lowers and assembles what the module holds.
inline void expectAssembles(mlir::ModuleOp module, int64_t capability) {
  mlir::OwningOpRef<mlir::ModuleOp> code;
  ASSERT_TRUE(succeeded(lowerToGpu(module, code, capability)));
  std::string error, ptx;
  mlir::FailureOr<CudaVariant> variant =
      cudaVariant(llvm::formatv("cuda:sm_{0}", capability).str(), error);
  ASSERT_TRUE(succeeded(variant)) << error;
  ASSERT_TRUE(succeeded(emitPtx(*code, *variant, ptx)));
  expectNoSpills(ptx, *variant);
}

/// Slots of the ring of a product's entry, and how many it fills before it
/// waits for the kernel in front. Its loop fills one more.
struct RingFills {
  int64_t all = -1, before = 0;
};

inline RingFills ringFills(mlir::ModuleOp module, llvm::StringRef entry) {
  mlir::OwningOpRef<mlir::ModuleOp> code;
  EXPECT_TRUE(succeeded(lowerToGpu(module, code)));
  RingFills fills;
  bool isBefore = true;
  code->lookupSymbol(entry)->walk([&](mlir::Operation *op) {
    if (auto depends = dyn_cast<mlir::NVVM::GriddepcontrolOp>(op))
      isBefore &= depends.getKind() != mlir::NVVM::GridDepActionKind::wait;
    if (isa<mlir::NVVM::CpAsyncCommitGroupOp>(op)) {
      ++fills.all;
      fills.before += isBefore;
    }
  });
  return fills;
}

/// One kernel a test, made of the parameter.
template <typename T> class PtxTestOf : public testing::TestWithParam<T> {
protected:
  PtxTestOf() { context.loadDialect<ForesightDialect>(); }
  void parse(const std::string &text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    ASSERT_TRUE(module) << text;
  }
  void expectAssembles() {
    ASSERT_TRUE(module);
    for (int64_t capability : {80, 90}) {
      SCOPED_TRACE(capability);
      foresight::expectAssembles(*module, capability);
    }
  }
  GpuLaunch launchOf(int64_t capability) {
    KernelOp kernel = *module->template getOps<KernelOp>().begin();
    mlir::FailureOr<GpuLaunch> launch = analyzeGpuKernel(kernel, capability);
    EXPECT_TRUE(succeeded(launch));
    return succeeded(launch) ? *launch : GpuLaunch();
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace foresight

#endif // FORESIGHT_TEST_UNIT_GPU_PTXHARNESS_H
