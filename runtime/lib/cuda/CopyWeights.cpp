//===- CopyWeights.cpp - From the mapped file to the GPU ------------------===//
//
// Some threads take blocks in turn: read one to pinned memory, check its sum
// there, queue its copy to the GPU, and do the next while that is under way.
//
//===----------------------------------------------------------------------===//
#include "CudaProgram.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace foresight::cuda {

Status CudaProgram::copyWeights(const Bundle &bundle) {
  // A thread reads and checks some 4 GB/s, a link takes 25 to 55.
  constexpr uint64_t kMostThreads = 16;
  const uint64_t blocks = bundle.weightBlocks();
  const uint64_t threads = std::clamp<uint64_t>(
      std::min<uint64_t>(std::thread::hardware_concurrency(), blocks), 1,
      kMostThreads);
  std::atomic<uint64_t> next = 0;
  std::mutex mutex;
  Status failed;
  const auto work = [&]() -> Status {
    FORESIGHT_CHECK(driver.check(driver.contextSetCurrent(gpu.context),
                                 "use GPU " + gpu.name));
    PinnedMemory staging[2];
    Stream streams[2] = {};
    const auto release = [&](Status status) {
      for (Stream s : streams)
        if (s) {
          driver.streamSynchronize(s);
          driver.streamDestroy(s);
        }
      return status;
    };
    for (int i = 0; i < 2; ++i) {
      auto memory = PinnedMemory::allocate(
          driver, static_cast<int64_t>(bundle::kChecksumBlock));
      if (!memory.ok())
        return release(memory.error());
      staging[i] = std::move(*memory);
      if (Status s = driver.check(driver.streamCreate(&streams[i], 1),
                                  "create a stream");
          !s.ok())
        return release(std::move(s));
    }
    for (uint64_t turn = 0;; ++turn) {
      const uint64_t block = next++;
      if (block >= blocks)
        break;
      const int side = static_cast<int>(turn % 2);
      Status s =
          driver.check(driver.streamSynchronize(streams[side]), "copy weights");
      if (s.ok()) {
        const Result<size_t> bytes = bundle.readWeightBlock(
            block, {staging[side].data(), bundle::kChecksumBlock});
        s = bytes.ok()
                ? driver.check(
                      driver.copyToDevice(
                          weights.data() + block * bundle::kChecksumBlock,
                          staging[side].data(), *bytes, streams[side]),
                      "copy weights")
                : Status(bytes.error());
      }
      if (!s.ok())
        return release(std::move(s));
    }
    Status done;
    for (Stream s : streams)
      if (done.ok())
        done = driver.check(driver.streamSynchronize(s), "copy weights");
    return release(std::move(done));
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::jthread> pool;
  pool.reserve(threads);
  for (uint64_t i = 0; i < threads; ++i)
    pool.emplace_back([&] {
      Status s = work();
      if (s.ok())
        return;
      next = blocks;
      std::lock_guard lock(mutex);
      if (failed.ok())
        failed = std::move(s);
    });
  pool.clear();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  copyRate = static_cast<double>(weights.size()) / took.count();
  return failed;
}

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

} // namespace foresight::cuda
