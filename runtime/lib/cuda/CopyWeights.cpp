//===- CopyWeights.cpp - From the mapped file to the GPU ------------------===//
//
// Some threads take blocks in turn: copy one to pinned memory, check it, queue
// its copy to the GPU, and do the next while that is under way. A copy of less
// than some megabytes does not keep the link busy.
//
//===----------------------------------------------------------------------===//
#include "CudaProgram.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

namespace foresight::cuda {
namespace {

/// Room for the blocks of one thread. Pinning what the driver allocates takes
/// a second for 2 GB, pinning large pages that are there a tenth of it.
class Staging {
public:
  static constexpr size_t kBlocks = 2;

  explicit Staging(const Driver &driver) : driver(driver) {}
  Staging(const Staging &) = delete;
  Staging &operator=(const Staging &) = delete;
  ~Staging() {
    if (isPinned)
      driver.memHostUnregister(base);
    if (mapped != MAP_FAILED)
      ::munmap(mapped, kBytes + kPage);
  }

  Status pin() {
    mapped = ::mmap(nullptr, kBytes + kPage, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
      return makeError(ErrorCode::Resource,
                       "no memory to copy weights: ", std::strerror(errno));
    const auto start = reinterpret_cast<uintptr_t>(mapped);
    base = static_cast<std::byte *>(mapped) + (kPage - start % kPage) % kPage;
    // Without large pages it is only slower.
    ::madvise(base, kBytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < kBytes; at += kSmallPage)
      base[at] = std::byte{0};
    FORESIGHT_CHECK(driver.check(driver.memHostRegister(base, kBytes, 0),
                                 "pin " + std::to_string(kBytes) +
                                     " bytes of host memory"));
    isPinned = true;
    return {};
  }
  std::span<std::byte> block(uint64_t turn) const {
    return {base + turn % kBlocks * bundle::kChecksumBlock,
            bundle::kChecksumBlock};
  }

private:
  static constexpr size_t kSmallPage = 4 << 10, kPage = 2 << 20;
  static constexpr size_t kBytes = kBlocks * bundle::kChecksumBlock;

  const Driver &driver;
  void *mapped = MAP_FAILED;
  std::byte *base = nullptr;
  bool isPinned = false;
};

} // namespace

Status CudaProgram::copyWeights(const Bundle &bundle) {
  const auto start = std::chrono::steady_clock::now();
  // On 16 cores 12 to 16 threads are as fast.
  constexpr uint64_t kMostThreads = 14;
  const uint64_t blocks = bundle.weightBlocks();
  const uint64_t threads = std::clamp<uint64_t>(
      std::min<uint64_t>(std::thread::hardware_concurrency(), blocks), 1,
      kMostThreads);
  std::atomic<uint64_t> next = 0;
  std::mutex mutex;
  Status failed;
  const auto copyBlocks =
      [&](const Staging &staging,
          const Stream(&streams)[Staging::kBlocks]) -> Status {
    uint64_t turn = 0;
    for (uint64_t block = next++; block < blocks; block = next++, ++turn) {
      const Stream stream = streams[turn % Staging::kBlocks];
      const std::span<std::byte> to = staging.block(turn);
      FORESIGHT_CHECK(
          driver.check(driver.streamSynchronize(stream), "copy weights"));
      FORESIGHT_TRY(const size_t bytes, bundle.copyBlock(block, to));
      FORESIGHT_CHECK(driver.check(
          driver.copyToDevice(weights.data() + block * bundle::kChecksumBlock,
                              to.data(), bytes, stream),
          "copy weights"));
    }
    return {};
  };
  const auto work = [&]() -> Status {
    FORESIGHT_CHECK(driver.check(driver.contextSetCurrent(gpu.context),
                                 "use GPU " + gpu.name));
    Staging staging(driver);
    FORESIGHT_CHECK(staging.pin());
    Stream streams[Staging::kBlocks] = {};
    Status status;
    for (Stream &s : streams)
      if (status.ok())
        status = driver.check(driver.streamCreate(&s, 1), "create a stream");
    if (status.ok())
      status = copyBlocks(staging, streams);
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

} // namespace foresight::cuda
