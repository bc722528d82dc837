//===- GenerateCode.h - LLVM dialect to a target's code ---------*- C++ -*-===//
#ifndef FORESIGHT_TARGET_LLVM_GENERATECODE_H
#define FORESIGHT_TARGET_LLVM_GENERATECODE_H

#include "mlir/IR/BuiltinOps.h"

#include "llvm/Support/CodeGen.h"

#include <optional>
#include <string>

namespace llvm {
class Module;
} // namespace llvm

namespace foresight {

/// A target of LLVM that has been initialised.
struct CodeTarget {
  std::string name; ///< for diagnostics
  std::string triple, cpu, features;
  std::optional<llvm::Reloc::Model> relocation;
};

/// Translates a module to LLVM IR, which `prepare` may change, optimises it and
/// writes it as `type` to `out`, or as text of LLVM IR if there is none. Loops
/// are neither unrolled nor vectorised: the emitters have done so. Failures are
/// diagnostics on `module`.
mlir::LogicalResult
generateCode(mlir::ModuleOp module, const CodeTarget &target,
             llvm::function_ref<void(llvm::Module &)> prepare,
             std::optional<llvm::CodeGenFileType> type,
             llvm::SmallVectorImpl<char> &out);

} // namespace foresight

#endif // FORESIGHT_TARGET_LLVM_GENERATECODE_H
