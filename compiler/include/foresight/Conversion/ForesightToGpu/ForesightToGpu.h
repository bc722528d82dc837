//===- ForesightToGpu.h - Scheduled kernels to PTX entries ------*- C++ -*-===//
//
// `foresight.kernel @NAME` becomes one PTX entry `gpuEntryName(NAME)`. Its
// parameters are the device pointers of the kernel's arguments, then of its
// results, then of its counters if it counts, then of the step (foresight_step
// in device memory, so that a captured launch can be replayed).
//
// A kernel is a prologue that every block of threads computes for itself (one
// row: LayerNorm, into shared memory), one body that walks weights or history,
// and an epilogue on the body's results. Library kernels become nothing.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_CONVERSION_FORESIGHTTOGPU_FORESIGHTTOGPU_H
#define FORESIGHT_CONVERSION_FORESIGHTTOGPU_FORESIGHTTOGPU_H

#include "foresight/Dialect/Foresight.h"

#include <string>

namespace foresight {

/// On a kernel of `decode_batch`: the most rows T of a call, which are rows of
/// sequences of their own.
constexpr llvm::StringLiteral kBatchRowsAttr = "foresight.max_tokens";

/// How a kernel is launched: `kernels[i].launch` of the manifest.
struct GpuLaunch {
  /// Blocks: `blocks`, for each `tokensPerBlock` of the T tokens if that is not
  /// 0, or `blocksPerSm` for each multiprocessor if that is not 0.
  int64_t blocks = 1;
  int64_t tokensPerBlock = 0;
  int64_t blocksPerSm = 0;
  int64_t threads = 256;
  int64_t sharedBytes = 0;
  /// May start before the kernels it waits for have ended: it waits itself.
  bool overlaps = true;
  /// Whether the last pointer before the step is an int32 counter a unit, and
  /// how many weight bytes one count stands for.
  bool hasCounts = false;
  int64_t units = 0, countBytes = 0;
  /// Weight bytes read whatever the data.
  int64_t weightBytes = 0;
};

/// The PTX name of a kernel: PTX names have no dots.
std::string gpuEntryName(llvm::StringRef kernel);

/// Fails with a diagnostic on the op that no body covers. `capability` is that
/// of the oldest chip: 90.
mlir::FailureOr<GpuLaunch> analyzeGpuKernel(KernelOp kernel,
                                            int64_t capability = 90);

/// Makes, from a scheduled module, a module of LLVM-dialect kernels.
/// `scheduled` stays as it is.
mlir::LogicalResult lowerToGpu(mlir::ModuleOp scheduled,
                               mlir::OwningOpRef<mlir::ModuleOp> &llvmModule,
                               int64_t capability = 90);

/// `--foresight-to-gpu`: lowerToGpu in place.
void registerForesightToGpuPasses();

} // namespace foresight

#endif // FORESIGHT_CONVERSION_FORESIGHTTOGPU_FORESIGHTTOGPU_H
