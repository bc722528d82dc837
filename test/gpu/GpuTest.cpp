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
#include <cstdlib>
#include <filesystem>

using namespace foresight;
using namespace foresight::test;

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> bundles() {
  std::vector<fs::path> found;
  const char *folder = std::getenv("FORESIGHT_GPU_BUNDLES");
  std::error_code error;
  if (folder)
    for (const fs::directory_entry &entry :
         fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".fsb" &&
          fs::exists(fs::path(entry.path()).replace_extension("safetensors")))
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

INSTANTIATE_TEST_SUITE_P(Bundles, Gpu, testing::ValuesIn(bundles()),
                         [](const auto &info) {
                           std::string name = info.param.stem().string();
                           for (char &c : name)
                             c = std::isalnum(static_cast<unsigned char>(c))
                                     ? c
                                     : '_';
                           return name;
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Gpu);

} // namespace
