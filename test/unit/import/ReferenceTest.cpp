//===- ReferenceTest.cpp - Imported models against PyTorch ----------------===//

#include "foresight/Import/HuggingFace/ImportHuggingFace.h"
#include "foresight/Import/Shape/ImportShape.h"
#include "foresight/Interpreter/Interpreter.h"
#include "foresight/support/Safetensors.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>

using namespace mlir;
using namespace foresight;
using interpreter::Data;

namespace {

/// Logits of the last of `ids`, by the interpreter, with empty caches.
std::vector<double> runStep(ModuleOp module, const std::vector<int32_t> &ids) {
  auto step = interpreter::findEntry(module, "step");
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  SmallVector<Data> arguments = {interpreter::Ids{ids},
                                 interpreter::Ids{positions}};
  for (Type type : step.getArgumentTypes().drop_front(2)) {
    auto cacheType = cast<KvCacheType>(type);
    interpreter::KvCache cache{cacheType.getHeads(),
                               cacheType.getHeadDim(),
                               cacheType.getCapacity(),
                               {},
                               {}};
    const size_t size =
        static_cast<size_t>(cache.heads * cache.headDim * cache.capacity);
    cache.keys.resize(size);
    cache.values.resize(size);
    arguments.push_back(std::move(cache));
  }
  interpreter::Weights weights;
  interpreter::Interpreter run(module, weights);
  auto results = run.run(step, arguments);
  EXPECT_TRUE(succeeded(results));
  return failed(results) ? std::vector<double>()
                         : (*results)[0].getIf<interpreter::Matrix>()->data;
}

std::vector<int32_t> idsOf(const TensorInfo &tensor) {
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < tensor.bytes / 8; ++i) {
    int64_t id;
    std::memcpy(&id, tensor.data() + i * 8, 8);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

/// Compares with the last row of `logits`.
void expectLogits(const std::vector<double> &found, const TensorInfo &logits,
                  double tolerance) {
  const uint64_t count = found.size();
  ASSERT_GT(count, 0u);
  double worst = 0;
  for (uint64_t i = 0; i < count; ++i) {
    float expected;
    std::memcpy(&expected, logits.data() + logits.bytes - (count - i) * 4, 4);
    worst = std::max(worst, std::fabs(found[i] - expected));
  }
  EXPECT_LT(worst, tolerance);
}

TEST(ReferenceTest, TinyModelsGiveTheLogitsOfTransformers) {
  for (const char *name :
       {"bare_names", "post_norm", "no_bias", "no_final_norm"}) {
    SCOPED_TRACE(name);
    const std::string folder =
        std::string(FORESIGHT_SOURCE_DIR "/test/fixtures/huggingface/") + name;
    MLIRContext context;
    auto module = importHuggingFace(context, folder);
    // The folder has a second safetensors file; model.safetensors wins.
    ASSERT_TRUE(module.ok()) << module.error().message;
    auto expected = Safetensors::openFile(folder + "/expected.safetensors");
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    // Caches are f32 here, so nothing but f32 weights is rounded.
    expectLogits(runStep(**module, idsOf(*expected->find("input_ids"))),
                 *expected->find("logits"), 1e-5);
  }
}

TEST(ReferenceTest, TheTrainedExampleGivesTheLogitsOfPyTorch) {
  const std::string folder = FORESIGHT_SOURCE_DIR "/examples/opt-mini";
  MLIRContext context;
  auto module = importHuggingFace(context, folder);
  ASSERT_TRUE(module.ok()) << module.error().message;
  auto expected = Safetensors::openFile(folder + "/expected.safetensors");
  ASSERT_TRUE(expected.ok());
  const std::vector<double> logits =
      runStep(**module, idsOf(*expected->find("compiler.input_ids")));
  expectLogits(logits, *expected->find("compiler.logits"), 2e-2);
}

TEST(ReferenceTest, SyntheticModelsStayFiniteAndDoNotCollapse) {
  MLIRContext context;
  ShapeOptions options;
  options.shape = "opt-mini";
  options.seed = 11;
  auto module = importShape(context, options);
  ASSERT_TRUE(module.ok()) << module.error().message;
  const std::vector<double> a = runStep(**module, {2, 100, 200, 300});
  const std::vector<double> b = runStep(**module, {2, 100, 200, 4000});
  double square = 0, product = 0, other = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::isfinite(a[i]));
    square += a[i] * a[i];
    other += b[i] * b[i];
    product += a[i] * b[i];
  }
  const double deviation = std::sqrt(square / static_cast<double>(a.size()));
  EXPECT_GT(deviation, 0.1);
  EXPECT_LT(deviation, 10);
  // The last token decides: two of them give different logits.
  EXPECT_LT(product / std::sqrt(square * other), 0.9);
}

} // namespace
