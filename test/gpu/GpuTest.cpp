//===- GpuTest.cpp - Bundles on a GPU against PyTorch ---------------------===//
//
// Runs what test/gpu/prepare compiled. FORESIGHT_GPU_BUNDLES is the folder of
// the bundles; NAME.safetensors beside NAME.fsb holds the logits and tokens
// that PyTorch computes in f32.
//
//===----------------------------------------------------------------------===//

#include "Model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

using namespace foresight;
using namespace foresight::test;

namespace fs = std::filesystem;

namespace {

bool isSparseBundle(const fs::path &path) {
  auto bundle = Bundle::open(path.string());
  return bundle.ok() && !bundle->manifest().selections.empty();
}

/// Those with a file of expectations, or those that are sparse.
std::vector<fs::path> bundles(bool isSparse = false) {
  std::vector<fs::path> found;
  const char *folder = std::getenv("FORESIGHT_GPU_BUNDLES");
  std::error_code error;
  if (folder)
    for (const fs::directory_entry &entry :
         fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".fsb" &&
          (isSparse
               ? isSparseBundle(entry.path())
               : fs::exists(
                     fs::path(entry.path()).replace_extension("safetensors"))))
        found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
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
  for (auto [prompt, greedy] : prompts()) {
    SCOPED_TRACE(prompt);
    expectLogits(model, expected.ids(prompt + "input_ids"),
                 expected.floats(prompt + "logits"), tolerance());
  }
}

TEST_P(Gpu, PromptProcessingGivesTheLogitsOfPyTorch) {
  for (auto [prompt, greedy] : prompts()) {
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
  for (auto [prompt, greedy] : prompts()) {
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

class SparseGpu : public testing::TestWithParam<fs::path> {
protected:
  Model model{GetParam()};
  bool isExact() { return model.manifest().model.sparsity == "exact"; }

  /// Tokens that dense decoding of this bundle writes, and its logits.
  void decodeDensely(int64_t count) {
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
  ASSERT_NO_FATAL_FAILURE(decodeDensely(300));
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
  ASSERT_NO_FATAL_FAILURE(decodeDensely(300));
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
      if (info.selected >= 0)
        EXPECT_LT(selection.selected, 0.8 * all);
      for (size_t s = 0; s < entry.stages.size(); ++s) {
        const StageInfo &stage = entry.stages[s];
        if (stage.layer == info.layer && stage.role == "fc2" &&
            stage.counts >= 0)
          EXPECT_EQ(trace.stages[s].counted, selection.active * stage.units);
      }
    }
  }
  EXPECT_TRUE(isSeen);
}

std::string nameOf(const testing::TestParamInfo<fs::path> &info) {
  std::string name = info.param.stem().string();
  for (char &c : name)
    c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Bundles, SparseGpu, testing::ValuesIn(bundles(true)),
                         nameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SparseGpu);

INSTANTIATE_TEST_SUITE_P(Bundles, Gpu, testing::ValuesIn(bundles()), nameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Gpu);

} // namespace
