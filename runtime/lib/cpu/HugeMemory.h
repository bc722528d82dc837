//===- HugeMemory.h - Zeroed memory in huge pages ---------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_CPU_HUGEMEMORY_H
#define FORESIGHT_RUNTIME_CPU_HUGEMEMORY_H

#include "foresight/support/Result.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace foresight::cpu {

/// Anonymous memory, zeroed, 64-byte aligned at least; from 1 MB on aligned to
/// and, where the system allows, backed by pages of 2 MB. Move-only.
class HugeMemory {
public:
  /// Resource if the system refuses. Pages are claimed when first touched.
  static Result<HugeMemory> allocate(int64_t bytes);

  HugeMemory() = default;
  HugeMemory(HugeMemory &&other) noexcept;
  HugeMemory &operator=(HugeMemory &&other) noexcept;
  ~HugeMemory();

  std::byte *data() const { return start; }
  int64_t size() const { return length; }
  std::span<std::byte> bytes() const {
    return {start, static_cast<size_t>(length)};
  }

private:
  std::byte *start = nullptr;
  int64_t length = 0;
  void *mapping = nullptr;
  size_t mappingBytes = 0;
};

} // namespace foresight::cpu
#endif
