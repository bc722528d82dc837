//===- Memory.h - Device and pinned memory that frees itself ----*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_CUDA_MEMORY_H
#define FORESIGHT_RUNTIME_CUDA_MEMORY_H

#include "Driver.h"

#include <utility>

namespace foresight::cuda {

/// GPU memory. Move-only; the context must be current when it is freed.
class DeviceMemory {
public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory &&other) noexcept { *this = std::move(other); }
  DeviceMemory &operator=(DeviceMemory &&other) noexcept {
    std::swap(driver, other.driver);
    std::swap(base, other.base);
    std::swap(length, other.length);
    return *this;
  }
  ~DeviceMemory() {
    if (base)
      driver->memFree(base);
  }
  static Result<DeviceMemory> allocate(const Driver &driver, int64_t bytes) {
    DeviceMemory memory;
    memory.driver = &driver;
    if (bytes > 0)
      FORESIGHT_CHECK(driver.check(
          driver.memAlloc(&memory.base, static_cast<size_t>(bytes)),
          "allocate " + std::to_string(bytes) + " bytes on the GPU"));
    memory.length = bytes;
    return memory;
  }
  Pointer data() const { return base; }
  int64_t size() const { return length; }

private:
  const Driver *driver = nullptr;
  Pointer base = 0;
  int64_t length = 0;
};

/// Host memory that the GPU copies from and to directly. Move-only.
class PinnedMemory {
public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory &&other) noexcept { *this = std::move(other); }
  PinnedMemory &operator=(PinnedMemory &&other) noexcept {
    std::swap(driver, other.driver);
    std::swap(base, other.base);
    std::swap(length, other.length);
    return *this;
  }
  ~PinnedMemory() {
    if (base)
      driver->memFreeHost(base);
  }
  static Result<PinnedMemory> allocate(const Driver &driver, int64_t bytes) {
    PinnedMemory memory;
    memory.driver = &driver;
    FORESIGHT_CHECK(driver.check(
        driver.memHostAlloc(&memory.base, static_cast<size_t>(bytes), 0),
        "pin " + std::to_string(bytes) + " bytes of host memory"));
    memory.length = bytes;
    return memory;
  }
  std::byte *data() const { return static_cast<std::byte *>(base); }
  int64_t size() const { return length; }

private:
  const Driver *driver = nullptr;
  void *base = nullptr;
  int64_t length = 0;
};

} // namespace foresight::cuda
#endif
