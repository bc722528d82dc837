//===- Machine.h - What this process may use --------------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_CPU_MACHINE_H
#define FORESIGHT_RUNTIME_CPU_MACHINE_H

#include "foresight/runtime/CpuDevice.h"

#include <cstdint>
#include <vector>

namespace foresight::cpu {

/// CPUs in the affinity mask of the calling thread.
std::vector<int> allowedCpus();

/// Bytes that may be allocated without swapping or meeting a cgroup limit;
/// INT64_MAX if unknown.
int64_t availableMemory();

} // namespace foresight::cpu
#endif
