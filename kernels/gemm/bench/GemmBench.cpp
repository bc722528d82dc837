//===- GemmBench.cpp - Speed of prompt products ---------------------------===//
// usage: gemm-bench [tokens [threads]]
// Prints GFLOP/s of every engine over the shapes of an OPT-1.3b layer, best and
// median of several passes, weights cold in the caches as they are in a model.
#include "foresight/gemm/Gemm.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/mman.h>

using namespace foresight::gemm;

namespace {

struct Shape {
  const char *name;
  int64_t n, k;
  Layout layout;
};
const Shape kShapes[] = {{"qkv, out_proj", 2048, 2048, Layout::OutIn},
                         {"fc1", 8192, 2048, Layout::OutIn},
                         {"fc2", 2048, 8192, Layout::InOut}};

struct Free {
  void operator()(void *p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;
Memory allocate(int64_t bytes) {
  // Huge pages, as the runtime uses for weights.
  const size_t size = static_cast<size_t>((bytes >> 21) + 1) << 21;
  Memory memory(std::aligned_alloc(size_t(2) << 20, size));
  madvise(memory.get(), size, MADV_HUGEPAGE);
  return memory;
}

double secondsOf(const Engine &engine, const Product &product, int64_t tokens,
                 int threads, std::vector<Memory> &scratch) {
  std::atomic<int64_t> next = 0;
  const int64_t units = engine.units(product, tokens);
  auto work = [&](int index) {
    void *own = scratch[static_cast<size_t>(index)].get();
    engine.prepare(product, tokens, own);
    for (int64_t unit; (unit = next++) < units;)
      engine.compute(product, tokens, own, unit, unit + 1);
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> team;
  for (int i = 1; i < threads; ++i)
    team.emplace_back(work, i);
  work(0);
  for (std::thread &thread : team)
    thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// 0 if `text` is no number.
int64_t count(std::string_view text) {
  int32_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

constexpr int kPasses = 9;

void measure(const Engine &engine, const Shape &shape, WeightType type,
             int64_t tokens, int threads) {
  const int64_t elements = shape.n * shape.k;
  const int64_t width = type == WeightType::F32 ? 4 : 2;
  // Several matrices, so that none is in a cache when its turn comes.
  const int64_t copies = std::max<int64_t>(1, (96 << 20) / (elements * width));
  Memory weights = allocate(elements * width * copies);
  uint32_t state = 1;
  for (int64_t i = 0; i < elements * copies; ++i) {
    state = state * 1664525u + 1013904223u;
    if (type == WeightType::F32)
      static_cast<float *>(weights.get())[i] =
          static_cast<float>(static_cast<int32_t>(state)) * 1e-11f;
    else // any f16 or bf16 below 2 in size
      static_cast<uint16_t *>(weights.get())[i] =
          static_cast<uint16_t>(state >> 16) & 0xbbffu;
  }
  std::vector<float> x(static_cast<size_t>(tokens * shape.k), 0.5f);
  std::vector<float> y(static_cast<size_t>(tokens * shape.n));
  Product product;
  product.n = shape.n;
  product.k = shape.k;
  product.layout = shape.layout;
  product.type = type;
  product.weightStride = shape.layout == Layout::OutIn ? shape.k : shape.n;
  product.x = x.data();
  product.xStride = shape.k;
  product.y = y.data();
  product.yStride = shape.n;
  std::vector<Memory> scratch;
  scratch.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i)
    scratch.push_back(allocate(engine.scratchBytes(product, tokens)));
  std::vector<double> seconds;
  seconds.reserve(kPasses);
  for (int pass = 0; pass < kPasses; ++pass) {
    product.weight =
        static_cast<char *>(weights.get()) + (pass % copies) * elements * width;
    seconds.push_back(secondsOf(engine, product, tokens, threads, scratch));
  }
  std::sort(seconds.begin(), seconds.end());
  const double flops = 2.0 * static_cast<double>(tokens * elements);
  std::printf("%-8s %-14s %-4s %5lld x %5lld x %5lld  best %7.1f  median %7.1f "
              "GFLOP/s\n",
              std::string(engine.name()).c_str(), shape.name,
              type == WeightType::F32   ? "f32"
              : type == WeightType::F16 ? "f16"
                                        : "bf16",
              static_cast<long long>(tokens), static_cast<long long>(shape.n),
              static_cast<long long>(shape.k), flops / seconds.front() * 1e-9,
              flops / seconds[seconds.size() / 2] * 1e-9);
}

} // namespace

int main(int argc, char **argv) {
  const int64_t tokens = argc > 1 ? count(argv[1]) : 128;
  const int threads = static_cast<int>(
      argc > 2 ? count(argv[2]) : std::thread::hardware_concurrency());
  if (tokens < 1 || threads < 1) {
    std::fprintf(stderr, "usage: gemm-bench [tokens [threads]]\n");
    return 2;
  }
  std::printf("%d threads\n", threads);
  for (const char *name : {"avx2", "avx512", "onednn"}) {
    std::string reason;
    const Engine *engine = findEngine(name, &reason);
    if (!engine) {
      std::printf("%-8s %s\n", name, reason.c_str());
      continue;
    }
    for (const Shape &shape : kShapes)
      for (WeightType type :
           {WeightType::F32, WeightType::F16, WeightType::BF16})
        measure(*engine, shape, type, tokens, threads);
  }
  return 0;
}
