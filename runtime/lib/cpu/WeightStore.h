//===- WeightStore.h - Weights in memory ------------------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_CPU_WEIGHTSTORE_H
#define FORESIGHT_RUNTIME_CPU_WEIGHTSTORE_H

#include "HugeMemory.h"
#include "ThreadPool.h"

#include "foresight/runtime/Bundle.h"
#include "foresight/runtime/CpuDevice.h"

namespace foresight::cpu {

/// A bundle's weights section, checked: copied into huge pages, or where the
/// file is mapped. The bundle must outlive it.
class WeightStore {
public:
  /// Reads and checks all blocks with all threads of `pool`. `reserved` bytes
  /// of memory are needed for other things.
  static Result<WeightStore> load(const Bundle &bundle, WeightMemory how,
                                  int64_t reserved, ThreadPool &pool);

  const std::byte *data() const { return start; }
  bool isCopy() const { return copy.data() != nullptr; }
  int64_t memoryBytes() const { return copy.size(); }

private:
  HugeMemory copy;
  const std::byte *start = nullptr;
};

} // namespace foresight::cpu
#endif
