//===- CudaDeviceTest.cpp - The GPU's runtime with a driver of its own ----===//
#include "TestBundle.h"
#include "fake-cuda/FakeCuda.h"

#include "foresight/abi/Kernel.h"
#include "foresight/abi/Sampling.h"
#include "foresight/runtime/CudaDevice.h"
#include "foresight/runtime/Session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace foresight::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kVocab = TestModel::kVocab, kMaxSeq = TestModel::kMaxSeq;

template <typename T> T *at(uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are so.
  return reinterpret_cast<T *>(address);
}

/// The step of a made-up model: what follows a token depends on it and on its
/// place.
int32_t follower(int32_t id, int32_t position) {
  return (id * 5 + position * 3 + 1) % kVocab;
}

/// ids, positions, logits, step. The last row's logits.
void step(std::span<const uint64_t> p) {
  const int64_t last = at<foresight_step>(p[3])->tokens - 1;
  float *logits = at<float>(p[2]);
  std::fill_n(logits, kVocab, 0.f);
  logits[follower(at<int32_t>(p[0])[last], at<int32_t>(p[1])[last])] = 1;
}

/// What Sampling.h says of FORESIGHT_PICK_LARGEST for one row.
void pickLargest(std::span<const uint64_t> p) {
  const float *logits = at<float>(p[0]);
  auto &state = *at<foresight_pick_state>(p[1]);
  const auto &sampling = *at<foresight_sampling>(p[2]);
  ASSERT_EQ(p[7], static_cast<uint64_t>(kVocab));
  const auto best =
      static_cast<int32_t>(std::max_element(logits, logits + kVocab) - logits);
  const bool isOdd = std::isnan(logits[0]);
  const int32_t fed =
      sampling.forced ? at<int32_t>(sampling.forced)[state.index] : best;
  at<int32_t>(p[3])[0] = isOdd ? 0 : fed;
  at<int32_t>(p[4])[0] = static_cast<int32_t>(state.position);
  at<foresight_step>(p[5])->position = state.position;
  foresight_token &token =
      at<foresight_token>(p[6])[static_cast<uint64_t>(state.index) % p[10]];
  token.begun = state.begun;
  token.ended = state.begun + 5;
  token.word = static_cast<uint64_t>(state.index + 1) << 32 |
               static_cast<uint32_t>(isOdd ? -1 : best);
  ++state.index;
  ++state.position;
}

class CudaDeviceTest : public testing::Test {
protected:
  CudaDeviceTest() {
    fakeCuda() = {};
    // Looked at once, by the first test.
    setenv("NVTX_INJECTION64_PATH", "libcuda.so.1", /*overwrite=*/1);
    fakeCuda().kernels = {
        {"step", {4, step}},
        {FORESIGHT_PICK_LARGEST, {11, pickLargest}},
        {FORESIGHT_PICK_DRAWN, {11, [](auto) {}}},
        {FORESIGHT_PICK_BEGIN,
         {1, [](auto p) { at<foresight_pick_state>(p[0])->begun += 100; }}}};
    model.targetCuda();
  }

  static std::string text(const std::vector<std::string> &entries) {
    std::string text = "//\n";
    for (const std::string &entry : entries)
      text += ".entry " + entry + "()\n";
    return text;
  }
  const std::vector<std::string> all = {"step", FORESIGHT_PICK_LARGEST,
                                        FORESIGHT_PICK_DRAWN,
                                        FORESIGHT_PICK_BEGIN};

  Status load() {
    BundleImage image = model.image(code);
    for (const BundleImage::Section &section : more)
      image.sections.push_back(section);
    const std::string path = temporaryPath("cuda.fsb");
    writeFile(path, image.bytes());
    FORESIGHT_TRY(Bundle opened, Bundle::open(path));
    bundle = std::make_unique<Bundle>(std::move(opened));
    FORESIGHT_TRY(device, createCudaDevice(options));
    FORESIGHT_TRY(program, device->load(*bundle));
    FORESIGHT_TRY(Session made, Session::create(*program));
    session = std::make_unique<Session>(std::move(made));
    return {};
  }
  void loadOrFail() {
    const Status status = load();
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  /// Up to `count` ids behind a prompt of 2, 3.
  std::vector<int32_t> take(int64_t limit, int64_t count) {
    std::vector<int32_t> ids;
    EXPECT_TRUE(session->startTokens({}, limit).ok());
    for (int64_t i = 0; i < count; ++i) {
      Result<PickedToken> token = session->nextToken();
      EXPECT_TRUE(token.ok()) << token.error().message;
      ids.push_back(token.ok() ? token->id : -1);
    }
    return ids;
  }

  TestModel model;
  CudaOptions options;
  std::string code = text(all);
  std::vector<BundleImage::Section> more;
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;
  std::unique_ptr<Session> session;
  const std::vector<int32_t> prompt = {2, 3};
};

TEST_F(CudaDeviceTest, StepsFeedThemselvesAndCopyNoLogits) {
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->picksTokens());
  ASSERT_TRUE(session->feed(prompt).ok());
  std::vector<int32_t> expected;
  for (int32_t id = 3, position = 1; position < 11; ++position)
    expected.push_back(id = follower(id, position));
  EXPECT_EQ(take(10, 10), expected);
  EXPECT_EQ(session->position(), 11);
  EXPECT_EQ(fakeCuda().copiesToHost, 0);
  // The first comes from the prompt's logits.
  EXPECT_EQ(fakeCuda().graphLaunches, 9);
  EXPECT_FALSE(session->nextToken().ok());
}

TEST_F(CudaDeviceTest, AFewStepsAreAheadAndForgotten) {
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->feed(prompt).ok());
  const std::vector<int32_t> ids = take(20, 4);
  EXPECT_EQ(fakeCuda().graphLaunches, 5);
  EXPECT_EQ(session->position(), 5);
  // The same goes on from there by the host's hand.
  auto logits = session->decode(ids.back());
  ASSERT_TRUE(logits.ok());
  EXPECT_EQ((*logits)[static_cast<size_t>(follower(ids.back(), 5))], 1);
  EXPECT_EQ(session->position(), 6);
  EXPECT_FALSE(session->nextToken().ok());
}

TEST_F(CudaDeviceTest, AStreamOutlivesItsRing) {
  model.manifest["model"]["max_seq"] = 500;
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->feed(prompt).ok());
  EXPECT_EQ(take(300, 300).size(), 300u);
  EXPECT_EQ(session->position(), 301);
}

TEST_F(CudaDeviceTest, NoStepGoesBeyondTheSequence) {
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->feed(prompt).ok());
  // The last token is picked and not fed.
  take(1000, kMaxSeq - 1);
  EXPECT_EQ(session->position(), kMaxSeq);
  EXPECT_EQ(fakeCuda().graphLaunches, kMaxSeq - 2);
  Result<PickedToken> next = session->nextToken();
  ASSERT_FALSE(next.ok());
  EXPECT_THAT(next.error().message, HasSubstr("tokens were asked for"));
}

TEST_F(CudaDeviceTest, ForcedTokensAreFedAndTimesAreTold) {
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->feed(prompt).ok());
  const std::vector<int32_t> forced = {9, 8, 7};
  ASSERT_TRUE(session->startTokens({}, 3, forced, /*timed=*/true).ok());
  EXPECT_EQ(session->nextToken()->id, follower(3, 1));
  Result<PickedToken> second = session->nextToken();
  EXPECT_EQ(second->id, follower(9, 2));
  EXPECT_EQ(second->begun, 100);
  EXPECT_EQ(second->ended, 105);
  EXPECT_EQ(session->nextToken()->id, follower(8, 3));
  EXPECT_FALSE(session->startTokens({}, 9, forced).ok());
}

TEST_F(CudaDeviceTest, LogitsThatAreNoNumbersEndTheText) {
  fakeCuda().kernels["step"].run = [](std::span<const uint64_t> p) {
    step(p);
    if (at<int32_t>(p[1])[0] == 3)
      at<float>(p[2])[0] = std::numeric_limits<float>::quiet_NaN();
  };
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->feed(prompt).ok());
  take(10, 2);
  Result<PickedToken> token = session->nextToken();
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.error().code, ErrorCode::BadBundle);
  EXPECT_THAT(token.error().message, HasSubstr("are not all numbers"));
}

TEST_F(CudaDeviceTest, AFaultOfTheGpuEndsTheText) {
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->feed(prompt).ok());
  fakeCuda().kernels[FORESIGHT_PICK_LARGEST].run = [](auto) {};
  ASSERT_TRUE(session->startTokens({}, 4).ok());
  fakeCuda().queryResult = 719;
  Result<PickedToken> token = session->nextToken();
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.error().code, ErrorCode::Internal);
  EXPECT_THAT(token.error().message, HasSubstr("cannot run a step"));
  fakeCuda().queryResult = 0;
  token = session->nextToken();
  ASSERT_FALSE(token.ok());
  EXPECT_THAT(token.error().message, HasSubstr("without a token"));
}

TEST_F(CudaDeviceTest, CodeOfAnOlderCompilerLeavesPickingToTheHost) {
  code = text({"step"});
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  EXPECT_FALSE(session->picksTokens());
  auto logits = session->prompt(prompt);
  ASSERT_TRUE(logits.ok());
  EXPECT_EQ((*logits)[static_cast<size_t>(follower(3, 1))], 1);
}

TEST_F(CudaDeviceTest, ALaunchThatFailsNamesItsStageAndItsSource) {
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  fakeCuda().launchResult = 700;
  const Status status = session->feed(prompt);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("stage 'step'"));
  EXPECT_THAT(status.error().message, HasSubstr("an.onnx.node"));
}

TEST_F(CudaDeviceTest, MemoryIsMeasuredByAKernelOfTheBundle) {
  int64_t vectors = 0;
  options.measure = true;
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  // Code of an older compiler has none.
  EXPECT_EQ(program->readBandwidth(), 0);
  fakeCuda().kernels["foresight_read"] = {
      3, [&](auto p) { vectors = static_cast<int64_t>(p[1]); }};
  code += ".entry foresight_read()\n";
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  // A small model's weights would be read from a cache.
  EXPECT_EQ(vectors, int64_t{1} << 26);
  EXPECT_GT(program->readBandwidth(), 0);
}

TEST_F(CudaDeviceTest, StagesOfARoleAreLeftOut) {
  int launches = 0;
  fakeCuda().kernels["step"].run = [&](auto) { ++launches; };
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->feed(prompt).ok());
  EXPECT_GT(std::exchange(launches, 0), 0);
  options.without = {bundle->manifest().entries[0].stages[0].role};
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->feed(prompt).ok());
  EXPECT_EQ(launches, 0);
}

TEST_F(CudaDeviceTest, ARoleThatNoStageHasIsUsage) {
  options.without = {"fc3"};
  const Status status = load();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::Usage);
  EXPECT_THAT(status.error().message, HasSubstr("'fc3'"));
}

TEST_F(CudaDeviceTest, WhatDoesNotFitIsRefusedWithTheSum) {
  fakeCuda().freeBytes = 1 << 20;
  const Status status = load();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::Resource);
  EXPECT_THAT(status.error().message, HasSubstr("KV cache"));
}

TEST_F(CudaDeviceTest, AnOlderChipIsRefused) {
  fakeCuda().major = 8;
  const Status status = load();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::BadBundle);
  EXPECT_THAT(status.error().message, HasSubstr("is sm_80"));
}

TEST_F(CudaDeviceTest, CodeThatTheDriverRejectsIsAnError) {
  fakeCuda().loadTextResult = 218;
  const Status status = load();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("compile the bundle's PTX"));
}

TEST_F(CudaDeviceTest, AProfilerSeesRanges) {
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  std::vector<std::string> &ranges = fakeCuda().ranges;
  ASSERT_FALSE(ranges.empty());
  EXPECT_EQ(ranges.front(), "load " + bundle->path());
  EXPECT_THAT(ranges, testing::Contains("  upload weights"));
  EXPECT_THAT(ranges, testing::Contains("  capture entry 'decode'"));
  ranges.clear();
  // Kernel by kernel, then as a graph.
  ASSERT_TRUE(session->prompt(prompt).ok());
  ASSERT_TRUE(session->decode(4).ok());
  EXPECT_EQ(ranges, (std::vector<std::string>{"prefill", "  step", "decode"}));
  EXPECT_EQ(fakeCuda().openRanges, 0u);
}

TEST_F(CudaDeviceTest, AProfilerSeesStepsThatFeedThemselves) {
  ASSERT_NO_FATAL_FAILURE(loadOrFail());
  ASSERT_TRUE(session->feed(prompt).ok());
  ASSERT_TRUE(session->startTokens({}, 5).ok());
  fakeCuda().ranges.clear();
  fakeCuda().graphLaunches = 0;
  // Two steps ahead of the token; at the limit none is queued.
  const size_t queued[] = {2, 3, 4, 4, 4};
  for (size_t ranges : queued) {
    ASSERT_TRUE(session->nextToken().ok());
    EXPECT_THAT(fakeCuda().ranges, testing::SizeIs(ranges));
    EXPECT_THAT(fakeCuda().ranges, testing::Each(std::string("decode")));
  }
  EXPECT_EQ(fakeCuda().graphLaunches, 4);
  EXPECT_EQ(fakeCuda().openRanges, 0u);
}

/// The start of a cubin and of PTX, as the driver sees them.
const std::string kElf = "\x7f"
                         "ELF",
                  kPtx = "//\n.";

class CubinTest : public CudaDeviceTest {
protected:
  CubinTest() { addCubin("sm_90.cubin"); }
  void addCubin(const std::string &name) {
    more = {{bundle::SectionKind::kCode, name, kElf + text(all)}};
  }
  void expectLoads(const std::vector<std::string> &starts, bool isCubin) {
    ASSERT_NO_FATAL_FAILURE(loadOrFail());
    EXPECT_EQ(fakeCuda().loaded, starts);
    EXPECT_THAT(
        program->description(),
        HasSubstr(isCubin ? "code from the bundle" : "code by the driver"));
    ASSERT_TRUE(session->feed(prompt).ok());
    EXPECT_EQ(take(1, 1), std::vector<int32_t>{follower(3, 1)});
  }
};

TEST_F(CubinTest, IsTakenInsteadOfPtx) { expectLoads({kElf}, true); }

TEST_F(CubinTest, IsTakenByNewerChipsOfItsGeneration) {
  model.manifest["target"]["variants"][0]["name"] = "sm_80";
  addCubin("sm_80.cubin");
  fakeCuda().major = 8;
  fakeCuda().minor = 9;
  expectLoads({kElf}, true);
}

TEST_F(CubinTest, IsNotForANewerGeneration) {
  fakeCuda().major = 10;
  expectLoads({kPtx}, false);
}

TEST_F(CubinTest, ADriverThatRejectsItCompilesPtx) {
  fakeCuda().loadBinaryResult = 209;
  expectLoads({kElf, kPtx}, false);
}

TEST_F(CubinTest, IsNotNeeded) {
  more.clear();
  expectLoads({kPtx}, false);
}

TEST_F(CubinTest, NeitherIsAnError) {
  fakeCuda().loadBinaryResult = 209;
  fakeCuda().loadTextResult = 222;
  const Status status = load();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("compile the bundle's PTX"));
}

} // namespace
} // namespace foresight::test
