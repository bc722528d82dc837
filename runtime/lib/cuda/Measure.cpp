//===- Measure.cpp - What the GPU's link and memory reach -----------------===//
#include "CudaProgram.h"

#include <algorithm>

namespace foresight::cuda {

/// What one stream of copies from pinned memory reaches.
Status CudaProgram::measureLink() {
  constexpr int64_t kBytes = 64 << 20;
  constexpr int kCopies = 8;
  FORESIGHT_TRY(const PinnedMemory from,
                PinnedMemory::allocate(driver, kBytes));
  FORESIGHT_TRY(const DeviceMemory to, DeviceMemory::allocate(driver, kBytes));
  // The first copy warms up.
  for (int i = 0; i <= kCopies; ++i) {
    if (i == 1)
      FORESIGHT_CHECK(
          driver.check(driver.eventRecord(events[0], stream), "time"));
    FORESIGHT_CHECK(driver.check(
        driver.copyToDevice(to.data(), from.data(), kBytes, stream),
        "copy to the GPU"));
  }
  FORESIGHT_CHECK(driver.check(driver.eventRecord(events[1], stream), "time"));
  FORESIGHT_CHECK(finish("copy to the GPU"));
  float milliseconds = 0;
  FORESIGHT_CHECK(driver.check(
      driver.eventElapsed(&milliseconds, events[0], events[1]), "time"));
  linkRate = kCopies * double(kBytes) / (double(milliseconds) * 1e-3);
  return {};
}

/// What a kernel that only reads reaches, over far more than caches hold: the
/// best of several passes. Nothing for code of a compiler that had no such
/// kernel, and where there is no room.
Status CudaProgram::measureMemory() {
  constexpr unsigned kThreads = 256, kBlocksPerSm = 8;
  constexpr int64_t kLeast = 1 << 30, kMost = int64_t{4} << 30;
  constexpr int kPasses = 5;
  Function function = nullptr;
  if (driver.moduleGetFunction(&function, module, "foresight_read") != 0)
    return {};
  DeviceMemory own;
  if (weights.size() < kLeast) {
    Result<DeviceMemory> room = DeviceMemory::allocate(driver, kLeast);
    if (!room.ok())
      return {};
    own = std::move(*room);
  }
  const DeviceMemory &memory = own.size() > 0 ? own : weights;
  FORESIGHT_TRY(const DeviceMemory out, DeviceMemory::allocate(driver, 16));
  Pointer from = memory.data(), to = out.data();
  int64_t vectors = std::min(memory.size(), kMost) / 16;
  void *parameters[] = {&from, &vectors, &to};
  LaunchConfig config{};
  config.gridX = kBlocksPerSm * static_cast<unsigned>(gpu.multiprocessors);
  config.gridY = config.gridZ = config.blockY = config.blockZ = 1;
  config.blockX = kThreads;
  config.stream = stream;
  for (int i = 0; i < kPasses; ++i) {
    FORESIGHT_CHECK(
        driver.check(driver.eventRecord(events[0], stream), "time"));
    FORESIGHT_CHECK(
        driver.check(driver.launch(&config, function, parameters, nullptr),
                     "read the GPU's memory"));
    FORESIGHT_CHECK(
        driver.check(driver.eventRecord(events[1], stream), "time"));
    FORESIGHT_CHECK(finish("read the GPU's memory"));
    float milliseconds = 0;
    FORESIGHT_CHECK(driver.check(
        driver.eventElapsed(&milliseconds, events[0], events[1]), "time"));
    if (milliseconds > 0)
      memoryRate = std::max(memoryRate, 16 * double(vectors) /
                                            (double(milliseconds) * 1e-3));
  }
  return {};
}

} // namespace foresight::cuda
