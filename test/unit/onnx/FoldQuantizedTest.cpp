//===- FoldQuantizedTest.cpp - Quantised weights as plain numbers ---------===//

#include "foresight/Import/Onnx/FoldQuantized.h"

#include "foresight/Dialect/Foresight.h"

#include "TempFolder.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;

namespace {

class FoldQuantizedTest : public testing::Test {
protected:
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::string message;

  void SetUp() override {
    context.loadDialect<OnnxDialect, ForesightDialect>();
  }

  /// Folds a graph with these constants and one node, of input %x.
  LogicalResult fold(const std::string &constants, const std::string &node) {
    module = parseSourceString<ModuleOp>(
        "onnx.graph @g opset 21 inputs [\"x\"] {\n^bb0(%x: "
        "tensor<?x?xf32>):\n" +
            constants + "\n%r = onnx.node " + node +
            " -> !onnx.value\nonnx.output [\"r\"] %r : !onnx.value\n}",
        &context);
    EXPECT_TRUE(module);
    ScopedDiagnosticHandler handler(
        &context, [&](Diagnostic &diagnostic) { message = diagnostic.str(); });
    return foldQuantized(*module->getOps<GraphOp>().begin());
  }
  /// The numbers of the only f32 matrix or vector that the graph has now.
  std::vector<float> numbers() {
    std::vector<float> found;
    module->walk([&](ConstantOp constant) {
      auto dense = dyn_cast<DenseFPElementsAttr>(constant.getSource());
      if (dense && constant.getName() == "codes")
        found.assign(dense.value_begin<float>(), dense.value_end<float>());
    });
    return found;
  }
  bool hasNode(StringRef type) {
    bool found = false;
    module->walk([&](NodeOp node) { found |= node.getOpType() == type; });
    return found;
  }
};

std::string constant(const std::string &name, const std::string &type,
                     const std::string &values) {
  return "%" + name + " = onnx.constant \"" + name + "\" : tensor<" + type +
         "> = dense<" + values + "> : tensor<" + type + ">\n";
}

TEST_F(FoldQuantizedTest, OneScaleIsForAll) {
  ASSERT_TRUE(succeeded(
      fold(constant("codes", "2x2xui8", "[[128, 130], [0, 255]]") +
               constant("s", "f32", "0.5") + constant("z", "ui8", "128"),
           "\"DequantizeLinear\"(%codes, %s, %z) : "
           "(tensor<2x2xui8>, tensor<f32>, tensor<ui8>)")));
  EXPECT_EQ(numbers(), (std::vector<float>{0, 1, -64, 63.5}));
  EXPECT_FALSE(hasNode("DequantizeLinear"));
}

TEST_F(FoldQuantizedTest, ScalesAreForSlicesOfTheAxis) {
  const std::string constants =
      constant("codes", "2x3xi8", "[[1, 2, 3], [-4, 5, -128]]") +
      constant("s", "2xf32", "[1.0, 10.0]") +
      constant("t", "3xf32", "[1.0, 10.0, 100.0]");
  ASSERT_TRUE(succeeded(
      fold(constants, "\"DequantizeLinear\" with {axis = 0 : i64}(%codes, %s) "
                      ": (tensor<2x3xi8>, tensor<2xf32>)")));
  EXPECT_EQ(numbers(), (std::vector<float>{1, 2, 3, -40, 50, -1280}));
  // The last axis is the default for a matrix.
  ASSERT_TRUE(succeeded(fold(constants, "\"DequantizeLinear\"(%codes, %t) : "
                                        "(tensor<2x3xi8>, tensor<3xf32>)")));
  EXPECT_EQ(numbers(), (std::vector<float>{1, 20, 300, -4, 50, -12800}));
}

TEST_F(FoldQuantizedTest, BlocksHaveScalesAndZerosOfTheirOwn) {
  // Two rows of an axis of three share one.
  ASSERT_TRUE(succeeded(fold(
      constant("codes", "3x2xi8", "[[1, 2], [3, 4], [5, 6]]") +
          constant("s", "2x2xf32", "[[1.0, 2.0], [10.0, 20.0]]") +
          constant("z", "2x2xi8", "[[1, 0], [0, 1]]"),
      "\"DequantizeLinear\" with {axis = 0 : i64, block_size = 2 : i64}"
      "(%codes, %s, %z) : (tensor<3x2xi8>, tensor<2x2xf32>, tensor<2x2xi8>)")));
  EXPECT_EQ(numbers(), (std::vector<float>{0, 4, 2, 8, 50, 100}));
}

TEST_F(FoldQuantizedTest, FourBitsAreReadFromTheFileLowHalfFirst) {
  test::TempFolder folder;
  const std::string path = folder.write("codes.bin", "\x21\xf8\x07");
  for (const auto &[type, expected] :
       {std::pair("ui4", std::vector<float>{1, 2, 8, 15, 7}),
        std::pair("i4", std::vector<float>{1, 2, -8, -1, 7})}) {
    const std::string tensor = "tensor<5x" + std::string(type) + ">";
    ASSERT_TRUE(succeeded(fold(
        "%codes = onnx.constant \"codes\" : " + tensor +
            " = #foresight.external<\"" + path + "\", offset = 0, bytes = 3, " +
            type + ">\n" + constant("s", "f32", "1.0"),
        "\"DequantizeLinear\"(%codes, %s) : (" + tensor + ", tensor<f32>)")));
    EXPECT_EQ(numbers(), expected) << type;
  }
}

TEST_F(FoldQuantizedTest, MatMulNBitsIsAProductWithATransposedMatrix) {
  // One row of 16 codes of 4 bits: 8 stands for zero.
  std::string bytes = "8, 9, 16, 129, 136, 136, 136, 136";
  const std::string constants =
      constant("codes", "1x1x8xui8", "[[[" + bytes + "]]]") +
      constant("s", "1xf32", "2.0");
  ASSERT_TRUE(succeeded(
      fold(constants,
           "\"MatMulNBits\" of \"com.microsoft\" with {K = 16 : i64, N = 1 : "
           "i64, bits = 4 : i64, block_size = 16 : i64}(%x, %codes, %s) : "
           "(tensor<?x?xf32>, tensor<1x1x8xui8>, tensor<1xf32>)")));
  EXPECT_EQ(numbers(), (std::vector<float>{0, -16, 2, -16, -16, -14, -14, 0, 0,
                                           0, 0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(hasNode("FusedMatMul"));
  EXPECT_FALSE(hasNode("MatMulNBits"));
}

TEST_F(FoldQuantizedTest, WhatIsNoConstantStays) {
  ASSERT_TRUE(succeeded(fold(constant("s", "f32", "1.0"),
                             "\"DequantizeLinear\"(%x, %s) : "
                             "(tensor<?x?xf32>, tensor<f32>)")));
  EXPECT_TRUE(hasNode("DequantizeLinear"));
  // Scales that do not fit the axis.
  ASSERT_TRUE(succeeded(
      fold(constant("codes", "2x3xi8", "1") + constant("s", "2xf32", "1.0"),
           "\"DequantizeLinear\"(%codes, %s) : "
           "(tensor<2x3xi8>, tensor<2xf32>)")));
  EXPECT_TRUE(hasNode("DequantizeLinear"));
  // Codes of another number of bits.
  ASSERT_TRUE(succeeded(
      fold(constant("codes", "1x1x4xui8", "1") + constant("s", "1xf32", "2.0"),
           "\"MatMulNBits\" of \"com.microsoft\" with {K = 16 : i64, N = 1 : "
           "i64, bits = 2 : i64, block_size = 16 : i64}(%x, %codes, %s) : "
           "(tensor<?x?xf32>, tensor<1x1x4xui8>, tensor<1xf32>)")));
  EXPECT_TRUE(hasNode("MatMulNBits"));
}

TEST_F(FoldQuantizedTest, WeightsThatWouldFillMemoryAreRefused) {
  EXPECT_TRUE(failed(fold(constant("codes", "32768x16384xi8", "1") +
                              constant("s", "f32", "1.0"),
                          "\"DequantizeLinear\"(%codes, %s) : "
                          "(tensor<32768x16384xi8>, tensor<f32>)")));
  EXPECT_NE(message.find("more than 268435456 numbers"), std::string::npos)
      << message;
}

TEST_F(FoldQuantizedTest, WeightsAreCountedBeforeAnyIsFolded) {
  const std::string node = "\"DequantizeLinear\"(%codes, %s) : "
                           "(tensor<16384x16384xi8>, tensor<f32>)";
  EXPECT_TRUE(failed(fold(
      constant("codes", "16384x16384xi8", "1") + constant("s", "f32", "1.0") +
          "%first = onnx.node " + node + " -> !onnx.value\n",
      node)));
  EXPECT_NE(message.find("more than 268435456 numbers"), std::string::npos)
      << message;
  EXPECT_EQ(numbers(), std::vector<float>());
}

} // namespace
