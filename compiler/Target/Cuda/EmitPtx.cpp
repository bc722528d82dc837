//===- EmitPtx.cpp - LLVM dialect to PTX ----------------------------------===//

#include "foresight/Target/Cuda/CudaTarget.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"

#include <mutex>

using namespace mlir;
using namespace foresight;

static std::unique_ptr<llvm::TargetMachine>
createMachine(const CudaVariant &variant, std::string &error) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  llvm::TargetOptions options;
  // Products and sums are fused only where the IR says so.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, variant.name, "+" + variant.ptxVersion, options, std::nullopt,
      std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

static void optimise(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  // The emitters unroll; what they left as loops is short or of unknown length.
  tuning.LoopUnrolling = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3)
      .run(module, modules);
}

/// Kernels of chips before sm_90 start when those in front have ended: there is
/// nothing to wait for, and no instruction to do so.
static void dropDependencyControl(llvm::Module &module) {
  for (llvm::Intrinsic::ID id :
       {llvm::Intrinsic::nvvm_griddepcontrol_wait,
        llvm::Intrinsic::nvvm_griddepcontrol_launch_dependents})
    if (llvm::Function *function =
            llvm::Intrinsic::getDeclarationIfExists(&module, id))
      for (llvm::User *call : llvm::make_early_inc_range(function->users()))
        llvm::cast<llvm::Instruction>(call)->eraseFromParent();
}

LogicalResult foresight::emitPtx(ModuleOp module, const CudaVariant &variant,
                                 std::string &ptx) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = createMachine(variant, error);
  if (!machine)
    return module.emitError()
           << "no code can be generated for " << variant.name << ": " << error;
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  registerNVVMDialectTranslation(*module.getContext());
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(module, context, "foresight");
  if (!code)
    return module.emitError() << "cannot be translated to LLVM IR";
  code->setTargetTriple(machine->getTargetTriple());
  code->setDataLayout(machine->createDataLayout());
  if (variant.computeCapability < 90)
    dropDependencyControl(*code);
  optimise(*code, *machine);

  SmallVector<char> out;
  llvm::raw_svector_ostream os(out);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, os, nullptr,
                                   llvm::CodeGenFileType::AssemblyFile))
    return module.emitError() << "no PTX can be written for " << variant.name;
  passes.run(*code);
  ptx.assign(out.begin(), out.end());
  return success();
}
