//===- GpuTest.cpp - Bundles on a GPU against PyTorch ---------------------===//
//
// Runs what test/gpu/prepare compiled. FORESIGHT_GPU_BUNDLES is the folder of
// the bundles; NAME.safetensors beside NAME.fsb holds the logits and tokens
// that PyTorch computes in f32.
//
//===----------------------------------------------------------------------===//

#include "Bundles.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

using namespace foresight;
using namespace foresight::test;

namespace fs = std::filesystem;

namespace {

bool isSparseBundle(const fs::path &path) {
  auto bundle = Bundle::open(path.string());
  return bundle.ok() && !bundle->manifest().selections.empty();
}

/// Dense ones with a file of expectations, those that are sparse, or dense ones
/// of synthetic weights.
enum class Kind { Expected, Sparse, Synthetic };

Kind kindOf(const fs::path &path) {
  if (isSparseBundle(path))
    return Kind::Sparse;
  return fs::exists(fs::path(path).replace_extension("safetensors"))
             ? Kind::Expected
             : Kind::Synthetic;
}

template <typename Predicate>
std::vector<fs::path> bundlesWhere(Predicate predicate) {
  std::vector<fs::path> found = allBundles();
  std::erase_if(found, [&](const fs::path &path) { return !predicate(path); });
  return found;
}

std::vector<fs::path> bundles(Kind kind) {
  return bundlesWhere(
      [&](const fs::path &path) { return kindOf(path) == kind; });
}

/// Those that decode several sequences at once.
std::vector<fs::path> batchBundles() {
  return bundlesWhere([](const fs::path &path) {
    auto bundle = Bundle::open(path.string());
    return bundle.ok() && bundle->manifest().entryIndex("decode_batch") >= 0;
  });
}

class Gpu : public testing::TestWithParam<fs::path> {
protected:
  Expected expected{fs::path(GetParam()).replace_extension("safetensors")};
  Model model{GetParam()};

  /// Prompts by their name in the file of expectations.
  std::vector<std::pair<std::string, std::string>> prompts() {
    if (model.manifest().model.name == "opt-mini")
      return {{"compiler.", "compiler.greedy"},
              {"history.", "history.greedy"},
              {"number.", "number.greedy"}};
    return {{"single.", "greedy.tokens"}};
  }
  float tolerance() {
    return model.manifest().model.dtype == "f32" ? 1e-3f : 2e-2f;
  }
};

TEST_P(Gpu, DecodingGivesTheLogitsOfPyTorch) {
  for (const auto &[prompt, greedy] : prompts()) {
    SCOPED_TRACE(prompt);
    expectLogits(model, expected.ids(prompt + "input_ids"),
                 expected.floats(prompt + "logits"), tolerance());
  }
}

TEST_P(Gpu, PromptProcessingGivesTheLogitsOfPyTorch) {
  for (const auto &[prompt, greedy] : prompts()) {
    SCOPED_TRACE(prompt);
    std::vector<float> logits = expected.floats(prompt + "logits");
    ASSERT_TRUE(model.session().reset().ok());
    std::span<const float> row =
        model.prompt(expected.ids(prompt + "input_ids"));
    const float *last = logits.data() + logits.size() - row.size();
    float worst = 0;
    for (size_t i = 0; i < row.size(); ++i)
      worst = std::max(worst, std::fabs(row[i] - last[i]));
    // x is rounded to the weights' type for the library's products.
    EXPECT_LE(worst, 2 * tolerance());
  }
}

TEST_P(Gpu, GreedyTokensAreThoseOfPyTorch) {
  for (const auto &[prompt, greedy] : prompts()) {
    SCOPED_TRACE(prompt);
    std::vector<int32_t> ids = expected.ids(prompt + "input_ids");
    std::vector<int32_t> all = expected.ids(greedy);
    EXPECT_EQ(model.greedy(ids, all.size() - ids.size()), all);
  }
}

/// Kernel by kernel, as traces are measured, gives the bits of the graph.
TEST_P(Gpu, AGraphGivesTheBitsOfItsKernels) {
  std::vector<int32_t> ids = expected.ids(prompts()[0].first + "input_ids");
  std::vector<std::vector<float>> rows[2];
  for (int traced : {0, 1}) {
    ASSERT_TRUE(model.session().reset().ok());
    if (traced)
      model.session().startTrace();
    for (int32_t id : ids) {
      std::span<const float> row = model.decode(id);
      rows[traced].emplace_back(row.begin(), row.end());
    }
    if (traced)
      model.session().stopTrace();
  }
  EXPECT_EQ(rows[0], rows[1]);
}

/// The largest difference, over the largest logit of `expected`.
double difference(std::span<const float> row, std::span<const float> expected) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    worst = std::max(worst, std::fabs(double(row[i]) - double(expected[i])));
    largest = std::max(largest, std::fabs(double(expected[i])));
  }
  return worst / largest;
}

class SparseGpu : public testing::TestWithParam<fs::path> {
protected:
  Model model{GetParam()};
  bool isExact() { return model.manifest().model.sparsity == "exact"; }

  /// Tokens that dense decoding of this bundle writes, and its logits: 300, or
  /// as many as there is room for.
  void decodeDensely() {
    const int64_t count = std::min<int64_t>(
        300, static_cast<int64_t>(model.session().capacity()));
    ASSERT_TRUE(model.session().useDense(true).ok());
    ASSERT_TRUE(model.session().reset().ok());
    int32_t next = 2;
    for (int64_t i = 0; i < count; ++i) {
      ids.push_back(next);
      std::span<const float> row = model.decode(next);
      rows.emplace_back(row.begin(), row.end());
      // Some tokens that are not the likeliest: greedy text repeats itself.
      next = i % 5 == 4 ? static_cast<int32_t>((i * 131) % row.size())
                        : argmax(row);
    }
    ASSERT_TRUE(model.session().useDense(false).ok());
    ASSERT_TRUE(model.session().reset().ok());
  }

  std::vector<int32_t> ids;
  std::vector<std::vector<float>> rows;
};

TEST_P(SparseGpu, ExactGivesTheBitsOfDense) {
  if (!isExact())
    GTEST_SKIP() << "an approximation";
  ASSERT_NO_FATAL_FAILURE(decodeDensely());
  for (size_t i = 0; i < ids.size(); ++i) {
    std::span<const float> row = model.decode(ids[i]);
    size_t differ = 0;
    float worst = 0;
    for (size_t k = 0; k < row.size(); ++k) {
      differ += std::memcmp(&row[k], &rows[i][k], sizeof(float)) != 0;
      worst = std::max(worst, std::fabs(row[k] - rows[i][k]));
    }
    ASSERT_EQ(differ, 0u) << "token " << i << ", by up to " << worst;
  }
}

TEST_P(SparseGpu, PredictedIsCloseToDense) {
  ASSERT_NO_FATAL_FAILURE(decodeDensely());
  ASSERT_TRUE(model.session().useDense(true).ok());
  double dense = model.negativeLogLikelihood(ids);
  ASSERT_TRUE(model.session().useDense(false).ok());
  double sparse = model.negativeLogLikelihood(ids);
  EXPECT_NEAR(sparse, dense, isExact() ? 0 : 2e-2);
}

/// What was counted fits what came out: a neuron that is active was selected,
/// and fc2 read a row for each.
TEST_P(SparseGpu, CountsFitTheActivations) {
  model.session().startTrace();
  for (int32_t id = 10; id < 60; ++id)
    model.decode(id);
  bool isSeen = false;
  for (const SessionTrace &trace : model.session().traces()) {
    const EntryInfo &entry = model.manifest().entries[trace.entry];
    for (size_t i = 0; i < trace.selections.size(); ++i) {
      const SessionTrace::Selection &selection = trace.selections[i];
      const SelectionInfo &info = model.manifest().selections[i];
      SCOPED_TRACE("layer " + std::to_string(selection.layer));
      isSeen = true;
      double all = double(trace.steps) * double(info.neurons);
      std::printf("layer %d: %.1f %% selected, %.1f %% active\n",
                  int(selection.layer), selection.selected / all * 100,
                  selection.active / all * 100);
      EXPECT_GT(selection.active, 0);
      EXPECT_LE(selection.active, selection.selected);
      // A predictor may select everything.
      if (info.selected >= 0 && info.rule != "low_rank")
        EXPECT_LT(selection.selected, 0.8 * all);
      for (size_t s = 0; s < entry.stages.size(); ++s) {
        const StageInfo &stage = entry.stages[s];
        if (stage.layer == info.layer && stage.role == "fc2" &&
            stage.counts >= 0)
          // Rows of a known set are asked for before the activations are there.
          EXPECT_EQ(trace.stages[s].counted,
                    info.rule == "low_rank" ? selection.selected
                                            : selection.active * stage.units);
      }
    }
  }
  EXPECT_TRUE(isSeen);
}

class SyntheticGpu : public testing::TestWithParam<fs::path> {
protected:
  Model model{GetParam()};
  static constexpr size_t kLengths[] = {1, 2, 127, 129, 1000, 2047};

  /// Ids that follow no pattern.
  std::vector<int32_t> randomIds(size_t count) {
    std::vector<int32_t> ids;
    uint64_t state = 1;
    for (size_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      ids.push_back(static_cast<int32_t>(
          (state >> 33) %
          static_cast<uint64_t>(model.manifest().model.vocabSize)));
    }
    return ids;
  }
};

/// A prompt leaves what decoding its tokens one by one leaves: for lengths that
/// fill no tile or chunk, up to the longest one.
TEST_P(SyntheticGpu, PromptsOfAnyLengthDoWhatDecodingDoes) {
  Session &session = model.session();
  std::vector<int32_t> ids = randomIds(2048);
  ids.resize(std::min<size_t>(ids.size(), session.capacity()));
  std::map<size_t, std::vector<float>> expected;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::span<const float> row = model.decode(ids[i]);
    for (size_t length : kLengths)
      if (i + 1 == length || i == length)
        expected[i] = {row.begin(), row.end()};
  }
  // x is rounded for the library's products, queries and weights of attention
  // are for the tensor cores.
  const std::string dtype = model.manifest().model.dtype;
  const double tolerance = dtype == "f32"    ? 1e-4
                           : dtype == "bf16" ? 8e-2
                                             : 1e-2;
  for (size_t length : kLengths) {
    if (length >= ids.size())
      continue;
    SCOPED_TRACE(length);
    std::vector<float> rows[2];
    for (std::vector<float> &row : rows) {
      ASSERT_TRUE(session.reset().ok());
      std::span<const float> last = model.prompt(std::span(ids).first(length));
      row.assign(last.begin(), last.end());
    }
    EXPECT_EQ(rows[0], rows[1]) << "the same prompt, other bits";
    double ofPrompt = difference(rows[0], expected[length - 1]);
    double ofNext = difference(model.decode(ids[length]), expected[length]);
    std::printf("%zu tokens: prompt %.2g, next token %.2g\n", length, ofPrompt,
                ofNext);
    EXPECT_LE(ofPrompt, tolerance);
    EXPECT_LE(ofNext, tolerance);
  }
}

/// Sequences of different lengths, some of which end early.
class BatchGpu : public testing::TestWithParam<fs::path> {
protected:
  using Logits = std::vector<std::vector<float>>;
  static constexpr size_t kSteps = 6;

  Model model{GetParam()};
  Session &session = model.session();
  const size_t sequences = static_cast<size_t>(session.sequences());

  void start(size_t sequence) {
    const size_t lengths[] = {1, 5, 300, 40, 130, 7, 600, 2};
    const auto length =
        std::min<size_t>(lengths[sequence % std::size(lengths)],
                         static_cast<size_t>(session.capacity()) - kSteps);
    ASSERT_TRUE(session.select(static_cast<int64_t>(sequence)).ok());
    ASSERT_TRUE(session.reset().ok());
    std::vector<int32_t> ids(length);
    for (size_t i = 0; i < length; ++i)
      ids[i] = idAt(sequence, 100 + i);
    model.prompt(ids);
  }
  int32_t idAt(size_t sequence, size_t step) {
    return static_cast<int32_t>(
        (17 + 131 * sequence + 37 * step) %
        static_cast<size_t>(model.manifest().model.vocabSize));
  }
  bool isLive(size_t sequence, size_t step) {
    return step < kSteps - sequence % 4;
  }
  /// What `decodeBatch` gives each of `rows`, which go on in this order.
  std::vector<std::vector<float>> step(const std::vector<size_t> &live,
                                       size_t step) {
    std::vector<Session::BatchRow> rows;
    rows.reserve(live.size());
    for (size_t sequence : live)
      rows.push_back({static_cast<int64_t>(sequence), idAt(sequence, step)});
    const Status done = session.decodeBatch(rows);
    EXPECT_TRUE(done.ok()) << done.error().message;
    Logits logits;
    for (size_t row = 0; done.ok() && row < rows.size(); ++row) {
      const auto values = session.batchLogits(static_cast<int64_t>(row));
      logits.emplace_back(values.begin(), values.end());
    }
    return logits;
  }
};

TEST_P(BatchGpu, ARowHasTheBitsThatItHasAlone) {
  std::vector<Logits> alone(sequences);
  for (size_t s = 0; s < sequences; ++s) {
    start(s);
    for (size_t i = 0; isLive(s, i); ++i)
      alone[s].push_back(step({s}, i)[0]);
  }
  // As a graph, then kernel by kernel.
  for (bool traced : {false, true}) {
    for (size_t s = 0; s < sequences; ++s)
      start(s);
    if (traced)
      session.startTrace();
    for (size_t i = 0; i < kSteps; ++i) {
      std::vector<size_t> live;
      for (size_t n = 0; n < sequences; ++n)
        if (const size_t s = (n + i) % sequences; isLive(s, i))
          live.push_back(s);
      const Logits together = step(live, i);
      for (size_t row = 0; row < live.size(); ++row)
        EXPECT_EQ(together[row], alone[live[row]][i])
            << "step " << i << " row " << row << " traced " << traced;
    }
    session.stopTrace();
  }
}

/// Rows are rounded to the weights' type for the products of a batch.
TEST_P(BatchGpu, ARowIsWhatDecodingItsSequenceGives) {
  const std::string dtype = model.manifest().model.dtype;
  const double tolerance = dtype == "f32"    ? 1e-4
                           : dtype == "bf16" ? 8e-2
                                             : 1e-2;
  ASSERT_TRUE(session.useDense(true).ok());
  double worst = 0;
  for (size_t s = 0; s < sequences; ++s) {
    Logits batch;
    start(s);
    for (size_t i = 0; isLive(s, i); ++i)
      batch.push_back(step({s}, i)[0]);
    start(s);
    for (size_t i = 0; i < batch.size(); ++i)
      worst = std::max(worst, difference(batch[i], model.decode(idAt(s, i))));
  }
  std::printf("apart by %.2g\n", worst);
  EXPECT_LE(worst, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Bundles, SparseGpu,
                         testing::ValuesIn(bundles(Kind::Sparse)), nameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SparseGpu);

INSTANTIATE_TEST_SUITE_P(Bundles, SyntheticGpu,
                         testing::ValuesIn(bundles(Kind::Synthetic)), nameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SyntheticGpu);

INSTANTIATE_TEST_SUITE_P(Bundles, BatchGpu, testing::ValuesIn(batchBundles()),
                         nameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BatchGpu);

INSTANTIATE_TEST_SUITE_P(Bundles, Gpu,
                         testing::ValuesIn(bundles(Kind::Expected)), nameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Gpu);

} // namespace
