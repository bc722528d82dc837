//===- GenerateCode.cpp - LLVM dialect to a target's code -----------------===//

#include "foresight/Target/Llvm/GenerateCode.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"

using namespace mlir;
using namespace foresight;

static std::unique_ptr<llvm::TargetMachine>
createMachine(const CodeTarget &code, std::string &error) {
  llvm::Triple triple(code.triple);
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  llvm::TargetOptions options;
  // Sums keep their order, and a product and a sum are fused only where the IR
  // says so.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, code.cpu, code.features, options, code.relocation, std::nullopt,
      llvm::CodeGenOptLevel::Aggressive));
}

static void optimise(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  // What the emitters left as loops is short or of unknown length.
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

LogicalResult
foresight::generateCode(ModuleOp module, const CodeTarget &target,
                        llvm::function_ref<void(llvm::Module &)> prepare,
                        std::optional<llvm::CodeGenFileType> type,
                        SmallVectorImpl<char> &out) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = createMachine(target, error);
  if (!machine)
    return module.emitError()
           << "no code can be generated for " << target.name << ": " << error;
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(module, context, "foresight");
  if (!code)
    return module.emitError() << "cannot be translated to LLVM IR";
  code->setTargetTriple(machine->getTargetTriple());
  code->setDataLayout(machine->createDataLayout());
  prepare(*code);
  optimise(*code, *machine);

  llvm::raw_svector_ostream os(out);
  if (!type) {
    code->print(os, nullptr);
    return success();
  }
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, os, nullptr, *type))
    return module.emitError() << "no code can be written for " << target.name;
  passes.run(*code);
  return success();
}
