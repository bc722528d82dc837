//===- OracleTest.cpp - Bundles against the interpreter -------------------===//
//
// Small models of the shapes that exports have are compiled to bundles and run
// beside their own scheduled module, which the interpreter executes in f64.
// What differs is a fault of what stands between: code, packing, manifest,
// runtime.
//
//===----------------------------------------------------------------------===//

#include "Oracle.h"

#include "Harness.h"
#include "Model.h"
#include <span>

using namespace foresight;
using namespace foresight::test;

namespace {

struct Case {
  const char *name;
  const char *model;
  const char *sparsity;
  const char *layer; ///< of a profile; empty: what the compiler derives
};

void PrintTo(const Case &c, std::ostream *os) { *os << c.name; }

class Oracles : public testing::TestWithParam<Case> {
protected:
  /// The same choice for both layers of a model.
  std::string profile(const TemporaryFolder &folder) const {
    bool wide = std::string(GetParam().model) == "pre-norm";
    std::string text = "{\"format\": 1, \"model\": {\"layers\": 2, "
                       "\"hidden_size\": ";
    text +=
        wide ? "64, \"ffn_dim\": [256, 256]}" : "48, \"ffn_dim\": [100, 100]}";
    text += ", \"layers\": [";
    for (int layer : {0, 1})
      text += std::string(layer ? ", " : "") +
              "{\"layer\": " + std::to_string(layer) + ", " + GetParam().layer +
              "}";
    std::string path = folder / "profile.json";
    writeFile(path, text + "]}");
    return path;
  }

  std::vector<std::string> command(const TemporaryFolder &folder) const {
    std::vector<std::string> result = {
        tool("foresight-compile"),
        source(std::string("test/fixtures/step-") + GetParam().model + ".mlir"),
        std::string("--sparsity=") + GetParam().sparsity};
    if (*GetParam().layer)
      result.push_back("--profile=" + profile(folder));
    return result;
  }

  static void expectRow(std::span<const float> got,
                        const std::vector<double> &want, double tolerance) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], tolerance) << "logit " << i;
  }
};

TEST_P(Oracles, PromptAndDecodedTokensGiveTheLogitsOfTheScheduledModule) {
  TemporaryFolder folder;
  std::vector<std::string> compile = command(folder);
  auto emit = [&](const std::string &kind, const std::string &path) {
    std::vector<std::string> all = compile;
    all.insert(all.end(), {"--emit=" + kind, "-o", path});
    ProcessResult result = run(all);
    ASSERT_EQ(result.exitCode, 0) << result.errors;
  };
  ASSERT_NO_FATAL_FAILURE(emit("bundle", folder / "model.fsb"));
  ASSERT_NO_FATAL_FAILURE(emit("scheduled", folder / "scheduled.mlir"));

  Model model(folder / "model.fsb");
  Oracle oracle(readFile(folder / "scheduled.mlir"));
  // Keys and values are rounded to 16 bits: where f32 and f64 round to
  // different neighbours, logits of size 1 move by some 1e-4.
  const double tolerance = 2e-3;
  const std::vector<int32_t> prompt = {2, 17, 9, 40, 3};
  ASSERT_NO_FATAL_FAILURE(expectRow(model.prompt(prompt),
                                    oracle.run("prefill", prompt), tolerance));
  const bool looksAhead =
      std::string(GetParam().layer).find("block") != std::string::npos;
  const int32_t ids[] = {11, 25, 6, 48, 1, 33, 20, 7};
  for (int32_t id : std::span(ids).first(looksAhead ? 4 : 8)) {
    SCOPED_TRACE("token " + std::to_string(id));
    ASSERT_NO_FATAL_FAILURE(
        expectRow(model.decode(id), oracle.run("decode", {id}), tolerance));
  }
}

constexpr const char *kProof =
    R"("rule": "proof", "bits": 6, "margin": 0, "lookahead": "here")";
constexpr const char *kSkip =
    R"("rule": "skip", "bits": 0, "margin": 0, "lookahead": "here")";
constexpr const char *kMargin =
    R"("rule": "margin", "bits": 4, "margin": 4, "lookahead": "here")";
// Looking ahead leaves out active neurons too. One at the very edge of its
// bound may be kept by the code, which adds its own rounding to the bound, and
// not by the formula; from then on the two differ. Hence 8 bits and few tokens.
constexpr const char *kHalfBlock =
    R"("rule": "margin", "bits": 8, "margin": 4, "lookahead": "half_block")";
constexpr const char *kBlock =
    R"("rule": "margin", "bits": 8, "margin": 4, "lookahead": "block")";

INSTANTIATE_TEST_SUITE_P(
    All, Oracles,
    testing::Values(Case{"PreNormDense", "pre-norm", "none", ""},
                    Case{"PreNormProof", "pre-norm", "exact", kProof},
                    Case{"PreNormBlock", "pre-norm", "predicted", kBlock},
                    Case{"PostNormDense", "post-norm", "none", ""},
                    Case{"PostNormProof", "post-norm", "exact", kProof},
                    Case{"PostNormHalfBlock", "post-norm", "predicted",
                         kHalfBlock},
                    Case{"OddDense", "odd", "none", ""},
                    Case{"OddSkip", "odd", "exact", kSkip},
                    Case{"OddMargin", "odd", "predicted", kMargin},
                    Case{"OddHalfBlock", "odd", "predicted", kHalfBlock}),
    [](const testing::TestParamInfo<Case> &info) { return info.param.name; });

} // namespace
