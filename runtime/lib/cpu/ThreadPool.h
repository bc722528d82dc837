//===- ThreadPool.h - Runs stages on a few threads --------------*- C++ -*-===//
//
// Decoding a token is a hundred or more stages of 10 us to 2 ms, one after the
// other, so what happens between two stages must take well below a microsecond:
//
//  - The state of the running stage is one word: its number and the next unit.
//    Threads claim units from it by compare-and-swap. Whoever completes the
//    last unit opens the next stage by storing that word; threads that spin on
//    it go on after one cache line transfer.
//  - A thread that was preempted holds up a stage only while it holds units of
//    it: the others claim the rest, open the next stage and leave it behind.
//  - Claims are `grain` units, towards the end of a stage fewer.
//    A claim that such a thread attempts later fails, because the number of the
//    stage has changed.
//  - A stage that is one claim is run by the thread that would open it.
//  - Threads with nothing to do spin for tens of microseconds, then sleep.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RUNTIME_CPU_THREADPOOL_H
#define FORESIGHT_RUNTIME_CPU_THREADPOOL_H

#include "HugeMemory.h"

#include "foresight/abi/Kernel.h"

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace foresight::cpu {

/// A stage as threads run it. `units` may be 0: then nothing happens.
struct Task {
  foresight_prepare_fn prepare = nullptr; ///< may be null
  foresight_body_fn body = nullptr;
  void *const *args = nullptr;
  uint32_t units = 0, grain = 1;
};

/// The thread that calls `run` and `threads - 1` others. One `run` at a time.
/// Threads are pinned to CPUs if there are as many as the process may use;
/// fewer are left to the scheduler, so that processes do not meet on one CPU.
class ThreadPool {
public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  int threads() const { return static_cast<int>(scratch.size()); }

  /// Gives every thread at least `bytes` of scratch memory, zeroed. Must not be
  /// called while tasks run.
  Status reserveScratch(int64_t bytes);
  int64_t scratchBytes() const;

  /// Runs tasks one after the other; each sees all that earlier ones wrote.
  /// Allocates nothing.
  void run(std::span<const Task> tasks, const foresight_step &step);

private:
  struct Worker;
  void help(int index);
  bool claim(Worker &worker);
  uint32_t claimSize(uint32_t left) const;
  void runAlone(Worker &worker, const Task &task);
  void openNext(Worker &worker);
  void wakeAll();
  void sleepUnlessChanged(uint64_t seen, uint32_t finishedSeen);

  // Word: number of the stage << 32 | next unit, or kNoUnits.
  alignas(64) std::atomic<uint64_t> word;
  std::atomic<uint32_t> units{0}, grain{1};
  std::atomic<const Task *> current{nullptr};
  alignas(64) std::atomic<uint32_t> done{0};
  alignas(64) std::atomic<uint32_t> finished{0}; ///< runs
  std::atomic<uint32_t> asleep{0}, epoch{0};
  std::atomic<bool> stopping{false};
  // Written while no stage is open.
  alignas(64) const Task *next = nullptr;
  const Task *last = nullptr;
  const foresight_step *step = nullptr;
  uint32_t stageNumber = 0;

  std::vector<HugeMemory> scratch; ///< one a thread
  std::vector<std::thread> helpers;
  std::vector<int> cpus; ///< to pin to, one a thread; empty: not pinned
};

} // namespace foresight::cpu
#endif
