//===- EvaluatorTest.cpp - What onnx nodes compute ------------------------===//
//
// Edge cases of operators; that whole models come out right is tested on real
// exports.
//
//===----------------------------------------------------------------------===//

#include "foresight/Import/Onnx/Evaluator.h"

#include "foresight/Dialect/Foresight.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;

namespace {

class EvaluatorTest : public testing::Test {
protected:
  MLIRContext context;
  Builder b{&context};
  OwningOpRef<ModuleOp> module;

  void SetUp() override {
    context.loadDialect<OnnxDialect, ForesightDialect>();
  }

  Tensor ints(ArrayRef<int64_t> shape, std::vector<int64_t> values) {
    return Tensor::ofInts(b.getI64Type(), shape, std::move(values));
  }
  Tensor floats(ArrayRef<int64_t> shape, std::vector<double> values) {
    return Tensor::ofFloats(b.getF32Type(), shape, std::move(values));
  }

  /// Runs one node on `inputs`; `node` is its name and attributes.
  llvm::Expected<Tensors> run(const std::string &node,
                              const std::vector<Tensor> &inputs, int opset = 18,
                              int outputs = 1) {
    std::string args, types, results, names;
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::string comma = i ? ", " : "";
      args += comma + "%a" + std::to_string(i);
      names += comma + "\"a" + std::to_string(i) + "\"";
      types += comma + "tensor<*xf32>";
    }
    for (int i = 0; i < outputs; ++i)
      results += std::string(i ? ", " : "") + "!onnx.value";
    std::string blockArgs;
    for (size_t i = 0; i < inputs.size(); ++i)
      blockArgs += std::string(i ? ", " : "") + "%a" + std::to_string(i) +
                   ": tensor<*xf32>";
    std::string header = inputs.empty() ? "" : "^bb0(" + blockArgs + "):\n";
    std::string text = "onnx.graph @g opset " + std::to_string(opset) +
                       " inputs [" + names + "] {\n" + header + "%r" +
                       (outputs > 1 ? ":" + std::to_string(outputs) : "") +
                       " = onnx.node " + node + "(" + args + ") : (" + types +
                       ") -> (" + results + ")\n onnx.output [\"r\"] %r" +
                       (outputs > 1 ? "#0" : "") + " : !onnx.value\n}";
    module = parseSourceString<ModuleOp>(text, &context);
    if (!module)
      return llvm::createStringError("does not parse:\n" + text);
    onnx::NodeOp op;
    module->walk([&](onnx::NodeOp found) { op = found; });
    return evaluate(op, inputs, opset);
  }

  void expectInts(llvm::Expected<Tensors> found, ArrayRef<int64_t> shape,
                  const std::vector<int64_t> &values) {
    if (!found) {
      FAIL() << llvm::toString(found.takeError());
    }
    EXPECT_EQ(ArrayRef((*found)[0].shape()), shape);
    EXPECT_EQ((*found)[0].ints(), values);
  }
  void expectFloats(llvm::Expected<Tensors> found, ArrayRef<int64_t> shape,
                    std::vector<double> values) {
    if (!found) {
      FAIL() << llvm::toString(found.takeError());
    }
    EXPECT_EQ(ArrayRef((*found)[0].shape()), shape);
    ASSERT_EQ((*found)[0].floats().size(), values.size());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR((*found)[0].floats()[i], values[i], 1e-12) << i;
  }
  void expectError(llvm::Expected<Tensors> found, const std::string &why) {
    ASSERT_FALSE(static_cast<bool>(found));
    std::string said = llvm::toString(found.takeError());
    EXPECT_NE(said.find(why), std::string::npos) << said;
  }
};

TEST_F(EvaluatorTest, SliceTakesSentinelsNegativeIndicesAndSteps) {
  Tensor x = ints({5}, {0, 1, 2, 3, 4});
  auto slice = [&](int64_t start, int64_t end, int64_t step) {
    return run("\"Slice\"", {x, ints({1}, {start}), ints({1}, {end}),
                             ints({1}, {0}), ints({1}, {step})});
  };
  expectInts(slice(1, INT64_MAX, 1), {4}, {1, 2, 3, 4});
  expectInts(slice(-2, INT64_MAX, 1), {2}, {3, 4});
  expectInts(slice(0, -1, 2), {2}, {0, 2});
  expectInts(slice(-1, INT64_MIN, -2), {3}, {4, 2, 0});
  expectInts(slice(4, 2, 1), {0}, {});
  expectError(slice(0, 1, 0), "a step of 0");
}

TEST_F(EvaluatorTest, ReshapeCopiesAndInfersSizes) {
  Tensor x = ints({2, 3}, {0, 1, 2, 3, 4, 5});
  expectInts(run("\"Reshape\"", {x, ints({2}, {0, -1})}), {2, 3},
             {0, 1, 2, 3, 4, 5});
  expectInts(run("\"Reshape\"", {x, ints({3}, {3, 1, 2})}), {3, 1, 2},
             {0, 1, 2, 3, 4, 5});
  expectError(run("\"Reshape\"", {x, ints({2}, {4, -1})}), "cannot become");
  expectError(run("\"Reshape\"", {x, ints({2}, {-1, -1})}), "two sizes of -1");
  Tensor empty = ints({0, 4}, {});
  expectInts(
      run("\"Reshape\" with {allowzero = 1 : i64}", {empty, ints({2}, {0, 4})}),
      {0, 4}, {});
}

TEST_F(EvaluatorTest, SoftmaxBeforeOpset13TakesAllThatFollowsAsOneRow) {
  Tensor x = floats({1, 2, 2}, {0, 0, 0, 0});
  expectFloats(run("\"Softmax\" with {axis = 1 : i64}", {x}, 12), {1, 2, 2},
               {.25, .25, .25, .25});
  expectFloats(run("\"Softmax\" with {axis = 1 : i64}", {x}, 13), {1, 2, 2},
               {.5, .5, .5, .5});
}

TEST_F(EvaluatorTest, SoftmaxOfNothingButInfinityIsNotANumber) {
  double infinity = std::numeric_limits<double>::infinity();
  auto found = run("\"Softmax\"", {floats({1, 2}, {-infinity, -infinity})});
  ASSERT_TRUE(static_cast<bool>(found));
  EXPECT_TRUE(std::isnan((*found)[0].floats()[0]));
}

TEST_F(EvaluatorTest, SumsBeyondTheTypeBecomeInfinite) {
  // What two masks added together do in the model must happen here too.
  double lowest = -3.4028234663852886e38;
  auto found = run("\"Add\"", {floats({1}, {lowest}), floats({1}, {lowest})});
  ASSERT_TRUE(static_cast<bool>(found));
  EXPECT_EQ((*found)[0].floats()[0], -std::numeric_limits<double>::infinity());
  found = run("\"Cast\" with {to = 10 : i64}", {floats({2}, {lowest, 65504})});
  ASSERT_TRUE(static_cast<bool>(found));
  EXPECT_EQ((*found)[0].floats()[0], -std::numeric_limits<double>::infinity());
  EXPECT_EQ((*found)[0].floats()[1], 65504);
}

TEST_F(EvaluatorTest, CastsKeepIntegersExact) {
  int64_t large = (int64_t(1) << 60) + 1;
  Tensor x = ints({2}, {large, -1});
  expectInts(run("\"Cast\" with {to = 7 : i64}", {x}), {2}, {large, -1});
  expectInts(run("\"Cast\" with {to = 6 : i64}", {x}), {2}, {1, -1});
  expectInts(run("\"Cast\" with {to = 9 : i64}", {x}), {2}, {1, 1});
}

TEST_F(EvaluatorTest, IntegersDivideTowardsZeroAndNotByZero) {
  expectInts(run("\"Div\"", {ints({2}, {-7, 7}), ints({1}, {2})}), {2},
             {-3, 3});
  expectError(run("\"Div\"", {ints({1}, {1}), ints({1}, {0})}),
              "divided by zero");
  expectInts(run("\"Mod\"", {ints({2}, {-7, 7}), ints({1}, {3})}), {2}, {2, 1});
}

TEST_F(EvaluatorTest, MatMulBroadcastsMatrices) {
  Tensor a = floats({2, 1, 2}, {1, 2, 3, 4});
  Tensor b = floats({2, 2}, {1, 0, 0, 10});
  expectFloats(run("\"MatMul\"", {a, b}), {2, 1, 2}, {1, 20, 3, 40});
  expectFloats(run("\"MatMul\"", {floats({2}, {1, 2}), b}), {2}, {1, 20});
  expectError(run("\"MatMul\"", {a, floats({3, 1}, {1, 1, 1})}),
              "have no product");
}

TEST_F(EvaluatorTest, ReduceTakesAxesAsAttributeAndAsInput) {
  Tensor x = floats({2, 2}, {1, 3, 5, 7});
  expectFloats(run("\"ReduceMean\" with {axes = array<i64: -1>}", {x}, 13),
               {2, 1}, {2, 6});
  expectFloats(
      run("\"ReduceMean\" with {keepdims = 0 : i64}", {x, ints({1}, {0})}), {2},
      {3, 5});
  expectFloats(run("\"ReduceMean\"", {x}), {1, 1}, {4});
}

TEST_F(EvaluatorTest, CumSumIsExclusiveAndReversed) {
  Tensor x = ints({3}, {1, 2, 3}), axis = ints({}, {0});
  expectInts(run("\"CumSum\"", {x, axis}), {3}, {1, 3, 6});
  expectInts(run("\"CumSum\" with {exclusive = 1 : i64}", {x, axis}), {3},
             {0, 1, 3});
  expectInts(run("\"CumSum\" with {reverse = 1 : i64}", {x, axis}), {3},
             {6, 5, 3});
}

TEST_F(EvaluatorTest, TriluCutsBesideADiagonal) {
  Tensor x = ints({2, 3}, {1, 1, 1, 1, 1, 1});
  expectInts(run("\"Trilu\" with {upper = 1 : i64}", {x, ints({}, {1})}),
             {2, 3}, {0, 1, 1, 0, 0, 1});
  expectInts(run("\"Trilu\" with {upper = 0 : i64}", {x}), {2, 3},
             {1, 0, 0, 1, 1, 0});
}

TEST_F(EvaluatorTest, GatherAndScatterCheckIndices) {
  Tensor x = floats({2, 2}, {1, 2, 3, 4});
  expectFloats(run("\"Gather\" with {axis = 1 : i64}", {x, ints({}, {-1})}),
               {2}, {2, 4});
  expectError(run("\"Gather\"", {x, ints({1}, {2})}), "index 2 of 2");
  expectFloats(run("\"GatherND\"", {x, ints({1, 2}, {1, 0})}), {1}, {3});
  expectFloats(
      run("\"ScatterND\"", {x, ints({1, 1}, {1}), floats({1, 2}, {8, 9})}),
      {2, 2}, {1, 2, 8, 9});
}

TEST_F(EvaluatorTest, LayerNormUsesTheBiasedVariance) {
  auto found =
      run("\"LayerNormalization\" with {epsilon = 0.0 : f32}",
          {floats({1, 2}, {1, 3}), floats({2}, {2, 2}), floats({2}, {5, 5})});
  expectFloats(std::move(found), {1, 2}, {3, 7});
}

TEST_F(EvaluatorTest, SplitDividesUnevenlyByNumberOfOutputs) {
  auto found = run("\"Split\" with {num_outputs = 2 : i64}",
                   {ints({5}, {0, 1, 2, 3, 4})}, 18, 2);
  ASSERT_TRUE(static_cast<bool>(found));
  EXPECT_EQ((*found)[0].ints(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ((*found)[1].ints(), (std::vector<int64_t>{3, 4}));
}

TEST_F(EvaluatorTest, SizesThatWereMadeToHurtAreRefused) {
  const int64_t huge = INT64_MAX, least = INT64_MIN;
  Tensor x = floats({2, 3}, {0, 1, 2, 3, 4, 5});
  Tensor none = floats({0}, {});
  Tensor column = floats({1 << 13, 1}, std::vector<double>(1 << 13));
  Tensor row = column.reshaped({1, 1 << 13});
  auto sizes = [&](std::vector<int64_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return ints({count}, std::move(values));
  };
  const char *result = "a result of ";
  expectError(run("\"Reshape\"", {x, sizes({huge, huge, 6})}), "cannot become");
  expectError(run("\"Reshape\" with {allowzero = 1 : i64}",
                  {none, sizes({0, huge, huge})}),
              result);
  expectError(run("\"Expand\"", {x, sizes({huge, 2, 3})}), result);
  expectError(run("\"Expand\"", {floats({1}, {1}), sizes({-5})}), result);
  expectError(run("\"Tile\"", {x, sizes({huge, huge})}), result);
  expectError(run("\"ConstantOfShape\"", {sizes({huge, huge, 0})}), result);
  expectError(run("\"ConstantOfShape\"", {sizes({-1})}), result);
  expectError(
      run("\"ConstantOfShape\"", {sizes(std::vector<int64_t>(1000, 1))}),
      "a result of 1000 dimensions");
  expectError(
      run("\"Range\"", {ints({}, {least}), ints({}, {huge}), ints({}, {1})}),
      result);
  expectError(run("\"MatMul\"", {column, row}), result);
  expectError(run("\"Gemm\"", {column, row}), result);
  expectError(run("\"Add\"", {column, row}), result);
  expectError(
      run("\"Gather\"", {column.reshaped({1, 1 << 13}),
                         ints({1 << 13}, std::vector<int64_t>(1 << 13))}),
      result);
  expectError(
      run("\"GatherND\"", {column.reshaped({1 << 13}), ints({1 << 13, 0}, {})}),
      result);
  expectError(run("\"Concat\" with {axis = 0 : i64}",
                  std::vector<Tensor>(2049, column)),
              result);
  // A step that overflows; slicing twice would read beside the data.
  expectFloats(run("\"Slice\"",
                   {x, sizes({0}), sizes({huge}), sizes({1}), sizes({huge})}),
               {2, 1}, {0, 3});
  expectFloats(run("\"Slice\"", {x, sizes({-1}), sizes({least}), sizes({1}),
                                 sizes({least})}),
               {2, 1}, {2, 5});
  expectError(
      run("\"Slice\"", {x, sizes({1, 1}), sizes({2, 2}), sizes({0, 0})}),
      "axis 0 is sliced twice");
  expectError(run("\"Split\"", {x, sizes({huge, huge})}, 18, 2),
              "its parts do not add up");
  expectError(run("\"GatherND\" with {batch_dims = 1 : i64}",
                  {x, ints({3, 1}, {0, 0, 0})}),
              "batches of 3 and 2");
  expectError(run("\"Clip\"", {x, none}), "single numbers");
  expectError(run("\"Gemm\"", {x, x.reshaped({3, 2}), ints({2}, {1, 1})}),
              "adds integers");
}

TEST_F(EvaluatorTest, IntegersWrapAround) {
  const int64_t least = INT64_MIN;
  expectInts(run("\"Neg\"", {ints({1}, {least})}), {1}, {least});
  expectInts(run("\"Abs\"", {ints({1}, {least})}), {1}, {least});
  expectInts(run("\"Div\"", {ints({1}, {least}), ints({1}, {-1})}), {1},
             {least});
  expectInts(run("\"Mod\"", {ints({1}, {least}), ints({1}, {-1})}), {1}, {0});
  expectInts(run("\"Sum\"", {ints({1}, {least}), ints({1}, {least})}), {1},
             {0});
  expectInts(run("\"ReduceSum\" with {keepdims = 0 : i64}",
                 {ints({2}, {INT64_MAX, 1})}),
             {}, {least});
  expectInts(run("\"CumSum\"", {ints({2}, {INT64_MAX, 1}), ints({}, {0})}), {2},
             {INT64_MAX, least});
  expectInts(run("\"Clip\"", {ints({2}, {-7, 7}), ints({}, {-5})}), {2},
             {-5, 7});
}

TEST_F(EvaluatorTest, GraphsThatTakeTooMuchAreRefused) {
  // Nothing that was computed may be forgotten, since all of it is added up.
  std::string body;
  for (int i = 0; i < 12; ++i)
    body += "%v" + std::to_string(i + 1) + " = onnx.node \"ConstantOfShape\"" +
            "(%v0) : (tensor<*xi64>) -> !onnx.value\n";
  auto module = parseSourceString<ModuleOp>(
      "onnx.graph @g opset 17 inputs [\"a\"] {\n^bb0(%v0: tensor<*xi64>):\n" +
          body + "onnx.output [\"y\"] %v12 : !onnx.value\n}",
      &context);
  ASSERT_TRUE(module);
  GraphOp graph = *module->getOps<GraphOp>().begin();
  expectError(evaluate(graph, {ints({2}, {1 << 12, 1 << 12})}),
              "beside others of");

  Budget budget;
  Tensor wide = floats({1 << 11, 1 << 11}, std::vector<double>(1 << 22));
  auto product = parseSourceString<ModuleOp>(
      "onnx.graph @g opset 17 inputs [\"a\"] {\n^bb0(%a: tensor<*xf32>):\n"
      "%p = onnx.node \"MatMul\"(%a, %a) : (tensor<*xf32>, tensor<*xf32>) -> "
      "!onnx.value\nonnx.output [\"y\"] %p : !onnx.value\n}",
      &context);
  ASSERT_TRUE(product);
  NodeOp node;
  product->walk([&](NodeOp found) { node = found; });
  llvm::Error costly = budget.charge(node, {wide, wide});
  EXPECT_NE(llvm::toString(std::move(costly)).find("more than a small input"),
            std::string::npos);

  // Batches that meet each other, though neither operand is large.
  Tensor row = floats({1 << 10, 1, 1, 1 << 12}, std::vector<double>(1 << 22));
  Tensor column =
      floats({1, 1 << 12, 1 << 12, 1}, std::vector<double>(1 << 24));
  Budget other;
  EXPECT_NE(llvm::toString(other.charge(node, {row, column}))
                .find("more than a small input"),
            std::string::npos);
  expectError(run("\"MatMul\"",
                  {floats({1 << 20, 1, 1, 1}, std::vector<double>(1 << 20)),
                   floats({1, 1 << 20, 1, 1}, std::vector<double>(1 << 20))}),
              "a result of shape [1048576, 1048576, 1, 1]");
}

TEST_F(EvaluatorTest, AttentionOfWideValuesIsRefused) {
  Tensor query = floats({1, 1, 1 << 12, 1}, std::vector<double>(1 << 12));
  Tensor key = floats({1, 1, 1, 1}, {1});
  Tensor value = floats({1, 1, 1, 1 << 20}, std::vector<double>(1 << 20));
  expectError(run("\"Attention\"", {query, key, value}, 23),
              "a result of shape [1, 1, 4096, 1048576]");
  // 2^12 tokens that see as many, whose values have 2^12 features.
  Tensor all = floats({1, 1, 1 << 12, 1 << 12}, std::vector<double>(1 << 24));
  (void)run("\"Attention\"", {key, key, key}, 23);
  NodeOp node;
  module->walk([&](NodeOp found) { node = found; });
  Budget budget;
  EXPECT_NE(llvm::toString(budget.charge(node, {query, query, all}))
                .find("more than a small input"),
            std::string::npos);
}

TEST_F(EvaluatorTest, MissingInputsAndUnknownOperatorsAreErrors) {
  expectError(run("\"Add\"", {floats({1}, {1})}), "input 1 is missing");
  Tensor none;
  expectError(run("\"Max\"", {ints({1}, {1}), none}), "input 1 is missing");
  expectError(run("\"Sum\"", {floats({1}, {1}), none}), "input 1 is missing");
  // A message does not hold millions of sizes.
  expectError(run("\"Reshape\"", {floats({1}, {1}),
                                  ints({100}, std::vector<int64_t>(100, 2))}),
              "2, 2, ...]");
  expectError(run("\"Celu\"", {floats({1}, {1})}), "not supported");
  expectError(
      run("\"Add\" of \"com.microsoft\"", {floats({1}, {1}), floats({1}, {1})}),
      "not supported");
  expectError(run("\"ConstantOfShape\"", {ints({2}, {1 << 20, 1 << 20})}),
              "a result of shape");
}

} // namespace
