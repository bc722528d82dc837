//===- OutlineKernels.cpp - One kernel for equal stages -------------------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"

#include "mlir/IR/OperationSupport.h"

namespace foresight {
#define GEN_PASS_DEF_OUTLINEKERNELSPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

static bool isSameWork(KernelOp kernel, StageOp stage) {
  return kernel.getLibraryAttr() == stage.getLibraryAttr() &&
         kernel->getAttr(kMaxTokensAttr) == stage->getAttr(kMaxTokensAttr) &&
         OperationEquivalence::isRegionEquivalentTo(
             &kernel.getBody(), &stage.getBody(),
             OperationEquivalence::IgnoreLocations);
}

namespace {

struct OutlineKernelsPass
    : public foresight::impl::OutlineKernelsPassBase<OutlineKernelsPass> {
  /// The kernel with the stage's region; a new one takes the region itself.
  KernelOp kernelFor(StageOp stage, func::FuncOp entry, SymbolTable &symbols) {
    for (KernelOp kernel : kernels)
      if (isSameWork(kernel, stage))
        return kernel;
    OpBuilder builder(firstEntry);
    // "layers.3.fc1" of @decode: @decode.fc1, whichever layer comes first.
    StringRef what = stage.getName().rsplit('.').second;
    if (what.empty())
      what = stage.getName();
    std::string name = (entry.getName() + "." + what).str();
    auto kernel =
        KernelOp::create(builder, stage.getLoc(), name, stage.getLibraryAttr());
    if (Attribute rows = stage->getAttr(kMaxTokensAttr))
      kernel->setAttr(kMaxTokensAttr, rows);
    kernel.getBody().takeBody(stage.getBody());
    symbols.insert(kernel);
    kernels.push_back(kernel);
    return kernel;
  }

  void outline(StageOp stage, func::FuncOp entry, SymbolTable &symbols) {
    KernelOp kernel = kernelFor(stage, entry, symbols);
    OpBuilder builder(stage);
    auto launch = LaunchOp::create(
        builder, stage.getLoc(), stage.getResults().getTypes(),
        stage.getDone().getType(), stage.getNameAttr(),
        FlatSymbolRefAttr::get(kernel), stage.getAfter(), stage.getInputs(),
        builder.getArrayAttr({}), stage.getRoleAttr(), stage.getLayerAttr());
    stage->replaceAllUsesWith(launch);
    stage->erase();
  }

  void runOnOperation() override {
    kernels.clear();
    SmallVector<func::FuncOp> entries = entriesOf(getOperation());
    if (entries.empty())
      return;
    firstEntry = entries.front();
    SymbolTable symbols(getOperation());
    for (func::FuncOp entry : entries)
      for (auto stage : llvm::make_early_inc_range(
               entry.getBody().front().getOps<StageOp>()))
        outline(stage, entry, symbols);
  }

  SmallVector<KernelOp> kernels;
  func::FuncOp firstEntry;
};

} // namespace
