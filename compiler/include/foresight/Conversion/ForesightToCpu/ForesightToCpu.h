//===- ForesightToCpu.h - Scheduled kernels to x86-64 vector code -*- C++ -*-=//
//
// `foresight.kernel @NAME` becomes `NAME.prepare` (where there is something to
// prepare) and `NAME.body` with the ABI of runtime/abi/include/foresight/abi/
// Kernel.h. Library kernels become nothing.
//
// A kernel is recognised by its ops: a prologue on whole rows (LayerNorm,
// rounding to integers, listing what is not zero), one body that walks weights
// or history, an epilogue on the body's results (bias, activation, residual).
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_CONVERSION_FORESIGHTTOCPU_FORESIGHTTOCPU_H
#define FORESIGHT_CONVERSION_FORESIGHTTOCPU_FORESIGHTTOCPU_H

#include "foresight/Dialect/Foresight.h"
#include "foresight/Target/Cpu/CpuTarget.h"

namespace foresight {

/// How a kernel's units are run: what the bundle's manifest says of a stage.
/// The same for every variant.
struct KernelInfo {
  /// Units of one call; with `perToken` of one token row.
  int64_t units = 1;
  bool perToken = false;
  /// Units that a worker claims at a time.
  int64_t grain = 1;
  /// Memory of a worker's own, kept from `prepare` to `body`.
  int64_t scratchBytes = 0;
  /// Memory that the workers of a launch share, zero when it is allocated and
  /// kept from call to call. Launches that cannot run at once may have the
  /// same. 0: the kernel takes no such argument.
  int64_t sharedBytes = 0;
  bool hasPrepare = false;
  /// Whether the kernel's last argument is an int32 counter a unit: how many
  /// `countBytes` of weights that unit read beyond `weightBytes`.
  bool hasCounts = false;
  int64_t countBytes = 0;
  /// Weight bytes read whatever the data; with `perToken` for one token.
  int64_t weightBytes = 0;
};

/// Analyses a kernel of a scheduled module. A kernel that no body covers is a
/// diagnostic on the op in the way. A library kernel has only `weightBytes`.
mlir::FailureOr<KernelInfo> analyzeCpuKernel(KernelOp kernel);

/// Makes, from a scheduled module, a module of LLVM-dialect functions, two a
/// kernel. `scheduled` stays as it is.
mlir::LogicalResult lowerToCpu(mlir::ModuleOp scheduled,
                               const CpuVariant &variant,
                               mlir::OwningOpRef<mlir::ModuleOp> &llvmModule);

/// `--foresight-annotate-kernels`: puts KernelInfo on each kernel as
/// `foresight.info`. `--foresight-to-cpu=variant=NAME`: lowerToCpu in place.
void registerForesightToCpuPasses();

} // namespace foresight

#endif // FORESIGHT_CONVERSION_FORESIGHTTOCPU_FORESIGHTTOCPU_H
