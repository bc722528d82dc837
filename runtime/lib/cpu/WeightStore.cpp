//===- WeightStore.cpp - Weights in memory --------------------------------===//
#include "WeightStore.h"

#include "Machine.h"

#include <mutex>
#include <optional>

namespace foresight::cpu {
namespace {

struct Loading {
  const Bundle &bundle;
  std::span<std::byte> to; ///< empty: check only
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::optional<Error> error;
};

void loadBlocks(void *const *args, const foresight_step *, void *,
                int64_t begin, int64_t end) {
  Loading &loading = *static_cast<Loading *>(args[0]);
  for (int64_t i = begin; i < end && !loading.failed; ++i) {
    const auto index = static_cast<uint64_t>(i);
    Status status = loading.to.empty()
                        ? loading.bundle.checkWeights(index)
                        : loading.bundle.readWeights(index, loading.to);
    if (status.ok())
      continue;
    const std::lock_guard lock(loading.mutex);
    if (!loading.failed.exchange(true))
      loading.error = std::move(status).error();
  }
}

} // namespace

Result<WeightStore> WeightStore::load(const Bundle &bundle, WeightMemory how,
                                      int64_t reserved, ThreadPool &pool) {
  WeightStore store;
  const std::span<const std::byte> mapped = bundle.weights();
  if (mapped.empty())
    return store;
  const auto bytes = static_cast<int64_t>(mapped.size());
  const bool aligned =
      reinterpret_cast<uintptr_t>(mapped.data()) % FORESIGHT_ALIGNMENT == 0;
  const int64_t available = availableMemory();
  const bool fits = bytes + reserved <= available - available / 16;
  if (how == WeightMemory::Auto)
    how = fits ? WeightMemory::Copy : WeightMemory::Map;
  if (how == WeightMemory::Copy && !fits)
    return makeError(ErrorCode::Resource, bundle.path(), ": its ", bytes >> 20,
                     " MB of weights do not fit into the ", available >> 20,
                     " MB of memory that are available; use --weights=map");
  if (how == WeightMemory::Copy || !aligned) {
    FORESIGHT_TRY(store.copy, HugeMemory::allocate(bytes));
    store.start = store.copy.data();
  } else {
    store.start = mapped.data();
  }
  Loading loading{
      .bundle = bundle, .to = store.copy.bytes(), .mutex = {}, .error = {}};
  void *const args[] = {&loading};
  const Task task{.body = loadBlocks,
                  .args = args,
                  .units = static_cast<uint32_t>(bundle.weightBlocks())};
  pool.run({&task, 1}, {});
  if (loading.error)
    return *loading.error;
  return store;
}

} // namespace foresight::cpu
