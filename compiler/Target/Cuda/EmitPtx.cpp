//===- EmitPtx.cpp - LLVM dialect to PTX ----------------------------------===//

#include "foresight/Target/Cuda/CudaTarget.h"
#include "foresight/Target/Llvm/GenerateCode.h"

#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"

#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/TargetSelect.h"

#include <mutex>

using namespace mlir;
using namespace foresight;

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
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  registerNVVMDialectTranslation(*module.getContext());
  CodeTarget target{variant.name, "nvptx64-nvidia-cuda", variant.name,
                    "+" + variant.ptxVersion, std::nullopt};
  auto prepare = [&](llvm::Module &code) {
    if (variant.computeCapability < 90)
      dropDependencyControl(code);
  };
  SmallVector<char> out;
  if (failed(generateCode(module, target, prepare,
                          llvm::CodeGenFileType::AssemblyFile, out)))
    return failure();
  ptx.assign(out.begin(), out.end());
  return success();
}
