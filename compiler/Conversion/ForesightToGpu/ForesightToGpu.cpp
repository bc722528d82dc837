//===- ForesightToGpu.cpp - Scheduled kernels to PTX entries --------------===//

#include "foresight/Conversion/ForesightToGpu/ForesightToGpu.h"

#include "GpuElementwise.h"
#include "GpuKernel.h"
#include "GpuPickToken.h"
#include "GpuQuantise.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <set>

using namespace mlir;
using namespace foresight;

namespace {

constexpr llvm::StringLiteral kSharedName = "shared_memory";
/// NVPTX's number for shared memory.
constexpr unsigned kSharedSpace = 3;

/// Memory of a block; how much is said at the launch.
void declareShared(OpBuilder &b, Location loc) {
  auto type = LLVM::LLVMArrayType::get(b.getI8Type(), 0);
  LLVM::GlobalOp::create(b, loc, type, /*isConstant=*/false,
                         LLVM::Linkage::External, kSharedName, Attribute(),
                         /*alignment=*/16, kSharedSpace);
}

void emitBody(GpuFrame &frame) {
  switch (frame.plan.body) {
  case GpuBody::Rows:
    emitRows(frame);
    break;
  case GpuBody::RowProduct:
    emitRowProduct(frame);
    break;
  case GpuBody::BatchProduct:
    emitBatchProduct(frame);
    break;
  case GpuBody::SparseProduct:
    emitSparseProduct(frame);
    break;
  case GpuBody::Scores:
    emitScores(frame);
    break;
  case GpuBody::GatherRows:
    emitGatherRows(frame);
    break;
  case GpuBody::GatherColumns:
    emitGatherColumns(frame);
    break;
  case GpuBody::ColumnProduct:
    emitColumnProduct(frame);
    break;
  case GpuBody::SkipColumns:
    emitSkipColumns(frame);
    break;
  case GpuBody::Attention:
    emitGpuAttention(frame);
    break;
  case GpuBody::PromptAttention:
    emitPromptAttention(frame);
    break;
  case GpuBody::DecodeAttention:
    emitGpuDecodeAttention(frame);
    break;
  }
}

Value addressOfShared(OpBuilder &b, Location loc) {
  MLIRContext *ctx = b.getContext();
  Value shared = LLVM::AddressOfOp::create(
      b, loc, LLVM::LLVMPointerType::get(ctx, kSharedSpace), kSharedName);
  return LLVM::AddrSpaceCastOp::create(b, loc, LLVM::LLVMPointerType::get(ctx),
                                       shared);
}

void emitEntry(OpBuilder &b, const GpuPlan &plan) {
  OpBuilder::InsertionGuard guard(b);
  KernelOp kernel = plan.kernel;
  Location loc = kernel.getLoc();
  MLIRContext *ctx = b.getContext();
  Block &body = kernel.getBody().front();
  int64_t pointers = body.getNumArguments() +
                     body.getTerminator()->getNumOperands() +
                     plan.launch.hasCounts + 1;
  SmallVector<Type> types(pointers, LLVM::LLVMPointerType::get(ctx));
  LLVM::LLVMFuncOp function =
      openGpuEntry(b, loc, gpuEntryName(kernel.getSymName()), types);
  function->setAttr(
      NVVM::NVVMDialect::getMaxntidAttrName(),
      b.getDenseI32ArrayAttr({static_cast<int32_t>(plan.launch.threads)}));
  // Three small blocks hide each other's barriers: 168 registers a thread.
  constexpr int64_t kPromptBlocks = 3;
  int64_t together = plan.body == GpuBody::PromptAttention
                         ? kPromptBlocks
                         : plan.launch.blocksPerSm;
  if (together > 1)
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                      b.getI32IntegerAttr(together));
  if (plan.mostRegisters > 0)
    function->setAttr(
        NVVM::NVVMDialect::getMaxnregAttrName(),
        b.getI32IntegerAttr(static_cast<int32_t>(plan.mostRegisters)));

  GpuCode code(b, loc, plan.launch.threads);
  code.readIndices();
  Value shared = addressOfShared(b, loc);
  GpuFrame frame(code, plan, function.getArguments(), shared);
  if (plan.riderBlocks == 0) {
    emitBody(frame);
  } else {
    // Blocks of the body first: they take longest.
    Value bodies = code.i64(plan.launch.blocks - plan.riderBlocks);
    Value block = code.block, blocks = code.blocks;
    auto branch = scf::IfOp::create(b, loc, code.lessThan(block, bodies),
                                    /*withElseRegion=*/true);
    b.setInsertionPointToStart(&branch.getThenRegion().front());
    code.blocks = bodies;
    emitBody(frame);
    b.setInsertionPointToStart(&branch.getElseRegion().front());
    code.block = code.sub(block, bodies);
    code.blocks = code.sub(blocks, bodies);
    // What the body has found out is not known here.
    GpuFrame rider(code, plan, function.getArguments(), shared);
    emitScores(rider);
    b.setInsertionPointAfter(branch);
  }
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

/// What makes the low-bit copies of synthetic weights, one entry for each
/// element type and number of bits.
void emitQuantisers(OpBuilder &b, ModuleOp module) {
  std::set<std::string> emitted;
  for (WeightOp weight : module.getOps<WeightOp>()) {
    auto copy = dyn_cast<LowBitType>(weight.getType());
    auto derived = dyn_cast<DerivedAttr>(weight.getSource());
    if (!copy || !derived || derived.getSources().empty())
      continue;
    auto source =
        module.lookupSymbol<WeightOp>(derived.getSources()[0].getValue());
    if (!source || !isa<SyntheticAttr>(source.getSource()))
      continue;
    auto type = cast<RankedTensorType>(source.getType());
    Type element = type.getElementType();
    if (emitted.insert(gpuQuantiseName(element, copy.getBits())).second)
      emitQuantiseEntry(b, module.getLoc(), element, copy.getBits());
  }
}

/// The element types of synthetic weights, if there are any.
llvm::SmallSetVector<Type, 3> syntheticElements(ModuleOp module) {
  llvm::SmallSetVector<Type, 3> elements;
  bool isSynthetic = llvm::any_of(module.getOps<WeightOp>(), [](WeightOp w) {
    return isa<SyntheticAttr>(w.getSource());
  });
  if (isSynthetic)
    for (WeightOp weight : module.getOps<WeightOp>())
      if (auto type = dyn_cast<RankedTensorType>(weight.getType()))
        elements.insert(type.getElementType());
  return elements;
}

using Plans = llvm::StringMap<GpuPlan>;

LaunchOp launchBefore(Operation *launch) {
  do
    launch = launch->getPrevNode();
  while (launch && !isa<LaunchOp>(launch));
  return cast_if_present<LaunchOp>(launch);
}

/// Whether all sets that `launch` takes are in memory when it starts: its
/// kernel was allowed to by the one in front, which had waited for all others,
/// or, if that one starts dependents first, by the one in front of that.
bool takesSetsEarly(LaunchOp launch, const Plans &plans) {
  llvm::SmallPtrSet<Operation *, 2> running;
  LaunchOp before = launchBefore(launch);
  for (bool isOpen = true; isOpen && before; before = launchBefore(before)) {
    running.insert(before);
    // A library's kernels have no plan: they start when all others have ended.
    auto plan = plans.find(before.getKernel());
    // Rows of a batch start dependents first too.
    isOpen = plan != plans.end() &&
             (plan->second.startsDependentsFirst || plan->second.batchRows > 0);
  }
  return llvm::none_of(launch.getInputs(), [&](Value input) {
    return isa<IndexSetType>(input.getType()) &&
           running.contains(input.getDefiningOp());
  });
}

/// Whether the kernel in front lets `launch` start before it has waited itself.
bool startsEarly(LaunchOp launch, const Plans &plans) {
  LaunchOp before = launchBefore(launch);
  auto plan = before ? plans.find(before.getKernel()) : plans.end();
  return plan != plans.end() && plan->second.startsDependentsFirst;
}

LogicalResult emitEntries(ModuleOp scheduled, ModuleOp target,
                          int64_t capability) {
  OpBuilder b(target.getBodyRegion());
  b.setInsertionPointToEnd(target.getBody());
  declareShared(b, target.getLoc());
  llvm::SmallSetVector<Type, 2> casts;
  std::set<Activation> activations;
  Plans plans;
  for (KernelOp kernel : scheduled.getOps<KernelOp>()) {
    if (kernel.getLibraryAttr()) {
      kernel.walk([&](Operation *op) {
        if (isa<LinearOp, ColumnLinearOp>(op))
          casts.insert(gpuElement(op->getOperand(1)));
        Activation kind = Activation::None;
        if (auto linear = dyn_cast<LinearOp>(op))
          kind = linear.getActivation();
        else if (auto activation = dyn_cast<ActivationOp>(op))
          kind = activation.getActivation();
        if (kind == Activation::Gelu || kind == Activation::GeluTanh)
          activations.insert(kind);
      });
      continue;
    }
    FailureOr<GpuPlan> plan = planGpuKernel(kernel, capability);
    if (failed(plan))
      return failure();
    plan->isSetEarly = true;
    plans.try_emplace(kernel.getSymName(), std::move(*plan));
  }
  llvm::StringSet<> launched;
  scheduled.walk([&](LaunchOp launch) {
    auto plan = plans.find(launch.getKernel());
    if (plan == plans.end())
      return;
    plan->second.isSetEarly &= takesSetsEarly(launch, plans);
    bool isFirst = launched.insert(launch.getKernel()).second;
    plan->second.startsEarly =
        (isFirst || plan->second.startsEarly) && startsEarly(launch, plans);
  });
  for (KernelOp kernel : scheduled.getOps<KernelOp>())
    if (auto plan = plans.find(kernel.getSymName()); plan != plans.end())
      emitEntry(b, plan->second);
  for (Type element : syntheticElements(scheduled))
    emitFill(b, target.getLoc(), element);
  emitQuantisers(b, scheduled);
  emitRead(b, target.getLoc());
  emitPickEntries(b, target.getLoc(), addressOfShared);
  for (Type element : casts)
    if (!element.isF32())
      emitCast(b, target.getLoc(), element);
  for (Activation kind : activations)
    emitActivate(b, target.getLoc(), kind);
  return success();
}

/// exp and erf as polynomials: device libraries are not linked.
struct ExpandGpuMathPass
    : PassWrapper<ExpandGpuMathPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ExpandGpuMathPass)
  StringRef getArgument() const final { return "foresight-expand-gpu-math"; }
  StringRef getDescription() const final {
    return "Replace exp and erf by polynomials";
  }
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    populateMathPolynomialApproximationPatterns(patterns, [](StringRef op) {
      return op == math::ExpOp::getOperationName() ||
             op == math::ErfOp::getOperationName();
    });
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

void buildLowering(OpPassManager &pm) {
  pm.addPass(std::make_unique<ExpandGpuMathPass>());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

struct ForesightToGpuPass
    : PassWrapper<ForesightToGpuPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ForesightToGpuPass)
  StringRef getArgument() const final { return "foresight-to-gpu"; }
  StringRef getDescription() const final {
    return "Lower the kernels of a scheduled module to GPU entries in the LLVM "
           "dialect, and drop everything else";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, cf::ControlFlowDialect,
                    LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect,
                    scf::SCFDialect, vector::VectorDialect>();
  }
  void runOnOperation() override {
    ModuleOp module = getOperation();
    OwningOpRef<ModuleOp> lowered = ModuleOp::create(module.getLoc());
    OpPassManager pm(ModuleOp::getOperationName());
    buildLowering(pm);
    if (failed(emitEntries(module, *lowered, /*capability=*/90)))
      return signalPassFailure();
    module.getBodyRegion().takeBody(lowered->getBodyRegion());
    if (failed(runPipeline(pm, module)))
      signalPassFailure();
  }
};

} // namespace

std::string foresight::gpuEntryName(StringRef kernel) {
  std::string name = kernel.str();
  std::replace_if(
      name.begin(), name.end(), [](char x) { return !llvm::isAlnum(x); }, '_');
  return name;
}

LogicalResult foresight::lowerToGpu(ModuleOp scheduled,
                                    OwningOpRef<ModuleOp> &llvmModule,
                                    int64_t capability) {
  MLIRContext &context = *scheduled.getContext();
  context.loadDialect<arith::ArithDialect, cf::ControlFlowDialect,
                      LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect,
                      scf::SCFDialect, vector::VectorDialect>();
  llvmModule = ModuleOp::create(scheduled.getLoc());
  if (failed(emitEntries(scheduled, *llvmModule, capability)))
    return failure();
  PassManager pm(&context);
  buildLowering(pm);
  return pm.run(*llvmModule);
}

void foresight::registerForesightToGpuPasses() {
  PassRegistration<ForesightToGpuPass>();
}
