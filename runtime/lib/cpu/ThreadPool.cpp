//===- ThreadPool.cpp - Runs stages on a few threads ----------------------===//
#include "ThreadPool.h"

#include "Machine.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace foresight::cpu {
namespace {

constexpr uint32_t kNoUnits = UINT32_MAX;
/// Longer than what separates two stages or two tokens' sampling as a rule; a
/// wake-up costs about as much.
constexpr std::chrono::microseconds kSpin(60);

uint64_t makeWord(uint32_t stage, uint32_t unit) {
  return uint64_t(stage) << 32 | unit;
}
uint32_t unitOf(uint64_t word) { return static_cast<uint32_t>(word); }

void futexWait(std::atomic<uint32_t> &address, uint32_t expected) {
  syscall(SYS_futex, &address, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr,
          0);
}
void futexWakeAll(std::atomic<uint32_t> &address) {
  syscall(SYS_futex, &address, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr,
          0);
}

void pinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // Where it is not allowed, threads run unpinned.
  (void)sched_setaffinity(0, sizeof(set), &set);
}

/// Pins the calling thread for the life of this object.
class ScopedPin {
public:
  explicit ScopedPin(const std::vector<int> &cpus) {
    if (cpus.empty() || sched_getaffinity(0, sizeof(before), &before) != 0)
      return;
    pinned = true;
    pinTo(cpus[0]);
  }
  ~ScopedPin() {
    if (pinned)
      (void)sched_setaffinity(0, sizeof(before), &before);
  }

private:
  cpu_set_t before;
  bool pinned = false;
};

} // namespace

struct ThreadPool::Worker {
  size_t index = 0;
  uint32_t claimed = 0;     ///< units of the stage that `done` lacks
  uint32_t total = 0;       ///< units of that stage
  uint32_t preparedFor = 0; ///< stage that `prepare` ran for; they start at 1
};

ThreadPool::ThreadPool(int threads)
    : word(makeWord(0, kNoUnits)), scratch(static_cast<size_t>(threads)) {
  const std::vector<int> allowed = allowedCpus();
  if (threads > 1 && static_cast<size_t>(threads) == allowed.size() &&
      threads == availableThreads())
    cpus = allowed;
  for (int i = 1; i < threads; ++i)
    helpers.emplace_back([this, i] { help(i); });
}

ThreadPool::~ThreadPool() {
  stopping.store(true);
  wakeAll();
  for (std::thread &helper : helpers)
    helper.join();
}

Status ThreadPool::reserveScratch(int64_t bytes) {
  for (HugeMemory &memory : scratch)
    if (memory.size() < bytes) {
      FORESIGHT_TRY(memory, HugeMemory::allocate(bytes));
      // Pages are there before they are needed.
      std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte(0));
    }
  return {};
}

int64_t ThreadPool::scratchBytes() const { return scratch.front().size(); }

void ThreadPool::help(int index) {
  // Signals are for the threads of the program that uses the pool.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  if (!cpus.empty())
    pinTo(cpus[static_cast<size_t>(index)]);
  Worker worker{};
  worker.index = static_cast<size_t>(index);
  while (!stopping.load(std::memory_order_relaxed)) {
    const uint64_t seen = word.load(std::memory_order_acquire);
    if (unitOf(seen) == kNoUnits)
      sleepUnlessChanged(seen, finished.load(std::memory_order_relaxed));
    while (claim(worker))
      ;
  }
}

void ThreadPool::run(std::span<const Task> tasks, const foresight_step &now) {
  if (tasks.empty())
    return;
  const ScopedPin pin(cpus);
  Worker worker{};
  next = tasks.data();
  last = tasks.data() + tasks.size();
  step = &now;
  const uint32_t before = finished.load(std::memory_order_relaxed);
  openNext(worker);
  for (;;) {
    while (claim(worker))
      ;
    const uint64_t seen = word.load(std::memory_order_acquire);
    if (finished.load(std::memory_order_acquire) != before)
      return;
    if (unitOf(seen) == kNoUnits)
      sleepUnlessChanged(seen, before);
  }
}

/// Claims some units and computes them, and opens the next stage if they were
/// the last to be completed. False if there was nothing to claim.
bool ThreadPool::claim(Worker &worker) {
  uint64_t seen = word.load(std::memory_order_acquire);
  for (;;) {
    const uint32_t begin = unitOf(seen);
    if (begin == kNoUnits)
      break;
    // These belong to the stage in `seen` if the exchange succeeds: they are
    // written only when no unit of it is left.
    const uint32_t total = units.load(std::memory_order_relaxed);
    const uint32_t end = begin + claimSize(total - begin);
    const uint32_t stage = static_cast<uint32_t>(seen >> 32);
    if (!word.compare_exchange_weak(
            seen, makeWord(stage, end == total ? kNoUnits : end),
            std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    const Task &task = *current.load(std::memory_order_relaxed);
    void *const own = scratch[worker.index].data();
    if (worker.preparedFor != stage) {
      worker.preparedFor = stage;
      if (task.prepare)
        task.prepare(task.args, step, own);
    }
    task.body(task.args, step, own, begin, end);
    worker.claimed += end - begin;
    worker.total = total;
    return true;
  }
  if (worker.claimed == 0)
    return false;
  const uint32_t mine = worker.claimed;
  worker.claimed = 0;
  if (done.fetch_add(mine, std::memory_order_acq_rel) + mine == worker.total)
    openNext(worker);
  return true;
}

/// Units of the next claim when `left` are left: fewer towards the end, so that
/// threads end together.
uint32_t ThreadPool::claimSize(uint32_t left) const {
  const uint32_t share = left / (2 * static_cast<uint32_t>(scratch.size()));
  return std::clamp(share, 1u, grain.load(std::memory_order_relaxed));
}

void ThreadPool::runAlone(Worker &worker, const Task &task) {
  void *const own = scratch[worker.index].data();
  if (task.prepare)
    task.prepare(task.args, step, own);
  task.body(task.args, step, own, 0, task.units);
}

void ThreadPool::openNext(Worker &worker) {
  for (; next != last; ++next) {
    const Task &task = *next;
    if (task.units == 0)
      continue;
    if (task.units <= task.grain || scratch.size() == 1) {
      runAlone(worker, task);
      continue;
    }
    ++next;
    current.store(&task, std::memory_order_relaxed);
    units.store(task.units, std::memory_order_relaxed);
    grain.store(task.grain, std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
    // Sequentially consistent with the load of `asleep` below: either that
    // sees a thread about to sleep, or the thread sees this word.
    word.store(makeWord(++stageNumber, 0), std::memory_order_seq_cst);
    if (asleep.load(std::memory_order_seq_cst))
      wakeAll();
    return;
  }
  finished.fetch_add(1, std::memory_order_seq_cst);
  if (asleep.load(std::memory_order_seq_cst))
    wakeAll();
}

void ThreadPool::wakeAll() {
  asleep.store(0);
  epoch.fetch_add(1);
  futexWakeAll(epoch);
}

/// Returns when the word or `finished` differ from what was seen, soon after
/// at least; returns too when the pool stops.
void ThreadPool::sleepUnlessChanged(uint64_t seen, uint32_t finishedSeen) {
  const auto changed = [&] {
    return word.load(std::memory_order_seq_cst) != seen ||
           finished.load(std::memory_order_seq_cst) != finishedSeen ||
           stopping.load(std::memory_order_seq_cst);
  };
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (changed())
        return;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  for (;;) {
    const uint32_t slept = epoch.load(std::memory_order_seq_cst);
    asleep.store(1, std::memory_order_seq_cst);
    if (changed())
      return;
    futexWait(epoch, slept);
  }
}

} // namespace foresight::cpu
