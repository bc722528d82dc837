//===- CudaDevice.h - Runs bundles on NVIDIA GPUs ---------------*- C++ -*-===//
//
// The driver (libcuda.so.1) and cuBLASLt are opened at run time: a program with
// this device runs on machines that have neither.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RUNTIME_CUDADEVICE_H
#define FORESIGHT_RUNTIME_CUDADEVICE_H

#include "foresight/runtime/Device.h"

namespace foresight {

struct CudaOptions {
  /// Which GPU, as the driver counts them.
  int ordinal = 0;
  /// Whether decoding replays a captured graph; off, every kernel is launched
  /// by itself: slower, easier to debug.
  bool graph = true;
  /// Whether kernels may start while those before them end.
  bool overlap = true;
  /// Whether `description` tells how fast the link to the GPU is, beside how
  /// fast weights were copied, and `readBandwidth` how fast its memory.
  bool measure = false;
  /// Roles of stages that are not run. What is computed then is not the model:
  /// for the time that the others take.
  std::vector<std::string> without = {};
};

/// Fails with Resource if there is no driver or no such GPU.
Result<std::unique_ptr<Device>>
createCudaDevice(const CudaOptions &options = {});

} // namespace foresight
#endif
