//===- CpuTarget.h - x86-64 variants, objects, shared objects ---*- C++ -*-===//
//
// What a CPU bundle is compiled for, and the way from the LLVM dialect to the
// ELF shared object that the runtime maps. A bundle holds one shared object for
// each variant; the runtime takes the best that the machine can run.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TARGET_CPU_CPUTARGET_H
#define FORESIGHT_TARGET_CPU_CPUTARGET_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"

#include <string>
#include <vector>

namespace llvm {
class raw_ostream;
} // namespace llvm

namespace foresight {

/// An instruction set that code is generated for.
struct CpuVariant {
  std::string name;                  ///< "x86-64-v3"; also the manifest's name
  std::string cpu;                   ///< LLVM's processor name
  std::vector<std::string> features; ///< what the runtime checks, LLVM's names
  int lanes;                         ///< f32 elements of a vector register
};

/// The variants that a `--target` names, best last: "cpu" is all of them,
/// "cpu:x86-64-v3" one, "cpu:native" the best one that this machine runs. On
/// failure `error` says what is allowed.
mlir::FailureOr<std::vector<CpuVariant>> cpuVariants(llvm::StringRef target,
                                                     std::string &error);

/// The variant of that name, or null.
const CpuVariant *findCpuVariant(llvm::StringRef name);

enum class CpuOutput { LlvmIr, Assembly, Object };

/// Translates a module in the LLVM dialect to LLVM IR, optimises it (O3) for
/// `variant` and writes what is asked for. Failures are diagnostics on
/// `module`.
mlir::LogicalResult emitCpuCode(mlir::ModuleOp module,
                                const CpuVariant &variant, CpuOutput output,
                                llvm::SmallVectorImpl<char> &out);

/// Links one relocatable object into an ELF shared object that depends on
/// nothing: an undefined symbol (a call of libm, say) is an error. Runs lld in
/// this process, which resets LLVM's command line options: read them before.
mlir::LogicalResult linkSharedObject(llvm::ArrayRef<char> object,
                                     mlir::Location loc,
                                     llvm::SmallVectorImpl<char> &out);

} // namespace foresight

#endif // FORESIGHT_TARGET_CPU_CPUTARGET_H
