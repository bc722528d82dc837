//===- ForesightToCpu.cpp - Scheduled kernels to x86-64 vector code -------===//

#include "foresight/Conversion/ForesightToCpu/ForesightToCpu.h"

#include "Frame.h"
#include "LowBit.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace foresight;

namespace {

/// Starts `NAME.SUFFIX(args, step, scratch[, begin, end])`.
LLVM::LLVMFuncOp startFunction(OpBuilder &b, Location loc, Twine name,
                               const CpuVariant &variant, bool takesRange) {
  MLIRContext *ctx = b.getContext();
  Type pointer = LLVM::LLVMPointerType::get(ctx);
  SmallVector<Type> types(3, pointer);
  if (takesRange)
    types.append(2, b.getI64Type());
  auto function = LLVM::LLVMFuncOp::create(
      b, loc, name.str(),
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(ctx), types));
  // Loops stay loops: the shared object has no memset to call. Registers are as
  // wide as the emitters chose.
  std::string width = std::to_string(32 * variant.lanes);
  function.setPassthroughAttr(b.getArrayAttr(
      {b.getStringAttr("no-builtins"), b.getStringAttr("nounwind"),
       b.getStrArrayAttr({"prefer-vector-width", width}),
       b.getStrArrayAttr({"min-legal-vector-width", width})}));
  for (int i = 0; i < 3; ++i)
    function.setArgAttr(i, LLVM::LLVMDialect::getNoUndefAttrName(),
                        b.getUnitAttr());
  Block *entry = function.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  return function;
}

void emitPrepare(OpBuilder &b, const KernelPlan &plan,
                 const CpuVariant &variant) {
  OpBuilder::InsertionGuard guard(b);
  KernelOp kernel = plan.kernel;
  Location loc = kernel.getLoc();
  auto function = startFunction(b, loc, kernel.getSymName() + ".prepare",
                                variant, /*takesRange=*/false);
  CodeBuilder code(b, loc, variant.lanes);
  Frame frame(code, plan, function.getArgument(0), function.getArgument(1),
              function.getArgument(2));
  for (Operation *op : plan.prologue)
    emitRowOp(frame, op);
  if (plan.body == BodyKind::SparseProduct)
    emitQuantise(frame, plan.sparse);
  if (plan.column && plan.info.hasCounts)
    emitListNonZero(frame);
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

void emitBody(OpBuilder &b, const KernelPlan &plan, const CpuVariant &variant) {
  OpBuilder::InsertionGuard guard(b);
  KernelOp kernel = plan.kernel;
  Location loc = kernel.getLoc();
  auto function = startFunction(b, loc, kernel.getSymName() + ".body", variant,
                                /*takesRange=*/true);
  CodeBuilder code(b, loc, variant.lanes);
  Frame frame(code, plan, function.getArgument(0), function.getArgument(1),
              function.getArgument(2));
  Value begin = function.getArgument(3), end = function.getArgument(4);
  switch (plan.body) {
  case BodyKind::Rows:
    code.loop(begin, end, 1, [&](Value token) {
      frame.token = token;
      for (Operation *op : plan.prologue)
        emitRowOp(frame, op);
    });
    break;
  case BodyKind::RowProduct:
    emitRowProducts(frame, begin, end);
    break;
  case BodyKind::SparseProduct:
    emitSparseProduct(frame, begin, end);
    break;
  case BodyKind::ColumnProduct:
    emitColumnProduct(frame, begin, end);
    break;
  case BodyKind::Attention:
    emitAttention(frame, begin, end);
    break;
  }
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

/// exp, erf as polynomials, on vectors as on scalars: there is no libm to call.
struct ExpandMathPass : PassWrapper<ExpandMathPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ExpandMathPass)
  StringRef getArgument() const final { return "foresight-expand-math"; }
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

void loadLoweringDialects(MLIRContext &context) {
  context.loadDialect<arith::ArithDialect, cf::ControlFlowDialect,
                      LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                      vector::VectorDialect>();
}

/// `foresight-to-cpu`'s own part: kernels to loops, no conversion yet.
LogicalResult emitKernels(ModuleOp scheduled, const CpuVariant &variant,
                          ModuleOp target) {
  OpBuilder b(target.getBodyRegion());
  b.setInsertionPointToEnd(target.getBody());
  for (KernelOp kernel : scheduled.getOps<KernelOp>()) {
    if (kernel.getLibraryAttr())
      continue;
    FailureOr<KernelPlan> plan = planKernel(kernel);
    if (failed(plan))
      return failure();
    if (plan->info.hasPrepare)
      emitPrepare(b, *plan, variant);
    emitBody(b, *plan, variant);
  }
  return success();
}

void buildLowering(OpPassManager &pm) {
  pm.addPass(std::make_unique<ExpandMathPass>());
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

struct ForesightToCpuPass
    : PassWrapper<ForesightToCpuPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ForesightToCpuPass)
  ForesightToCpuPass() = default;
  ForesightToCpuPass(const ForesightToCpuPass &other) : PassWrapper(other) {}

  StringRef getArgument() const final { return "foresight-to-cpu"; }
  StringRef getDescription() const final {
    return "Lower the kernels of a scheduled module to functions in the LLVM "
           "dialect, and drop everything else";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry
        .insert<arith::ArithDialect, cf::ControlFlowDialect, LLVM::LLVMDialect,
                math::MathDialect, scf::SCFDialect, vector::VectorDialect>();
  }

  Option<std::string> variant{
      *this, "variant", llvm::cl::init("x86-64-v3"),
      llvm::cl::desc("Instruction set: x86-64-v3 or x86-64-v4")};
  Option<bool> loops{
      *this, "loops", llvm::cl::init(false),
      llvm::cl::desc("Stop at scf loops, before the LLVM dialect")};

  void runOnOperation() override {
    ModuleOp module = getOperation();
    const CpuVariant *target = findCpuVariant(variant);
    if (!target) {
      module.emitError() << "there is no CPU variant '" << variant << "'";
      return signalPassFailure();
    }
    OwningOpRef<ModuleOp> lowered = ModuleOp::create(module.getLoc());
    if (failed(emitKernels(module, *target, *lowered)))
      return signalPassFailure();
    module.getBodyRegion().takeBody(lowered->getBodyRegion());
    if (loops)
      return;
    OpPassManager pm(ModuleOp::getOperationName());
    buildLowering(pm);
    if (failed(runPipeline(pm, module)))
      signalPassFailure();
  }
};

struct AnnotateKernelsPass
    : PassWrapper<AnnotateKernelsPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(AnnotateKernelsPass)
  StringRef getArgument() const final { return "foresight-annotate-kernels"; }
  StringRef getDescription() const final {
    return "Put on each kernel how its units are run on a CPU";
  }
  void runOnOperation() override {
    Builder b(&getContext());
    auto number = [&](StringRef name, int64_t value) {
      return b.getNamedAttr(name, b.getI64IntegerAttr(value));
    };
    for (KernelOp kernel : getOperation().getOps<KernelOp>()) {
      FailureOr<KernelInfo> info = analyzeCpuKernel(kernel);
      if (failed(info))
        return signalPassFailure();
      SmallVector<NamedAttribute> facts{
          number("weight_bytes", info->weightBytes)};
      if (!kernel.getLibraryAttr()) {
        facts.append({number("units", info->units),
                      number("grain", info->grain),
                      number("scratch_bytes", info->scratchBytes)});
        if (info->perToken)
          facts.push_back(b.getNamedAttr("per_token", b.getUnitAttr()));
        if (info->hasPrepare)
          facts.push_back(b.getNamedAttr("prepare", b.getUnitAttr()));
        if (info->sharedBytes)
          facts.push_back(number("shared_bytes", info->sharedBytes));
        if (info->hasCounts)
          facts.push_back(number("count_bytes", info->countBytes));
      }
      kernel->setAttr("foresight.info", b.getDictionaryAttr(facts));
    }
  }
};

} // namespace

LogicalResult foresight::lowerToCpu(ModuleOp scheduled,
                                    const CpuVariant &variant,
                                    OwningOpRef<ModuleOp> &llvmModule) {
  MLIRContext &context = *scheduled.getContext();
  loadLoweringDialects(context);
  llvmModule = ModuleOp::create(scheduled.getLoc());
  if (failed(emitKernels(scheduled, variant, *llvmModule)))
    return failure();
  PassManager pm(&context);
  buildLowering(pm);
  return pm.run(*llvmModule);
}

void foresight::registerForesightToCpuPasses() {
  PassRegistration<ForesightToCpuPass>();
  PassRegistration<AnnotateKernelsPass>();
}
