//===- EmitCode.cpp - LLVM dialect to optimised machine code --------------===//

#include "foresight/Target/Cpu/CpuTarget.h"
#include "foresight/Target/Llvm/GenerateCode.h"

#include "llvm/IR/Module.h"
#include "llvm/Support/TargetSelect.h"

#include <mutex>

using namespace mlir;
using namespace foresight;

static std::optional<llvm::CodeGenFileType> fileType(CpuOutput output) {
  switch (output) {
  case CpuOutput::LlvmIr:
    return std::nullopt;
  case CpuOutput::Assembly:
    return llvm::CodeGenFileType::AssemblyFile;
  case CpuOutput::Object:
    return llvm::CodeGenFileType::ObjectFile;
  }
  llvm_unreachable("every output has a case");
}

LogicalResult foresight::emitCpuCode(ModuleOp module, const CpuVariant &variant,
                                     CpuOutput output,
                                     SmallVectorImpl<char> &out) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  CodeTarget target{variant.name, "x86_64-unknown-linux-gnu", variant.cpu,
                    /*features=*/"", llvm::Reloc::PIC_};
  auto prepare = [&](llvm::Module &code) {
    code.setPICLevel(llvm::PICLevel::BigPIC);
    for (llvm::Function &function : code)
      if (!function.isDeclaration())
        function.addFnAttr("target-cpu", variant.cpu);
  };
  return generateCode(module, target, prepare, fileType(output), out);
}
