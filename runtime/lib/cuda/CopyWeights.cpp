//===- CopyWeights.cpp - From the mapped file to the GPU ------------------===//
//
// Some threads take blocks in turn: read a piece of one to pinned memory, add
// it to its checksum there, queue its copy to the GPU, and do the next while
// that is under way. A block whose checksum is wrong has been copied for
// nothing. All pieces together stay in a cache, from which the link takes them:
// memory would otherwise be read or written five times a byte.
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
  const auto start = std::chrono::steady_clock::now();
  // Of 16 threads that have two pieces each, 32 MB; pinning takes time too.
  constexpr uint64_t kMostThreads = 16;
  constexpr int64_t kPiece = 1 << 20;
  const uint64_t blocks = bundle.weightBlocks();
  const uint64_t threads = std::clamp<uint64_t>(
      std::min<uint64_t>(std::thread::hardware_concurrency(), blocks), 1,
      kMostThreads);
  FORESIGHT_TRY(const PinnedMemory staging,
                PinnedMemory::allocate(driver, static_cast<int64_t>(threads) *
                                                   2 * kPiece));
  std::atomic<uint64_t> next = 0;
  std::mutex mutex;
  Status failed;
  const auto copyBlocks = [&](std::byte *const pieces,
                              const Stream(&streams)[2]) -> Status {
    uint64_t turn = 0;
    for (uint64_t block = next++; block < blocks; block = next++) {
      Bundle::BlockReader reader(bundle, block);
      Pointer to = weights.data() + block * bundle::kChecksumBlock;
      for (;; ++turn) {
        std::byte *const piece = pieces + turn % 2 * kPiece;
        const Stream stream = streams[turn % 2];
        FORESIGHT_CHECK(
            driver.check(driver.streamSynchronize(stream), "copy weights"));
        FORESIGHT_TRY(const size_t bytes, reader.read({piece, kPiece}));
        if (bytes == 0)
          break;
        FORESIGHT_CHECK(driver.check(
            driver.copyToDevice(to, piece, bytes, stream), "copy weights"));
        to += bytes;
      }
    }
    return {};
  };
  const auto work = [&](uint64_t thread) -> Status {
    FORESIGHT_CHECK(driver.check(driver.contextSetCurrent(gpu.context),
                                 "use GPU " + gpu.name));
    Stream streams[2] = {};
    Status status;
    for (Stream &s : streams)
      if (status.ok())
        status = driver.check(driver.streamCreate(&s, 1), "create a stream");
    if (status.ok())
      status = copyBlocks(staging.data() + thread * 2 * kPiece, streams);
    for (Stream s : streams)
      if (s) {
        Status copied =
            driver.check(driver.streamSynchronize(s), "copy weights");
        if (status.ok())
          status = std::move(copied);
        driver.streamDestroy(s);
      }
    return status;
  };
  std::vector<std::jthread> pool;
  pool.reserve(threads);
  for (uint64_t i = 0; i < threads; ++i)
    pool.emplace_back([&, i] {
      Status s = work(i);
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
