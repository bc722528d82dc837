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
                              std::vector<Tensor> inputs, int opset = 18,
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
                  std::vector<int64_t> values) {
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

private:
  OwningOpRef<ModuleOp> module;
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

TEST_F(EvaluatorTest, MissingInputsAndUnknownOperatorsAreErrors) {
  expectError(run("\"Add\"", {floats({1}, {1})}), "input 1 is missing");
  expectError(run("\"Celu\"", {floats({1}, {1})}), "not supported");
  expectError(
      run("\"Add\" of \"com.microsoft\"", {floats({1}, {1}), floats({1}, {1})}),
      "not supported");
  expectError(run("\"ConstantOfShape\"", {ints({2}, {1 << 20, 1 << 20})}),
              "a result of shape");
}

} // namespace
