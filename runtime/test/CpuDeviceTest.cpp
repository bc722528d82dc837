//===- CpuDeviceTest.cpp - What only the CPU device does ------------------===//
#include "TestBundle.h"

#include "cpu/ThreadPool.h"

#include "foresight/runtime/CpuDevice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace foresight::test {
namespace {

using cpu::Task;
using cpu::ThreadPool;
using testing::Contains;
using testing::HasSubstr;

/// Adds to each unit's place and to a sum that `prepare` must have reset.
struct Adding {
  std::vector<std::atomic<int>> runs;
  std::atomic<int> wrongScratch = 0;
  explicit Adding(size_t units) : runs(units) {}

  static void prepare(void *const *args, const foresight_step *step,
                      void *scratch) {
    *static_cast<int64_t *>(scratch) = step->position;
  }
  static void body(void *const *args, const foresight_step *step, void *scratch,
                   int64_t begin, int64_t end) {
    Adding &self = *static_cast<Adding *>(args[0]);
    if (*static_cast<int64_t *>(scratch) != step->position)
      self.wrongScratch++;
    for (int64_t i = begin; i < end; ++i)
      self.runs[static_cast<size_t>(i)]++;
  }
};

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryUnitOfManyTasksOnce) {
  ThreadPool pool(GetParam());
  ASSERT_TRUE(pool.reserveScratch(64).ok());
  Adding adding(100);
  void *const args[] = {&adding};
  std::vector<Task> tasks;
  int expected = 0;
  for (uint32_t i = 0; i < 60; ++i) {
    // Sizes around one claim, none and many.
    const uint32_t units = i % 4 == 0 ? 0 : i % 4 == 1 ? 1 : 100;
    tasks.push_back({Adding::prepare, Adding::body, args, units, 1 + i % 30});
    expected += units == 100;
  }
  const int once = expected;
  for (int run = 0; run < 200; ++run)
    pool.run(tasks, {1, run});
  EXPECT_EQ(adding.wrongScratch, 0);
  for (size_t i = 1; i < adding.runs.size(); ++i)
    ASSERT_EQ(adding.runs[i], 200 * once) << i;
}

TEST_P(ThreadPoolTest, WorksAfterThreadsHaveGoneToSleep) {
  ThreadPool pool(GetParam());
  ASSERT_TRUE(pool.reserveScratch(64).ok());
  Adding adding(50);
  void *const args[] = {&adding};
  const Task task{Adding::prepare, Adding::body, args, 50, 1};
  for (int run = 0; run < 20; ++run) {
    pool.run({&task, 1}, {1, run});
    std::this_thread::sleep_for(std::chrono::microseconds(100 * run));
  }
  for (const std::atomic<int> &runs : adding.runs)
    ASSERT_EQ(runs, 20);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8),
                         testing::PrintToStringParamName());

TEST(ThreadPool, AThreadThatSleepsHoldsUpOnlyWhatItClaimed) {
  // One unit takes long; the others are done by the other thread meanwhile.
  struct Slow {
    std::atomic<int> done = 0;
    int doneBeforeSlow = 0;
    static void body(void *const *args, const foresight_step *, void *,
                     int64_t begin, int64_t end) {
      Slow &self = *static_cast<Slow *>(args[0]);
      if (begin == 0) {
        for (int i = 0; i < 2000 && self.done < 9; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        self.doneBeforeSlow = self.done;
        return;
      }
      self.done++;
    }
  } slow;
  ThreadPool pool(2);
  ASSERT_TRUE(pool.reserveScratch(64).ok());
  void *const args[] = {&slow};
  const Task task{nullptr, Slow::body, args, 10, 1};
  pool.run({&task, 1}, {});
  EXPECT_EQ(slow.doneBeforeSlow, 9);
}

TEST(CpuDevice, GivesTheSameLogitsWithAnyNumberOfThreads) {
  const TestModel model;
  auto bundle = Bundle::open(model.write("threads.fsb"));
  ASSERT_TRUE(bundle.ok());
  std::vector<std::vector<float>> logits;
  for (int threads : {1, 2, 3}) {
    auto device = createCpuDevice({.threads = threads});
    ASSERT_TRUE(device.ok());
    auto program = (*device)->load(*bundle);
    ASSERT_TRUE(program.ok()) << program.error().message;
    const std::vector<int32_t> ids = {5, 9, 2, 31}, positions = {0, 1, 2, 3};
    ASSERT_TRUE((*program)->write(0, 0, std::as_bytes(std::span(ids))).ok());
    ASSERT_TRUE(
        (*program)->write(1, 0, std::as_bytes(std::span(positions))).ok());
    for (const auto &[entry, tokens] : {std::pair("prefill", 4), {"decode", 1}})
      ASSERT_TRUE((*program)
                      ->run(bundle->manifest().entryIndex(entry), {tokens, 0})
                      .ok());
    logits.emplace_back(model.kVocab);
    ASSERT_TRUE(
        (*program)
            ->read(2, 0, std::as_writable_bytes(std::span(logits.back())))
            .ok());
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(logits[0], logits[2]);
}

TEST(CpuDevice, RefusesOptionsThatDoNotExist) {
  for (const CpuOptions &options :
       {CpuOptions{.threads = -1}, CpuOptions{.threads = 1 << 20},
        CpuOptions{.gemm = "blas"}}) {
    const auto device = createCpuDevice(options);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().code, ErrorCode::Usage);
  }
  auto bundle = Bundle::open(TestModel().write("variant.fsb"));
  ASSERT_TRUE(bundle.ok());
  auto device = createCpuDevice({.variant = "x86-64-v9"});
  ASSERT_TRUE(device.ok());
  const auto program = (*device)->load(*bundle);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::Usage);
  EXPECT_THAT(program.error().message, HasSubstr("base"));
}

TEST(CpuDevice, TakesTheLastVariantThatThisCpuRuns) {
  TestModel model;
  Json &variants = model.manifest["target"]["variants"];
  const Json base = variants[0];
  variants = {base, base, base};
  variants[0]["name"] = "unused";
  variants[2]["name"] = "future";
  variants[2]["features"] = {"avx1024"};
  auto bundle = Bundle::open(model.write("variants.fsb"));
  ASSERT_TRUE(bundle.ok());
  auto device = createCpuDevice({.threads = 1});
  auto program = (*device)->load(*bundle);
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_THAT((*program)->description(), HasSubstr("base code, 1 thread"));
}

TEST(CpuDevice, KnowsTheMachine) {
  EXPECT_GE(availableThreads(), 1);
  EXPECT_THAT(cpuFeatures(), Contains("sse2"));
  EXPECT_FALSE(cpuName().empty());
}

TEST(ReadBandwidth, MeasuresSomething) {
  const auto result = measureReadBandwidth(2, 8 << 20, 2);
  ASSERT_TRUE(result.ok());
  EXPECT_GT(result->bytesPerSecond, 1e7);
  EXPECT_EQ(result->bufferBytes, 8 << 20);
  EXPECT_FALSE(measureReadBandwidth(1, 5, 1).ok());
}

} // namespace
} // namespace foresight::test
