//===- SessionTest.cpp - One sequence of tokens ---------------------------===//
#include "TestBundle.h"

#include "foresight/runtime/CpuDevice.h"
#include "foresight/runtime/Session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <numeric>

namespace {
/// Calls of operator new by any thread since the process started.
std::atomic<int64_t> allocations = 0;
} // namespace

// Replaces the program's: everything in C++ code goes through here.
void *operator new(size_t size) {
  ++allocations;
  if (void *memory = std::malloc(size ? size : 1))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace foresight::test {
namespace {

using testing::HasSubstr;

class SessionTest : public testing::Test {
protected:
  void SetUp() override { load(); }

  void load() {
    auto opened = Bundle::open(model.write("session.fsb"));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    bundle = std::make_unique<Bundle>(std::move(*opened));
    auto created = createCpuDevice({.threads = 2});
    ASSERT_TRUE(created.ok());
    device = std::move(*created);
    auto loaded = device->load(*bundle);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    program = std::move(*loaded);
    auto session = Session::create(*program);
    ASSERT_TRUE(session.ok()) << session.error().message;
    sessionMemory = std::make_unique<Session>(std::move(*session));
  }
  Session &session() { return *sessionMemory; }

  static std::vector<int32_t> idsUpTo(size_t count) {
    std::vector<int32_t> ids(count);
    std::iota(ids.begin(), ids.end(), 1);
    return ids;
  }
  template <typename T>
  static void expectUsage(const Result<T> &result, const char *text) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::Usage);
    EXPECT_THAT(result.error().message, HasSubstr(text));
  }

  TestModel model;
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;
  std::unique_ptr<Session> sessionMemory;
};

TEST_F(SessionTest, PromptIsCutIntoChunksAndGivesLogitsOfItsLastToken) {
  const auto logits = session().prompt(idsUpTo(10));
  ASSERT_TRUE(logits.ok()) << logits.error().message;
  ASSERT_EQ(logits->size(), static_cast<size_t>(model.kVocab));
  // 10 tokens are chunks of 4, 4 and 2: `tick` has run three times.
  for (int64_t v = 0; v < model.kVocab; ++v)
    EXPECT_EQ((*logits)[static_cast<size_t>(v)], model.projected(10, 9, v) + 3);
  EXPECT_EQ(session().position(), 10);
}

TEST_F(SessionTest, DecodesAtAnyPositionFromTheFirst) {
  const auto first = session().decode(6);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)[3], model.mixed(6, 0, 3) + 1);
  const auto second = session().decode(11);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)[3], model.mixed(11, 1, 3) + 2);
  EXPECT_EQ(session().logits().data(), second->data());
}

TEST_F(SessionTest, DenseAndSparseDecodingShareASequence) {
  EXPECT_FALSE(session().isDense());
  ASSERT_TRUE(session().decode(6).ok());
  ASSERT_TRUE(session().useDense(true).ok());
  EXPECT_EQ(session().decodeEntry(),
            bundle->manifest().entryIndex("decode_dense"));
  const auto logits = session().decode(7);
  ASSERT_TRUE(logits.ok());
  EXPECT_EQ((*logits)[5], model.mixed(7, 1, 5) + 2);
}

TEST_F(SessionTest, DenseBundleHasNoSparseDecoding) {
  model.manifest["entries"].erase("decode_dense");
  model.manifest["selections"] = Json::array();
  load();
  EXPECT_TRUE(session().isDense());
  expectUsage(session().useDense(false), "--sparsity");
  EXPECT_TRUE(session().useDense(true).ok());
  EXPECT_TRUE(session().decode(1).ok());
}

TEST_F(SessionTest, WrongPromptsAreErrorsAndChangeNothing) {
  expectUsage(session().prompt({}), "empty");
  expectUsage(session().prompt(idsUpTo(33)),
              "a prompt of 33 tokens is too long: the model allows 32");
  const std::vector<int32_t> tooLarge = {1, 2, 48}, negative = {-1};
  expectUsage(session().prompt(tooLarge), "token id 48 (number 2");
  expectUsage(session().prompt(negative), "token id -1");
  expectUsage(session().decode(48), "0..47");
  EXPECT_EQ(session().position(), 0);
  EXPECT_TRUE(session().prompt(idsUpTo(32)).ok());
  expectUsage(session().decode(1), "full");
  EXPECT_EQ(session().position(), 32);
}

TEST_F(SessionTest, GoesBackAndStartsAgain) {
  ASSERT_TRUE(session().prompt(idsUpTo(5)).ok());
  ASSERT_TRUE(session().reset().ok());
  EXPECT_EQ(session().position(), 0);
  EXPECT_TRUE(session().logits().empty());
  // A state that is no cache is cleared.
  const auto logits = session().decode(6);
  ASSERT_TRUE(logits.ok());
  EXPECT_EQ((*logits)[0], model.mixed(6, 0, 0) + 1);
  expectUsage(session().truncate(2), "token 2");
  EXPECT_TRUE(session().truncate(1).ok());
}

TEST_F(SessionTest, TraceSumsStepsAndSelections) {
  ASSERT_TRUE(session().prompt(idsUpTo(3)).ok());
  session().startTrace();
  ASSERT_TRUE(session().prompt(idsUpTo(6)).ok());
  ASSERT_TRUE(session().decode(1).ok());
  ASSERT_TRUE(session().decode(2).ok());
  ASSERT_TRUE(session().useDense(true).ok());
  ASSERT_TRUE(session().decode(3).ok());
  session().stopTrace();
  ASSERT_TRUE(session().decode(4).ok());

  ASSERT_EQ(session().traces().size(), 3u);
  const SessionTrace &prefill = session().traces()[0],
                     &sparse = session().traces()[1],
                     &dense = session().traces()[2];
  EXPECT_EQ(prefill.entry, bundle->manifest().entryIndex("prefill"));
  EXPECT_EQ(prefill.tokens, 6);
  EXPECT_EQ(prefill.steps, 2);
  EXPECT_TRUE(prefill.selections.empty());
  EXPECT_EQ(sparse.steps, 2);
  EXPECT_GT(sparse.nanoseconds, 0);
  EXPECT_EQ(sparse.weightBytes(), 2 * (100 + 2 * 64 * 65 / 2));
  ASSERT_EQ(sparse.selections.size(), 1u);
  EXPECT_EQ(sparse.selections[0].selected, 2 * 64 * 65 / 2);
  int64_t active = 0;
  for (int32_t id : {1, 2})
    for (int64_t c = 0; c < model.kColumns; ++c)
      active += model.mixed(id, 8 + id, c) != 0;
  EXPECT_EQ(sparse.selections[0].active, active);
  EXPECT_EQ(dense.weightBytes(), 8256);
  EXPECT_EQ(dense.selections[0].selected, 64);
}

TEST_F(SessionTest, DecodingAllocatesNothing) {
  ASSERT_TRUE(session().prompt(idsUpTo(3)).ok());
  ASSERT_TRUE(session().decode(1).ok());
  const int64_t before = allocations;
  bool ok = true;
  for (int32_t i = 0; i < 20; ++i)
    ok &= session().decode(i).ok();
  const int64_t after = allocations;
  EXPECT_TRUE(ok);
  EXPECT_EQ(after, before);
  // The hook sees what there is to see.
  const std::vector<int> one(1);
  EXPECT_GT(allocations, after);
}

} // namespace
} // namespace foresight::test
