//===- AttentionTest.cpp - Operators that are attention as a whole --------===//

#include "foresight/Import/Onnx/Evaluator.h"

#include "foresight/Dialect/Foresight.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/MLIRContext.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;

namespace {

class AttentionTest : public testing::Test {
protected:
  MLIRContext context;
  Builder b{&context};
  NamedAttrList params;
  std::string type = "Attention", domain;

  void SetUp() override {
    context.loadDialect<OnnxDialect, ForesightDialect>();
  }

  Tensor floats(ArrayRef<int64_t> shape, std::vector<double> values) {
    return Tensor::ofFloats(b.getF32Type(), shape, std::move(values));
  }
  Tensor bools(ArrayRef<int64_t> shape, std::vector<int64_t> values) {
    return Tensor::ofInts(b.getI1Type(), shape, std::move(values));
  }
  void set(StringRef name, int64_t value) {
    params.set(name, b.getI64IntegerAttr(value));
  }
  void set(StringRef name, float value) {
    params.set(name, b.getF32FloatAttr(value));
  }

  llvm::Expected<Tensors> run(ArrayRef<Tensor> inputs, int outputs = 1) {
    OpBuilder builder(&context);
    OwningOpRef<Operation *> none(
        NoneOp::create(builder, builder.getUnknownLoc()));
    SmallVector<Value> operands(inputs.size(), (*none)->getResult(0));
    OperationState state(builder.getUnknownLoc(), NodeOp::getOperationName());
    NodeOp::build(builder, state,
                  SmallVector<Type>(outputs, ValueType::get(&context)),
                  b.getStringAttr(type),
                  domain.empty() ? StringAttr() : b.getStringAttr(domain),
                  params.getDictionary(&context), ArrayAttr(), operands, 0);
    OwningOpRef<NodeOp> node(cast<NodeOp>(Operation::create(state)));
    auto result = evaluate(*node, inputs, 23);
    node.release()->erase();
    return result;
  }
  std::vector<double> values(ArrayRef<Tensor> inputs, size_t output = 0) {
    auto found = run(inputs, static_cast<int>(output) + 1);
    if (!found) {
      ADD_FAILURE() << llvm::toString(found.takeError());
      return {};
    }
    return (*found)[output].floats();
  }
  void expectError(ArrayRef<Tensor> inputs, StringRef text, int outputs = 1) {
    auto found = run(inputs, outputs);
    ASSERT_FALSE(static_cast<bool>(found));
    std::string message = llvm::toString(found.takeError());
    EXPECT_NE(message.find(text), std::string::npos) << message;
  }

  /// One head of size 1, where a score is a product and is easy to say.
  Tensor q = floats({1, 1, 2, 1}, {1, 1});
  Tensor k = floats({1, 1, 2, 1}, {0, std::log(3.0)});
  Tensor v = floats({1, 1, 2, 1}, {4, 8});
};

TEST_F(AttentionTest, WeighsValuesBySoftmaxOfScaledScores) {
  // exp(0) : exp(log 3) is 1 : 3.
  std::vector<double> out = values({q, k, v});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_NEAR(out[0], 7, 1e-12);
  EXPECT_NEAR(out[1], 7, 1e-12);
  set("scale", 2.0f); // 1 : 9
  EXPECT_NEAR(values({q, k, v})[0], 7.6, 1e-12);
}

TEST_F(AttentionTest, ScaleIsThatOfTheHeadSizeByDefault) {
  Tensor four = floats({1, 1, 1, 4}, {1, 0, 0, 0});
  Tensor keys = floats({1, 1, 2, 4}, {0, 0, 0, 0, std::log(9.0), 0, 0, 0});
  // exp(log 9 / 2) is 3.
  EXPECT_NEAR(values({four, keys, v})[0], 7, 1e-12);
}

TEST_F(AttentionTest, CausalSeesNoLaterTokensAndAllOfTheCache) {
  set("is_causal", int64_t(1));
  EXPECT_NEAR(values({q, k, v})[0], 4, 1e-12);
  EXPECT_NEAR(values({q, k, v})[1], 7, 1e-12);
  Tensor pastKey = floats({1, 1, 1, 1}, {0});
  Tensor pastValue = floats({1, 1, 1, 1}, {-4});
  std::vector<double> out = values({q, k, v, Tensor(), pastKey, pastValue});
  EXPECT_NEAR(out[0], 0, 1e-12);        // -4 and 4
  EXPECT_NEAR(out[1], 24.0 / 5, 1e-12); // -4, 4 and three times 8
  // The new cache.
  EXPECT_EQ(values({q, k, v, Tensor(), pastKey, pastValue}, 2),
            (std::vector<double>{-4, 4, 8}));
}

TEST_F(AttentionTest, MasksAreAddedOrSayWhatIsSeen) {
  EXPECT_NEAR(values({q, k, v, bools({2, 2}, {0, 1, 1, 1})})[0], 8, 1e-12);
  EXPECT_NEAR(values({q, k, v, bools({2, 2}, {0, 1, 1, 1})})[1], 7, 1e-12);
  double three = std::log(3.0);
  EXPECT_NEAR(values({q, k, v, floats({1, 1, 1, 2}, {three, 0})})[0], 6, 1e-12);
  // A row that sees nothing.
  EXPECT_EQ(values({q, k, v, bools({2, 2}, {0, 0, 1, 1})})[0], 0);
}

TEST_F(AttentionTest, ThreeDimensionsHoldHeadsSideBySide) {
  set("q_num_heads", int64_t(2));
  set("kv_num_heads", int64_t(2));
  Tensor one = floats({1, 1, 2}, {1, 1});
  Tensor keys = floats({1, 2, 2}, {0, std::log(3.0), std::log(3.0), 0});
  Tensor data = floats({1, 2, 2}, {4, 4, 8, 8});
  std::vector<double> out = values({one, keys, data});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_NEAR(out[0], 7, 1e-12);
  EXPECT_NEAR(out[1], 5, 1e-12);
}

TEST_F(AttentionTest, RefusesWhatNoOptModelHas) {
  Tensor two = floats({1, 2, 2, 1}, {1, 1, 1, 1});
  expectError({two, k, v}, "2 heads of queries, 1 of keys and 1 of values");
  expectError({q, k, v, floats({2, 1}, {0, 0})}, "a mask of shape [2, 1]");
  expectError({q, k, v, Tensor(), k}, "not of both");
  expectError({q, k, v, Tensor(), Tensor(), Tensor(), bools({1}, {1})},
              "nonpad_kv_seqlen");
  expectError({q, k, v}, "has 4 outputs", 4);
  set("softcap", 50.0f);
  expectError({q, k, v}, "softcap is 50");
  params.clear();
  set("left_window_size", int64_t(4));
  expectError({q, k, v}, "window");
}

TEST_F(AttentionTest, MultiHeadAttentionOfOnnxRuntimeMeansTheSame) {
  type = "MultiHeadAttention";
  domain = "com.microsoft";
  set("num_heads", int64_t(1));
  Tensor rows = floats({1, 2, 1}, {1, 1});
  Tensor keys = floats({1, 2, 1}, {0, std::log(3.0)});
  Tensor data = floats({1, 2, 1}, {4, 8});
  EXPECT_NEAR(values({rows, keys, data})[0], 7, 1e-12);
  // Padding, by its mask.
  Tensor mask = Tensor::ofInts(b.getI32Type(), {1, 2}, {0, 1});
  EXPECT_NEAR(values({rows, keys, data, Tensor(), mask})[0], 8, 1e-12);
  set("unidirectional", int64_t(1));
  EXPECT_NEAR(values({rows, keys, data})[0], 4, 1e-12);
  EXPECT_NEAR(values({rows, keys, data})[1], 7, 1e-12);
  expectError({rows, keys, data, floats({3}, {0, 0, 0})}, "its bias");
  expectError({floats({1, 2, 1, 3, 1}, {1, 2, 3, 4, 5, 6})}, "packed");
}

} // namespace
