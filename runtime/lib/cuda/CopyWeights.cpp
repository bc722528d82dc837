//===- CopyWeights.cpp - From the mapped file to the GPU ------------------===//
//
// Some threads take blocks in turn: check the block's sum, copy it to pinned
// memory, queue its copy to the GPU, and do the next while that is under way.
//
//===----------------------------------------------------------------------===//
#include "CudaProgram.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

namespace foresight::cuda {

Status CudaProgram::copyWeights(const Bundle &bundle) {
  const std::span<const std::byte> source = bundle.weights();
  constexpr uint64_t kMostThreads = 8;
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
      const uint64_t offset = block * bundle::kChecksumBlock;
      const size_t bytes = static_cast<size_t>(
          std::min(bundle::kChecksumBlock, source.size() - offset));
      const int side = static_cast<int>(turn % 2);
      Status s = bundle.checkWeights(block);
      if (s.ok())
        s = driver.check(driver.streamSynchronize(streams[side]),
                         "copy weights");
      if (s.ok()) {
        std::memcpy(staging[side].data(), source.data() + offset, bytes);
        s = driver.check(driver.copyToDevice(weights.data() + offset,
                                             staging[side].data(), bytes,
                                             streams[side]),
                         "copy weights");
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
  std::vector<std::jthread> pool;
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
  return failed;
}

} // namespace foresight::cuda
