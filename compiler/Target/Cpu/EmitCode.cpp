//===- EmitCode.cpp - LLVM dialect to optimised machine code --------------===//

#include "foresight/Target/Cpu/CpuTarget.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

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

static constexpr const char *kTriple = "x86_64-unknown-linux-gnu";

static std::unique_ptr<llvm::TargetMachine>
createMachine(const CpuVariant &variant, std::string &error) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  llvm::Triple triple(kTriple);
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  llvm::TargetOptions options;
  // Sums keep their order, and a product and a sum are fused only where the IR
  // says so.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, variant.cpu, /*Features=*/"", options, llvm::Reloc::PIC_,
      std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

static void optimise(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  // The emitters vectorise and unroll; what they left scalar is short.
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3)
      .run(module, modules);
}

LogicalResult foresight::emitCpuCode(ModuleOp module, const CpuVariant &variant,
                                     CpuOutput output,
                                     SmallVectorImpl<char> &out) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = createMachine(variant, error);
  if (!machine)
    return module.emitError()
           << "no code can be generated for " << variant.name << ": " << error;
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(module, context, "foresight");
  if (!code)
    return module.emitError() << "cannot be translated to LLVM IR";
  code->setTargetTriple(machine->getTargetTriple());
  code->setDataLayout(machine->createDataLayout());
  code->setPICLevel(llvm::PICLevel::BigPIC);
  for (llvm::Function &function : *code)
    if (!function.isDeclaration())
      function.addFnAttr("target-cpu", variant.cpu);
  optimise(*code, *machine);

  llvm::raw_svector_ostream os(out);
  if (output == CpuOutput::LlvmIr) {
    code->print(os, nullptr);
    return success();
  }
  llvm::legacy::PassManager passes;
  auto type = output == CpuOutput::Assembly
                  ? llvm::CodeGenFileType::AssemblyFile
                  : llvm::CodeGenFileType::ObjectFile;
  if (machine->addPassesToEmitFile(passes, os, nullptr, type))
    return module.emitError()
           << "no object can be written for " << variant.name;
  passes.run(*code);
  return success();
}
