//===- KernelBench.cpp - How fast generated kernels read ------------------===//
//
// foresight-kernel-bench [threads [variant [copies [name]]]]: GB/s of weights
// of each kernel of an OPT-1.3b layer, from memory (copies of the weights in
// turn, more than any cache holds), beside a plain reading loop run the same
// way.
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"

#include "foresight/lowbit/Pack.h"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>

using namespace foresight;
using namespace foresight::testing;

namespace {

constexpr int64_t kHidden = 2048, kNeurons = 8192;

/// Workers that spin between jobs.
class Pool {
public:
  explicit Pool(int threads) : count(threads) {
    for (int i = 1; i < threads; ++i)
      workers.emplace_back([this, i] {
        for (uint64_t seen = 0;;) {
          uint64_t now;
          while ((now = generation.load(std::memory_order_acquire)) == seen) {
          }
          seen = now;
          if (stop)
            return;
          job(i);
          done.fetch_add(1, std::memory_order_release);
        }
      });
  }
  ~Pool() {
    stop = true;
    generation.fetch_add(1);
    for (std::thread &worker : workers)
      worker.join();
  }
  void run(std::function<void(int)> f) {
    job = std::move(f);
    done = 0;
    generation.fetch_add(1, std::memory_order_release);
    job(0);
    while (done.load(std::memory_order_acquire) != count - 1) {
    }
  }
  const int count;

private:
  std::vector<std::thread> workers;
  std::function<void(int)> job;
  std::atomic<uint64_t> generation{0};
  std::atomic<int> done{0};
  std::atomic<bool> stop{false};
};

/// One thread is timed by the time that it ran, so that a busy machine does not
/// matter much.
bool timesThread = false;

double now() {
  timespec t;
  clock_gettime(timesThread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

/// Best of some passes over all copies, in bytes a second.
double measure(double bytes, const std::function<void()> &pass) {
  pass();
  double best = 1e30;
  for (int i = 0; i < 4; ++i) {
    double start = now();
    pass();
    best = std::min(best, now() - start);
  }
  return bytes / best;
}

struct Bench {
  Pool &pool;
  const Kernels &kernels;

  void runOnce(const std::string &name, std::vector<void *> args) {
    const KernelInfo &info = kernels.info(name);
    static std::vector<Memory> scratch;
    while (static_cast<int>(scratch.size()) < pool.count)
      scratch.emplace_back(1 << 20);
    auto prepare = kernels.prepareOf(name);
    auto body = kernels.bodyOf(name);
    std::atomic<int64_t> next{0};
    foresight_step step{1, 100};
    pool.run([&](int worker) {
      if (prepare)
        prepare(args.data(), &step, scratch[worker].data());
      for (;;) {
        int64_t begin = next.fetch_add(info.grain);
        if (begin >= info.units)
          return;
        body(args.data(), &step, scratch[worker].data(), begin,
             std::min(begin + info.grain, info.units));
      }
    });
  }
};

/// Kernels of a layer. Types are abbreviated: $x a row of the hidden size, $h
/// of neurons, $v and $b vectors of them, $w fc1 and fc2, $s a square matrix.
constexpr const char *kKernels = R"(
foresight.kernel @fc1(%x: $x, %g: $v, %b: $v, %w: $w, %b1: $b) {
  %n = foresight.layer_norm %x gamma(%g : $v) beta(%b : $v) epsilon = 1.0e-5 : $x -> $x
  %h = foresight.linear %n, %w bias(%b1 : $b) $relu : $x, $w -> $h
  foresight.yield %h : $h
}
foresight.kernel @out_proj(%x: $x, %w: $s, %r: $x) {
  %y = foresight.linear %x, %w : $x, $s -> $x
  %o = foresight.add %y, %r : $x
  foresight.yield %o : $x
}
foresight.kernel @attention(%kv: $kv, %q: $x, %k: $x, %v: $x, %pos: tensor<1xi32>) {
  %kv1 = foresight.kv_append %kv, %k, %v at %pos : $kv, $x, tensor<1xi32>
  %a = foresight.attention %q, %kv1 at %pos scale = 0.125 : $x, $kv, tensor<1xi32> -> $x
  foresight.yield %kv1, %a : $kv, $x
}
foresight.kernel @fc2_dense(%h: $h, %w: $w, %b2: $v, %r: $x) {
  %y = foresight.column_linear %h, %w bias(%b2 : $v) : $h, $w -> $x
  %o = foresight.add %r, %y : $x
  foresight.yield %o : $x
}
foresight.kernel @fc2_skip(%h: $h, %w: $w, %b2: $v, %r: $x) {
  %y = foresight.column_linear %h, %w bias(%b2 : $v) {skip_zeros} : $h, $w -> $x
  %o = foresight.add %r, %y : $x
  foresight.yield %o : $x
}
)";

/// fc1 with a copy of $bits bits.
constexpr const char *kSparseKernel = R"(
foresight.kernel @sparse$bits(%x: $x, %g: $v, %b: $v, %w: $w, %b1: $b, %copy: $copy) {
  %n0 = foresight.layer_norm %x epsilon = 1.0e-5 : $x -> $x
  %n = foresight.layer_norm %x gamma(%g : $v) beta(%b : $v) epsilon = 1.0e-5 : $x -> $x
  %s, %t = foresight.predict %n0, %copy : $x, $copy -> $h
  %set = foresight.select_certified %s, %n0, %copy kappa = 0.0884 after(%t) : $h, $x, $copy -> $set
  %h = foresight.gather_linear %n, %w bias(%b1 : $b) rows(%set) $relu : $x, $w, $set -> $h
  foresight.yield %h : $h
}
)";

std::string replaceAll(std::string text, const std::string &what,
                       const std::string &with) {
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

std::string text() {
  std::string all = kKernels;
  for (int bits = 2; bits <= 8; ++bits)
    all += replaceAll(replaceAll(kSparseKernel, "$copy",
                                 "!foresight.low_bit<8192 x 2048, $bits>"),
                      "$bits", std::to_string(bits));
  const std::pair<const char *, const char *> types[] = {
      {"$relu", "{activation = #foresight.activation<relu>}"},
      {"$set", "!foresight.index_set<8192 of 8192>"},
      {"$kv", "!foresight.kv_cache<32 x 64, 2048, f16>"},
      {"$w", "tensor<8192x2048xf16>"},
      {"$s", "tensor<2048x2048xf16>"},
      {"$x", "tensor<1x2048xf32>"},
      {"$h", "tensor<1x8192xf32>"},
      {"$v", "tensor<2048xf32>"},
      {"$b", "tensor<8192xf32>"}};
  for (auto [name, type] : types)
    all = replaceAll(std::move(all), name, type);
  return all;
}

} // namespace

/// At least 1.
static int number(const char *text) {
  return static_cast<int>(std::max(std::strtol(text, nullptr, 10), 1L));
}

int main(int argc, char **argv) {
  int threads = number(argc > 1 ? argv[1] : "2");
  const CpuVariant *variant = findCpuVariant(argc > 2 ? argv[2] : "x86-64-v3");
  std::string error;
  std::unique_ptr<Kernels> kernels =
      variant ? Kernels::compile(text(), *variant, error) : nullptr;
  if (!kernels) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  timesThread = threads == 1;
  Pool pool(threads);
  Bench bench{pool, *kernels};

  // Copies of fc1-shaped weights: half a GB.
  const int64_t totalCopies = number(argc > 3 ? argv[3] : "16");
  constexpr int64_t kBytes = kNeurons * kHidden * 2;
  Memory weights(totalCopies * kBytes);
  std::vector<float> values = randomValues(1, kNeurons * kHidden, 0.02f);
  Memory one = makeMatrix(Element::F16, kNeurons, kHidden, values);
  for (int64_t i = 0; i < totalCopies; ++i)
    std::memcpy(weights.as<char>() + i * kBytes, one.data(), kBytes);
  auto copy = [&](int64_t i) { return weights.as<char>() + i * kBytes; };

  double reading = measure(totalCopies * kBytes, [&] {
    std::atomic<int64_t> next{0};
    pool.run([&](int) {
      typedef long long Wide __attribute__((vector_size(64), aligned(64)));
      Wide sum{};
      constexpr int64_t kClaim = 256 << 10;
      for (int64_t at; (at = next.fetch_add(kClaim)) < totalCopies * kBytes;)
        for (int64_t b = 0; b < kClaim; b += 64)
          sum |= *reinterpret_cast<const Wide *>(weights.as<char>() + at + b);
      volatile long long sink = sum[0] + sum[3];
      (void)sink;
    });
  });
  std::printf("%-22s %6.1f GB/s, %d threads, %s\n", "plain reading",
              reading / 1e9, threads, variant->name.c_str());
  // An optional filter: the start of what to measure.
  std::string only = argc > 4 ? argv[4] : "";
  auto report = [&](const char *name, double bytes,
                    const std::function<void()> &pass) {
    if (std::string(name).compare(0, only.size(), only) != 0)
      return;
    double rate = measure(bytes, pass);
    std::printf("%-22s %6.1f GB/s, %5.1f %%\n", name, rate / 1e9,
                100 * rate / reading);
  };

  Memory x = makeRows(1, kHidden, randomValues(2, kHidden)),
         g = makeVector(std::vector<float>(kHidden, 1)),
         b = makeVector(std::vector<float>(kHidden, 0)),
         r = makeRows(1, kHidden), b1 = makeRows(1, kNeurons),
         h = makeRows(1, kNeurons), out = makeRows(1, kHidden),
         counts(4 * 1024), shared(kernels->info("fc2_skip").sharedBytes);
  report("fc1 dense", totalCopies * kBytes, [&] {
    for (int64_t i = 0; i < totalCopies; ++i)
      bench.runOnce(
          "fc1", {x.data(), g.data(), b.data(), copy(i), b1.data(), h.data()});
  });
  report("out_proj", totalCopies * kBytes, [&] {
    for (int64_t i = 0; i < totalCopies * 4; ++i)
      bench.runOnce("out_proj",
                    {x.data(), copy(0) + i * kBytes / 4, r.data(), out.data()});
  });
  report("fc2 dense", totalCopies * kBytes, [&] {
    for (int64_t i = 0; i < totalCopies; ++i)
      bench.runOnce("fc2_dense", {h.data(), copy(i), b.data(), r.data(),
                                  out.data(), shared.data()});
  });

  std::vector<float> active = randomValues(3, kNeurons),
                     coin = randomValues(4, kNeurons);
  int64_t count = 0;
  for (int64_t i = 0; i < kNeurons; ++i)
    count += (active[i] = (coin[i] + 1) / 2 < 0.075 ? active[i] : 0) != 0;
  Memory sparse = makeRows(1, kNeurons, active);
  report("fc2 7.5 % of rows", totalCopies * count * kHidden * 2, [&] {
    for (int64_t i = 0; i < totalCopies; ++i)
      bench.runOnce("fc2_skip", {sparse.data(), copy(i), b.data(), r.data(),
                                 out.data(), shared.data(), counts.data()});
  });

  for (int bits = 2; bits <= 8; ++bits) {
    // Biases so that about one in 13 neurons is kept, or none: scores alone.
    for (bool keep : {false, true}) {
      std::vector<float> bias(kNeurons);
      for (int64_t i = 0; i < kNeurons; ++i)
        bias[i] = keep && (coin[i] + 1) / 2 < 0.075 ? 5 : -5;
      int64_t bytes =
          (lowbit::record(kNeurons, kHidden, bits).bytes + 63) / 64 * 64;
      int64_t copies = std::min<int64_t>(totalCopies, (384 << 20) / bytes);
      Memory records(copies * bytes);
      lowbit::Packer packer(kNeurons, kHidden, bits, {}, {},
                            std::span(records.as<std::byte>(), bytes));
      // One row's codes serve for all: only the bias decides.
      for (int64_t i = 0; i < 32; ++i)
        packer.pack(i, std::span(values).subspan(i * kHidden, kHidden), 0);
      lowbit::Record layout = lowbit::record(kNeurons, kHidden, bits);
      int64_t rowBytes = lowbit::rowBytes(kHidden, bits);
      char *base = records.as<char>();
      for (int64_t i = 0; i < kNeurons; ++i) {
        std::memcpy(base + i * rowBytes, base + i % 32 * rowBytes, rowBytes);
        reinterpret_cast<float *>(base + layout.scale)[i] =
            reinterpret_cast<float *>(base + layout.scale)[i % 32];
        for (int64_t at : {layout.error, layout.norm})
          reinterpret_cast<uint16_t *>(base + at)[i] =
              reinterpret_cast<uint16_t *>(base + at)[i % 32];
        reinterpret_cast<float *>(base + layout.bias)[i] = bias[i];
      }
      for (int64_t i = 1; i < copies; ++i)
        std::memcpy(base + i * bytes, base, bytes);
      std::string name = "sparse" + std::to_string(bits);
      if (std::string("fc1 x bits")
              .replace(4, 1, std::to_string(bits))
              .compare(0, only.size(), only) != 0)
        continue;
      auto pass = [&] {
        for (int64_t i = 0; i < copies; ++i)
          bench.runOnce(name, {x.data(), g.data(), b.data(), copy(i), b1.data(),
                               base + i * bytes, h.data(), counts.data()});
      };
      pass();
      int64_t kept = 0;
      for (int64_t u = 0; u < kernels->info(name).units; ++u)
        kept += counts.as<int32_t>()[u];
      char label[64];
      std::snprintf(label, sizeof(label), "fc1 %d bits, %4.1f %% kept", bits,
                    100.0 * double(kept) / kNeurons);
      report(label, double(copies) * (bytes + kept * kHidden * 2), pass);
    }
  }

  Memory position(4), kv(int64_t(8) * 2 * 32 * 2048 * 64 * 2);
  *position.as<int32_t>() = 2047;
  report("attention 2048", 8.0 * 2 * 32 * 2048 * 64 * 2, [&] {
    for (int64_t i = 0; i < 8; ++i) {
      char *cache = kv.as<char>() + i * 2 * 32 * 2048 * 64 * 2;
      bench.runOnce("attention", {cache, x.data(), x.data(), x.data(),
                                  position.data(), cache, out.data()});
    }
  });
  return 0;
}
