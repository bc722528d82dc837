//===- HugeMemory.cpp - Zeroed memory in huge pages -----------------------===//
#include "HugeMemory.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>

namespace foresight::cpu {

namespace {
constexpr size_t kHugePage = size_t(2) << 20;
constexpr int64_t kWorthIt = int64_t(1) << 20;
} // namespace

Result<HugeMemory> HugeMemory::allocate(int64_t bytes) {
  HugeMemory memory;
  const bool huge = bytes >= kWorthIt;
  memory.mappingBytes =
      static_cast<size_t>(bytes > 0 ? bytes : 1) + (huge ? 2 * kHugePage : 0);
  memory.mapping = mmap(nullptr, memory.mappingBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory.mapping == MAP_FAILED) {
    memory.mapping = nullptr;
    return makeError(ErrorCode::Resource, "no memory for ", bytes,
                     " bytes: ", std::strerror(errno));
  }
  memory.start = static_cast<std::byte *>(memory.mapping);
  if (huge) {
    const size_t past = reinterpret_cast<uintptr_t>(memory.start) % kHugePage;
    memory.start += past ? kHugePage - past : 0;
    // A hint: without huge pages everything works, only slower.
    const size_t whole =
        (static_cast<size_t>(bytes) + kHugePage - 1) / kHugePage * kHugePage;
    (void)madvise(memory.start, whole, MADV_HUGEPAGE);
  }
  memory.length = bytes;
  return memory;
}

HugeMemory::HugeMemory(HugeMemory &&other) noexcept
    : start(std::exchange(other.start, nullptr)),
      length(std::exchange(other.length, 0)),
      mapping(std::exchange(other.mapping, nullptr)),
      mappingBytes(std::exchange(other.mappingBytes, 0)) {}

HugeMemory &HugeMemory::operator=(HugeMemory &&other) noexcept {
  std::swap(start, other.start);
  std::swap(length, other.length);
  std::swap(mapping, other.mapping);
  std::swap(mappingBytes, other.mappingBytes);
  return *this;
}

HugeMemory::~HugeMemory() {
  if (mapping)
    munmap(mapping, mappingBytes);
}

} // namespace foresight::cpu
