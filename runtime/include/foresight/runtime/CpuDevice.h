//===- CpuDevice.h - Runs bundles on x86-64 ---------------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_CPUDEVICE_H
#define FORESIGHT_RUNTIME_CPUDEVICE_H

#include "foresight/runtime/Device.h"

#include <string>
#include <vector>

namespace foresight {

enum class WeightMemory {
  Auto, ///< Copy where memory allows, otherwise Map
  Copy, ///< anonymous huge pages: 5-15 % faster decoding than 4 KiB file pages
  Map,  ///< the file's own pages: no copy, shared between processes
};

struct CpuOptions {
  /// 0: as many as the process may use (affinity mask, cgroup quota).
  int threads = 0;
  WeightMemory weights = WeightMemory::Auto;
  /// Name of the code variant to use; empty: the best that this CPU runs.
  std::string variant = {};
  /// Engine of prompt products: "own", "onednn", or empty for the default.
  std::string gemm = {};
};

/// Threads the process may use: the smaller of its affinity mask and its cgroup
/// CPU quota, rounded up.
int availableThreads();

/// Features of this CPU by the names that manifests use ("avx2", "fma",
/// "f16c", "avx512f", ...), as far as the operating system enables them.
std::vector<std::string> cpuFeatures();
/// "AMD EPYC 7443".
std::string cpuName();

/// `Usage` if options name what does not exist.
Result<std::unique_ptr<Device>> createCpuDevice(const CpuOptions &options = {});

/// Bytes a second that `threads` threads (0: all) read from a buffer far larger
/// than the caches: the best of several passes. What decoding is measured
/// against.
struct ReadBandwidth {
  double bytesPerSecond = 0;
  int threads = 0;
  int64_t bufferBytes = 0;
};
Result<ReadBandwidth> measureReadBandwidth(int threads = 0,
                                           int64_t bufferBytes = 1ll << 30,
                                           int passes = 8);

} // namespace foresight
#endif
