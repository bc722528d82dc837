//===- CudaTarget.h - NVIDIA GPUs, PTX, ptxas -------------------*- C++ -*-===//
//
// What a GPU bundle is compiled for, and the way from the LLVM dialect to PTX,
// which the driver compiles for the GPU it finds, and, where CUDA's assembler
// is installed, to a cubin, which it need not.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TARGET_CUDA_CUDATARGET_H
#define FORESIGHT_TARGET_CUDA_CUDATARGET_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace foresight {

struct CudaVariant {
  std::string name;          ///< "sm_90": oldest chip that runs it
  int64_t computeCapability; ///< 90
  std::string ptxVersion;    ///< "ptx88", LLVM's feature name
};

/// The variant that a `--target` names: "cuda" is sm_90. On failure `error`
/// says what is allowed.
mlir::FailureOr<CudaVariant> cudaVariant(llvm::StringRef target,
                                         std::string &error);

/// Translates a module of GPU entries to LLVM IR, optimises it and writes PTX.
/// Failures are diagnostics on `module`.
mlir::LogicalResult emitPtx(mlir::ModuleOp module, const CudaVariant &variant,
                            std::string &ptx);

/// What ptxas says of one entry.
struct PtxasEntry {
  std::string name;
  int64_t registers = 0, spillBytes = 0, stackBytes = 0;
};

struct PtxasResult {
  std::vector<PtxasEntry> entries;
  std::vector<char> cubin;
};

/// Where `ptxas` is: in $CUDA_HOME, on the PATH or in /usr/local/cuda; empty if
/// nowhere.
std::string findPtxas();

/// Assembles PTX. `error` holds what ptxas printed.
mlir::FailureOr<PtxasResult> assemblePtx(llvm::StringRef ptxas,
                                         llvm::StringRef ptx,
                                         const CudaVariant &variant,
                                         std::string &error);

} // namespace foresight

#endif // FORESIGHT_TARGET_CUDA_CUDATARGET_H
