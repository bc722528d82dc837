//===- KindsTest.cpp - One model, exported in many ways -------------------===//
//
// Nearly every file of test/fixtures/kinds is the same model, so each must come
// to the same step, whatever exporter, option or tool wrote it.
//
//===----------------------------------------------------------------------===//

#include "foresight/Import/Onnx/ImportOnnx.h"
#include "foresight/Import/Opt/ModelFacts.h"
#include "foresight/Interpreter/Interpreter.h"
#include "foresight/Raise/Raise.h"
#include "foresight/support/Safetensors.h"

#include "Decoder.h"

#include "mlir/IR/MLIRContext.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace mlir;
using namespace foresight;

namespace {

struct Kind {
  const char *name;
  /// What 16 bits, or fewer, cost.
  double tolerance = 1e-5;
  /// A file of its own where the weights are others.
  const char *expected = "expected";
};

void PrintTo(const Kind &kind, std::ostream *os) { *os << kind.name; }

class KindsTest : public testing::TestWithParam<Kind> {
protected:
  MLIRContext context;
};

template <typename T>
std::vector<T> read(const Safetensors &file, const std::string &name) {
  const TensorInfo *tensor = file.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (!tensor)
    return {};
  std::vector<T> values(tensor->bytes / sizeof(T));
  std::memcpy(values.data(), tensor->data(), tensor->bytes);
  return values;
}

TEST_P(KindsTest, GivesTheLogitsAndTokensOfPyTorch) {
  const std::string folder = FORESIGHT_SOURCE_DIR "/test/fixtures/kinds/";
  auto module = importOnnx(context, folder + GetParam().name + ".onnx");
  ASSERT_TRUE(succeeded(module));
  bool warned = false;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    warned |= diagnostic.getSeverity() == DiagnosticSeverity::Warning;
    return failure(); // print it all the same
  });
  ASSERT_TRUE(succeeded(raise(**module)));
  EXPECT_FALSE(warned);
  auto expected =
      Safetensors::openFile(folder + GetParam().expected + ".safetensors");
  ASSERT_TRUE(expected.ok()) << expected.error().message;

  auto ids = read<int64_t>(*expected, "single.input_ids");
  auto logits = read<float>(*expected, "single.logits");
  size_t vocabulary = logits.size() / ids.size();
  double largest = 0;
  for (float logit : logits)
    largest = std::max<double>(largest, std::abs(logit));
  test::Decoder step(**module);
  for (size_t t = 0; t < ids.size(); ++t) {
    std::vector<double> found = step.next(ids[t]);
    ASSERT_EQ(found.size(), vocabulary);
    double worst = 0;
    for (size_t i = 0; i < vocabulary; ++i)
      worst = std::max(worst, std::abs(found[i] - logits[t * vocabulary + i]));
    EXPECT_LT(worst / largest, GetParam().tolerance) << "token " << t;
  }

  if (!expected->find("greedy.tokens"))
    return;
  auto tokens = read<int64_t>(*expected, "greedy.tokens");
  constexpr size_t kGenerated = 24;
  ASSERT_GT(tokens.size(), kGenerated);
  test::Decoder decoder(**module);
  ArrayRef<int64_t> given = ArrayRef(tokens).drop_back(kGenerated);
  // Rounded weights may exchange tokens that are nearly as likely.
  size_t compared =
      GetParam().tolerance > 1e-3 ? given.size() + 1 : tokens.size();
  for (size_t n = given.size(); n < compared; ++n) {
    std::vector<double> found = decoder.next(given);
    ASSERT_FALSE(found.empty());
    auto best = std::max_element(found.begin(), found.end());
    ASSERT_EQ(best - found.begin(), tokens[n]) << "token " << n;
    given = ArrayRef(tokens).slice(n, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, KindsTest,
    testing::Values(Kind{"ts_eager_11"}, Kind{"ts_keep1"}, Kind{"ts_keep3"},
                    Kind{"ts_last"}, Kind{"dynamo_23"}, Kind{"dynamo_25"},
                    Kind{"dynamo_static_23"}, Kind{"dynamo_unoptimized_23"},
                    Kind{"dynamo_ids_23"}, Kind{"dynamo_keep1_20"},
                    Kind{"dynamo_keep1_23"}, Kind{"optimum_past"},
                    Kind{"slim_ts"}, Kind{"slim_dynamo"}, Kind{"sim_ts"},
                    Kind{"sim_dynamo"}, Kind{"ort_all"}, Kind{"ort_dynamo_all"},
                    Kind{"ort_past_all"}, Kind{"fused_attention"},
                    Kind{"fused_heads"}, Kind{"joined"}, Kind{"joined_heads"},
                    Kind{"dynamo_f16", 5e-3}, Kind{"float16_keep", 5e-3},
                    Kind{"float16_all", 5e-3}, Kind{"float16_dynamo", 5e-3},
                    Kind{"optimizer_gpt2_f16", 5e-3}, Kind{"dynamo_bf16", 2e-2},
                    Kind{"typed"}, Kind{"no_bias", 1e-5, "no_bias"},
                    Kind{"no_final_norm", 1e-5, "no_final_norm"},
                    Kind{"quantized_4bits", 1e-5, "quantized_4bits"},
                    Kind{"quantized_4bits_qdq", 1e-5, "quantized_4bits_qdq"},
                    Kind{"quantized_8bits", 1e-5, "quantized_8bits"}),
    [](const testing::TestParamInfo<Kind> &info) {
      return std::string(info.param.name);
    });

} // namespace
