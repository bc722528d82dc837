//===- DeviceTest.cpp - What every device must do -------------------------===//
#include "DeviceTest.h"

#include "foresight/runtime/CpuDevice.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

namespace foresight::test {

using testing::Each;
using testing::HasSubstr;

Program *DeviceTest::load() {
  program.reset();
  auto opened = Bundle::open(model.write("device.fsb"));
  if (!opened.ok()) {
    ADD_FAILURE() << opened.error().message;
    return nullptr;
  }
  bundle = std::make_unique<Bundle>(std::move(*opened));
  auto loaded = device->load(*bundle);
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.error().message;
    return nullptr;
  }
  program = std::move(*loaded);
  return program.get();
}

void DeviceTest::setInputs(const std::vector<int32_t> &ids, int32_t position) {
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), position);
  set("ids", ids);
  set("positions", positions);
}

#define EXPECT_OK(expression)                                                  \
  do {                                                                         \
    const Status status = (expression);                                        \
    EXPECT_TRUE(status.ok()) << status.error().message;                        \
  } while (false)

TEST_P(DeviceTest, SaysWhatItRuns) {
  ASSERT_NE(load(), nullptr);
  EXPECT_FALSE(program->description().empty());
  EXPECT_GT(program->memoryBytes(), 0);
}

TEST_P(DeviceTest, InputsReachTheFirstStageAndOutputsComeBack) {
  ASSERT_NE(load(), nullptr);
  setInputs({7}, 5);
  EXPECT_OK(program->run(entry("decode"), {1, 5}));
  const std::vector<float> logits = values<float>("logits", model.kVocab);
  for (int64_t v = 0; v < model.kVocab; ++v)
    // `tick` has counted one run.
    EXPECT_EQ(logits[static_cast<size_t>(v)], model.mixed(7, 5, v) + 1);
}

TEST_P(DeviceTest, BuffersStartZeroed) {
  ASSERT_NE(load(), nullptr);
  EXPECT_THAT(values<float>("memory", model.kColumns), Each(0.0f));
  EXPECT_THAT(values<float>("x", model.kColumns), Each(0.0f));
}

TEST_P(DeviceTest, EveryUnitRunsExactlyOnceWhateverTheGrain) {
  for (int64_t grain : {1, 2, 3, 63, 64, 65, 1000}) {
    for (Json &stage : model.manifest["entries"]["decode"]["stages"])
      stage["grain"] = grain;
    ASSERT_NE(load(), nullptr);
    for (int i = 0; i < 50; ++i)
      EXPECT_OK(program->run(entry("decode"), {1, 0}));
    EXPECT_THAT(values<float>("memory", model.kColumns), Each(50.0f))
        << "grain " << grain;
  }
}

TEST_P(DeviceTest, StateLivesFromCallToCallUntilReset) {
  ASSERT_NE(load(), nullptr);
  EXPECT_OK(program->run(entry("decode"), {1, 0}));
  EXPECT_OK(program->run(entry("prefill"), {3, 0}));
  EXPECT_THAT(values<float>("memory", model.kColumns), Each(2.0f));
  EXPECT_OK(program->reset());
  EXPECT_THAT(values<float>("memory", model.kColumns), Each(0.0f));
}

TEST_P(DeviceTest, AStageSeesAllOfTheStagesItFollows) {
  ASSERT_NE(load(), nullptr);
  // Each link reads units that others wrote: one missed or early unit shows.
  std::vector<float> expected(model.kChainUnits);
  for (size_t u = 0; u < expected.size(); ++u)
    expected[u] = static_cast<float>(u);
  const std::vector<float> start = expected;
  for (int64_t i = 0; i < model.kChains; ++i) {
    const std::vector<float> before = expected;
    for (size_t u = 0; u < expected.size(); ++u)
      expected[u] = before[(u * 7 + 3) % expected.size()] + 1;
  }
  for (int i = 0; i < 300; ++i) {
    set("a", start);
    EXPECT_OK(program->run(entry("decode"), {1, 0}));
    ASSERT_EQ(values<float>("a", model.kChainUnits), expected) << "run " << i;
  }
}

TEST_P(DeviceTest, UnitsPerTokenFollowTheNumberOfTokens) {
  ASSERT_NE(load(), nullptr);
  set("x", std::vector<float>(4 * model.kColumns, -99.0f));
  setInputs({3, 4, 5, 6}, 2);
  EXPECT_OK(program->runStage(entry("prefill"), 0, {3, 2}));
  std::vector<float> x = values<float>("x", 4 * model.kColumns);
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t c = 0; c < model.kColumns; ++c)
      EXPECT_EQ(x[static_cast<size_t>(t * model.kColumns + c)],
                t < 3 ? model.embedded(3 + static_cast<int32_t>(t), 2 + t, c)
                      : -99.0f);
  EXPECT_OK(program->runStage(entry("prefill"), 0, {4, 2}));
  x = values<float>("x", 4 * model.kColumns);
  EXPECT_EQ(x.back(), model.embedded(6, 5, model.kColumns - 1));
}

TEST_P(DeviceTest, LibraryProductsHaveBiasActivationAndResidual) {
  ASSERT_NE(load(), nullptr);
  for (int32_t tokens = 1; tokens <= 4; ++tokens) {
    std::vector<int32_t> ids = {9, 14, 19, 24};
    ids.resize(static_cast<size_t>(tokens));
    setInputs(ids, 1);
    EXPECT_OK(program->run(entry("prefill"), {tokens, 1}));
    const std::vector<float> y =
        values<float>("y", static_cast<size_t>(tokens * model.kColumns));
    // Small whole numbers: f32 sums are exact in any order.
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t c = 0; c < model.kColumns; ++c)
        ASSERT_EQ(y[static_cast<size_t>(t * model.kColumns + c)],
                  model.projected(ids[static_cast<size_t>(t)], 1 + t, c));
  }
}

TEST_P(DeviceTest, ProductIntoOneRowComputesOneRow) {
  // y of one row: what a product of the last token has.
  model.manifest["buffers"][5]["rows"] = 1;
  ASSERT_NE(load(), nullptr);
  set("counts", std::vector<int32_t>(model.kColumns, 77));
  setInputs({1, 2, 3}, 0);
  EXPECT_OK(program->runStage(entry("prefill"), 0, {3, 0}));
  EXPECT_OK(program->runStage(entry("prefill"), 1, {3, 0}));
  EXPECT_EQ(values<float>("y", 1)[0], model.projected(1, 0, 0));
  EXPECT_THAT(values<int32_t>("counts", model.kColumns), Each(77));
}

TEST_P(DeviceTest, TraceSumsWhatStagesCounted) {
  ASSERT_NE(load(), nullptr);
  RunTrace trace;
  EXPECT_OK(program->run(entry("decode"), {1, 0}, {&trace, nullptr}));
  ASSERT_EQ(trace.stages.size(),
            program->manifest()
                .entries[static_cast<size_t>(entry("decode"))]
                .stages.size());
  EXPECT_EQ(trace.stages[1].counted, 64 * 65 / 2);
  EXPECT_EQ(trace.stages[1].weightBytes, 100 + 2 * 64 * 65 / 2);
  EXPECT_GT(trace.stages[1].nanoseconds, 0);
  EXPECT_EQ(trace.stages[0].counted, 0);
}

/// Collects what a stage left, and changes it.
struct Watcher : StageObserver {
  explicit Watcher(const TestModel &model) : model(model) {}
  Status afterStage(Program &program, int64_t entry, int64_t stage,
                    const Step &step) override {
    seen.push_back(stage);
    if (stage == failAt)
      return makeError(ErrorCode::Usage, "stopped by the observer");
    if (stage == 0) {
      std::vector<float> x(static_cast<size_t>(model.kColumns), 2.0f);
      return program.write(model.buffer("x"), 0, std::as_bytes(std::span(x)));
    }
    return {};
  }
  const TestModel &model;
  std::vector<int64_t> seen;
  int64_t failAt = -1;
};

TEST_P(DeviceTest, ObserverSeesEveryStageAndMayChangeBuffers) {
  ASSERT_NE(load(), nullptr);
  Watcher watcher(model);
  setInputs({1}, 0);
  EXPECT_OK(program->run(entry("decode"), {1, 0}, {nullptr, &watcher}));
  const size_t stages = program->manifest()
                            .entries[static_cast<size_t>(entry("decode"))]
                            .stages.size();
  ASSERT_EQ(watcher.seen.size(), stages);
  EXPECT_TRUE(std::is_sorted(watcher.seen.begin(), watcher.seen.end()));
  // mix saw 64 twos: 2 + 128 * weight[c], weight[1] = -1; tick ran once.
  EXPECT_EQ(values<float>("logits", 2)[1], 2 - 128 + 1);
}

TEST_P(DeviceTest, ErrorOfAnObserverEndsTheRun) {
  ASSERT_NE(load(), nullptr);
  Watcher watcher(model);
  watcher.failAt = 1;
  const Status status =
      program->run(entry("decode"), {1, 0}, {nullptr, &watcher});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("stopped"));
  EXPECT_EQ(watcher.seen.size(), 2u);
  EXPECT_THAT(values<float>("memory", model.kColumns), Each(0.0f));
  EXPECT_OK(program->run(entry("decode"), {1, 0}));
}

/// Runs the dense form of a stage beside the sparse one.
struct Auditor : StageObserver {
  Status afterStage(Program &program, int64_t entry, int64_t stage,
                    const Step &step) override {
    const SelectionInfo &selection = program.manifest().selections[0];
    if (stage != selection.stage)
      return {};
    const int64_t dense = program.manifest().entryIndex("decode_dense");
    const std::span<std::byte> view = program.hostView(selection.activations);
    const std::vector<std::byte> before(view.begin(), view.end());
    RunTrace::Stage trace;
    FORESIGHT_CHECK(
        program.runStage(dense, selection.denseStage, step, &trace));
    equal = std::equal(before.begin(), before.end(), view.begin());
    denseBytes = trace.weightBytes;
    return {};
  }
  bool equal = false;
  int64_t denseBytes = 0;
};

TEST_P(DeviceTest, ObserverMayRunAnotherStageOnTheSide) {
  ASSERT_NE(load(), nullptr);
  if (program->hostView(0).empty())
    GTEST_SKIP() << "the host cannot see this device's buffers";
  Auditor auditor;
  setInputs({2}, 3);
  EXPECT_OK(program->run(entry("decode"), {1, 3}, {nullptr, &auditor}));
  EXPECT_TRUE(auditor.equal);
  EXPECT_EQ(auditor.denseBytes, 8256);
  EXPECT_EQ(values<float>("logits", 1)[0], model.mixed(2, 3, 0) + 1);
}

TEST_P(DeviceTest, WrongCallsAreErrors) {
  ASSERT_NE(load(), nullptr);
  const auto expectError = [](const Status &status, const char *text) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    EXPECT_THAT(status.error().message, HasSubstr(text));
  };
  expectError(program->run(-1, {1, 0}), "entry -1");
  expectError(program->run(9, {1, 0}), "entry 9");
  expectError(program->run(entry("decode"), {2, 0}), "1..1");
  expectError(program->run(entry("decode"), {0, 0}), "1..1");
  expectError(program->run(entry("decode"), {1, model.kMaxSeq}), "at most 32");
  expectError(program->run(entry("decode"), {1, -1}), "position -1");
  expectError(program->runStage(entry("decode"), 99, {1, 0}), "stage 99");
  expectError(program->write(99, 0, {}), "buffer 99");
  std::vector<std::byte> bytes(5);
  expectError(program->write(model.buffer("ids"), 14, bytes), "16 bytes");
  expectError(program->read(model.buffer("ids"), -1, bytes), "ids");
}

TEST_P(DeviceTest, BundleForAnotherDeviceIsRefused) {
  model.manifest["target"]["device"] = "abacus";
  auto opened = Bundle::open(model.write("abacus.fsb"));
  ASSERT_TRUE(opened.ok());
  const auto loaded = device->load(*opened);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::BadBundle);
  EXPECT_THAT(loaded.error().message, HasSubstr("abacus"));
}

TEST_P(DeviceTest, BundleForAnotherInstructionSetIsRefused) {
  model.manifest["target"]["variants"][0]["features"] = {"avx1024"};
  auto opened = Bundle::open(model.write("other.fsb"));
  ASSERT_TRUE(opened.ok());
  const auto loaded = device->load(*opened);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::BadBundle);
  EXPECT_THAT(loaded.error().message, HasSubstr("avx1024"));
}

TEST_P(DeviceTest, DamagedWeightsAreRefused) {
  const BundleImage image = model.image();
  std::string bytes = image.bytes();
  bytes[image.offsetOf(bundle::SectionKind::kWeights) + 100] ^= 1;
  const std::string path = temporaryPath("damaged.fsb");
  writeFile(path, bytes);
  auto opened = Bundle::open(path);
  ASSERT_TRUE(opened.ok());
  const auto loaded = device->load(*opened);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::BadBundle);
  EXPECT_THAT(loaded.error().message, HasSubstr("weights"));
}

TEST_P(DeviceTest, CodeThatIsMissingOrDamagedIsRefused) {
  model.manifest["kernels"][2]["name"] = "tock";
  auto opened = Bundle::open(model.write("tock.fsb"));
  ASSERT_TRUE(opened.ok());
  auto loaded = device->load(*opened);
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("tock.body"));

  BundleImage image = TestModel().image();
  image.sections[1].bytes = "not an object file";
  const std::string path = temporaryPath("nocode.fsb");
  writeFile(path, image.bytes());
  opened = Bundle::open(path);
  ASSERT_TRUE(opened.ok());
  loaded = device->load(*opened);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::BadBundle);
}

namespace {
DeviceUnderTest cpuDevice(int threads, WeightMemory weights) {
  return {std::string("cpu") + std::to_string(threads) +
              (weights == WeightMemory::Map ? "mapped" : ""),
          [=] {
            return createCpuDevice({.threads = threads, .weights = weights});
          }};
}
} // namespace

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceTest,
                         testing::Values(cpuDevice(1, WeightMemory::Copy),
                                         cpuDevice(2, WeightMemory::Copy),
                                         cpuDevice(3, WeightMemory::Map)),
                         [](const auto &info) { return info.param.name; });

} // namespace foresight::test
