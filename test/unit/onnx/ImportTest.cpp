//===- ImportTest.cpp - Damaged and odd model files -----------------------===//

#include "foresight/Import/Onnx/ImportOnnx.h"
#include "foresight/Import/Onnx/Onnx.h"

#include "TempFolder.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace foresight;

namespace {

/// Writes messages of onnx.proto, one field after the other.
struct Message {
  std::string bytes;

  Message &varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
    return *this;
  }
  Message &number(unsigned field, uint64_t value) {
    return varint(field << 3).varint(value);
  }
  Message &text(unsigned field, const std::string &value) {
    varint(field << 3 | 2).varint(value.size());
    bytes += value;
    return *this;
  }
  Message &message(unsigned field, const Message &value) {
    return text(field, value.bytes);
  }
};

Message valueInfo(const std::string &name, uint64_t element) {
  Message dim, shape, tensor, type, info;
  dim.text(2, "n");
  shape.message(1, dim);
  tensor.number(1, element).message(2, shape);
  type.message(1, tensor);
  return info.text(1, name).message(2, type);
}

Message node(const std::string &opType, const std::vector<std::string> &inputs,
             const std::string &output) {
  Message result;
  for (const std::string &input : inputs)
    result.text(1, input);
  return result.text(2, output).text(3, "node_" + output).text(4, opType);
}

Message model(const Message &graph, int64_t opset = 17) {
  Message version, result;
  version.number(2, static_cast<uint64_t>(opset));
  return result.number(1, 8).message(8, version).message(7, graph);
}

class ImportTest : public testing::Test {
protected:
  test::TempFolder folder;
  MLIRContext context;
  std::string said;

  FailureOr<OwningOpRef<ModuleOp>> import(const std::string &bytes) {
    said.clear();
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      said += diagnostic.str() + "\n";
      return success();
    });
    return importOnnx(context, folder.write("model.onnx", bytes));
  }
  void expectRefused(const std::string &bytes, const std::string &why) {
    EXPECT_TRUE(failed(import(bytes)));
    EXPECT_NE(said.find(why), std::string::npos) << said;
  }
};

TEST_F(ImportTest, EmptyRandomAndTextFilesAreNotModels) {
  expectRefused("", "is not an ONNX model");
  expectRefused("Once upon a time there was a model.", "is not an ONNX model");
  std::mt19937 random(7);
  std::string noise(5000, ' ');
  for (char &c : noise)
    c = static_cast<char>(random());
  expectRefused(noise, "is not an ONNX model");
}

TEST_F(ImportTest, EveryTruncationIsRefusedOrWhole) {
  std::ifstream file(FORESIGHT_SOURCE_DIR
                     "/test/fixtures/exports/optimum_past/model.onnx",
                     std::ios::binary);
  std::string whole{std::istreambuf_iterator<char>(file), {}};
  ASSERT_TRUE(succeeded(import(whole))) << said;
  for (size_t size = 0; size < whole.size(); size += 1 + size / 8)
    EXPECT_TRUE(failed(import(whole.substr(0, size)))) << size;
}

TEST_F(ImportTest, FlippedBytesNeverCrash) {
  std::ifstream file(FORESIGHT_SOURCE_DIR
                     "/test/fixtures/exports/dynamo_eager/model.onnx",
                     std::ios::binary);
  std::string whole{std::istreambuf_iterator<char>(file), {}};
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::string damaged = whole;
    for (int k = 0; k < 4; ++k)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    refused += failed(import(damaged));
  }
  EXPECT_GT(refused, 10);
}

TEST_F(ImportTest, MissingFileAndFolderAreSaidSo) {
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    said += diagnostic.str();
    return success();
  });
  EXPECT_TRUE(failed(importOnnx(context, folder / "none.onnx")));
  EXPECT_NE(said.find("No such file"), std::string::npos) << said;
  EXPECT_TRUE(failed(importOnnx(context, folder.str())));
  EXPECT_NE(said.find("not a regular file"), std::string::npos) << said;
}

TEST_F(ImportTest, OldOpsetIsRefused) {
  Message graph;
  graph.message(11, valueInfo("x", 1)).message(12, valueInfo("x", 1));
  expectRefused(model(graph, 9).bytes, "opset 9 is not supported");
  EXPECT_TRUE(succeeded(import(model(graph, 11).bytes))) << said;
  EXPECT_TRUE(succeeded(import(model(graph, 25).bytes))) << said;
}

TEST_F(ImportTest, UnknownElementTypesAreNamed) {
  Message graph;
  graph.message(11, valueInfo("x", 14));
  expectRefused(model(graph).bytes, "a tensor of COMPLEX64");
  Message tensor, withTensor;
  tensor.number(1, 4).number(2, 17).text(8, "w").text(9, "abcd");
  withTensor.message(5, tensor);
  expectRefused(model(withTensor).bytes,
                "tensor 'w': elements of FLOAT8E4M3FN are not supported");
}

TEST_F(ImportTest, FourBitsAreReadFromBytesOnly) {
  Message tensor, graph;
  // Four of them take two bytes.
  tensor.number(1, 4).number(2, 22).text(8, "w").text(9, "abc");
  graph.message(5, tensor);
  expectRefused(model(graph).bytes,
                "tensor 'w': its shape needs 2 bytes, but 3 are stored");
  Message numbers, withNumbers;
  numbers.number(1, 2).number(2, 21).text(8, "w").number(5, 18);
  withNumbers.message(5, numbers);
  expectRefused(model(withNumbers).bytes,
                "tensor 'w': elements of UINT4 are only read from raw_data");
}

TEST_F(ImportTest, ShapeAndDataMustAgree) {
  Message tensor, graph;
  tensor.number(1, 3).number(2, 1).text(8, "w").text(9, "12345678");
  graph.message(5, tensor);
  expectRefused(model(graph).bytes,
                "tensor 'w': its shape needs 12 bytes, but 8 are stored");
  Message huge, withHuge;
  huge.number(1, uint64_t(1) << 40).number(1, uint64_t(1) << 40).number(2, 1);
  withHuge.message(5, huge.text(8, "w").text(9, "1"));
  expectRefused(model(withHuge).bytes, "cannot be right");
  Message empty, withEmpty;
  empty.number(1, 0).number(1, uint64_t(1) << 40).number(1, uint64_t(1) << 40);
  withEmpty.message(5, empty.number(2, 1).text(8, "w"));
  expectRefused(model(withEmpty).bytes, "cannot be right");
}

TEST_F(ImportTest, ValuesMustBeDefinedOnceAndBeforeTheirUse) {
  Message late;
  late.message(1, node("Relu", {"y"}, "z"))
      .message(1, node("Relu", {"x"}, "y"));
  late.message(11, valueInfo("x", 1));
  expectRefused(model(late).bytes,
                "node 'node_z' (Relu) reads 'y', which nothing before it");
  Message twice;
  twice.message(1, node("Relu", {"x"}, "y"))
      .message(1, node("Relu", {"x"}, "y"));
  twice.message(11, valueInfo("x", 1));
  expectRefused(model(twice).bytes, "'y' is defined twice");
  Message nothing;
  nothing.message(11, valueInfo("x", 1)).message(12, valueInfo("y", 1));
  expectRefused(model(nothing).bytes, "output 'y'");
}

TEST_F(ImportTest, FunctionsAreInlined) {
  // twice(a) = Relu(Relu(a)), in a domain of its own.
  Message function, graph, call;
  function.text(1, "twice").text(4, "a").text(5, "b").text(10, "local");
  function.message(7, node("Relu", {"a"}, "t"));
  function.message(7, node("Relu", {"t"}, "b"));
  call = node("twice", {"x"}, "y");
  call.text(7, "local");
  graph.message(1, call);
  graph.message(11, valueInfo("x", 1)).message(12, valueInfo("y", 1));
  Message whole = model(graph);
  whole.message(25, function);
  auto module = import(whole.bytes);
  ASSERT_TRUE(succeeded(module)) << said;
  std::vector<std::string> names;
  (**module)->walk([&](onnx::NodeOp op) {
    names.push_back(onnx::nameOf(op.getLoc()).str() + " " +
                    op.getOpType().str());
  });
  EXPECT_EQ(names, (std::vector<std::string>{"node_y/node_t Relu",
                                             "node_y/node_b Relu"}));
}

TEST_F(ImportTest, FunctionThatCallsItselfIsRefused) {
  Message function, graph, call, inner;
  inner = node("loop", {"a"}, "b");
  inner.text(7, "local");
  function.text(1, "loop").text(4, "a").text(5, "b").text(10, "local");
  function.message(7, inner);
  call = node("loop", {"x"}, "y");
  call.text(7, "local");
  graph.message(1, call).message(11, valueInfo("x", 1));
  Message whole = model(graph);
  whole.message(25, function);
  expectRefused(whole.bytes, "function 'loop' calls itself");
}

TEST_F(ImportTest, FunctionsThatGrowWithoutEndAreRefused) {
  // Each calls the next one eight times: 8^20 nodes.
  Message graph, call = node("f0", {"x"}, "y");
  call.text(7, "local");
  graph.message(1, call).message(11, valueInfo("x", 1));
  Message whole = model(graph);
  for (int i = 0; i < 20; ++i) {
    Message function;
    function.text(1, "f" + std::to_string(i)).text(10, "local");
    function.text(4, "a").text(5, "v7");
    for (int k = 0; k < 8; ++k) {
      Message inner = node(i == 19 ? "Relu" : "f" + std::to_string(i + 1),
                           {k ? "v" + std::to_string(k - 1) : "a"},
                           "v" + std::to_string(k));
      if (i < 19)
        inner.text(7, "local");
      function.message(7, inner);
    }
    whole.message(25, function);
  }
  expectRefused(whole.bytes, "too many nodes once its functions are inlined");
}

TEST_F(ImportTest, CallsWithoutNodesAreRefusedToo) {
  // Each calls the next one twice, and the last does nothing: 2^30 calls.
  auto callOf = [](int i) {
    Message call;
    call.text(4, "f" + std::to_string(i)).text(7, "local");
    return call;
  };
  Message graph;
  graph.message(1, callOf(0)).message(11, valueInfo("x", 1));
  Message whole = model(graph);
  for (int i = 0; i <= 30; ++i) {
    Message function;
    function.text(1, "f" + std::to_string(i)).text(10, "local");
    if (i < 30)
      function.message(7, callOf(i + 1)).message(7, callOf(i + 1));
    whole.message(25, function);
  }
  expectRefused(whole.bytes, "too many nodes once its functions are inlined");
}

TEST_F(ImportTest, NodesOfManyInputsCountForMore) {
  // A node of 10,000 inputs, called 8^4 times.
  Message graph, call = node("f0", {"x"}, "y");
  call.text(7, "local");
  graph.message(1, call).message(11, valueInfo("x", 1));
  Message whole = model(graph);
  for (int i = 0; i <= 4; ++i) {
    Message function;
    function.text(1, "f" + std::to_string(i)).text(10, "local");
    function.text(4, "a").text(5, "v7");
    for (int k = 0; k < 8; ++k) {
      Message inner = i < 4 ? node("f" + std::to_string(i + 1), {"a"},
                                   "v" + std::to_string(k))
                            : node("Sum", std::vector<std::string>(10000, "a"),
                                   "v" + std::to_string(k));
      if (i < 4)
        inner.text(7, "local");
      function.message(7, inner);
    }
    whole.message(25, function);
  }
  expectRefused(whole.bytes, "too many nodes once its functions are inlined");
}

TEST_F(ImportTest, FunctionsOfNewerVersionsHaveDefaultsAndOverloads) {
  // Two functions f of one domain: IR version 10 tells them apart.
  auto make = [](const std::string &overload, float slope) {
    Message attribute, reference, inner, function;
    std::string bits(4, '\0');
    std::memcpy(bits.data(), &slope, 4);
    attribute.text(1, "slope").varint(2 << 3 | 5).bytes += bits;
    attribute.number(20, 1);
    reference.text(1, "alpha").text(21, "slope").number(20, 1);
    inner = node("LeakyRelu", {"a"}, "b");
    inner.message(5, reference);
    return function.text(1, "f")
        .text(4, "a")
        .text(5, "b")
        .text(10, "local")
        .message(7, inner)
        .message(11, attribute)
        .text(13, overload);
  };
  Message graph, call = node("f", {"x"}, "y");
  call.text(7, "local").text(8, "second");
  graph.message(1, call).message(11, valueInfo("x", 1));
  Message whole = model(graph);
  whole.message(25, make("first", 0.25f)).message(25, make("second", 0.5f));
  auto module = import(whole.bytes);
  ASSERT_TRUE(succeeded(module)) << said;
  std::string text;
  llvm::raw_string_ostream(text) << **module;
  EXPECT_NE(text.find("alpha = 5.000000e-01 : f32"), std::string::npos) << text;

  whole.message(25, make("second", 1));
  expectRefused(whole.bytes, "function 'f' of domain 'local' is defined twice");
}

TEST_F(ImportTest, DeepNestingIsRefused) {
  auto nested = [](int levels) {
    Message graph;
    graph.message(1, node("Relu", {"x"}, "y"));
    for (int i = 0; i < levels; ++i) {
      Message branch, outer, body = node("If", {"c"}, "y");
      branch.text(1, "then_branch").message(6, graph).number(20, 5);
      outer.message(1, body.message(5, branch));
      graph = outer;
    }
    return model(
        graph.message(11, valueInfo("x", 1)).message(11, valueInfo("c", 9)));
  };
  EXPECT_TRUE(succeeded(import(nested(20).bytes))) << said;
  expectRefused(nested(40).bytes, "messages are nested more than 99 deep");
  expectRefused(nested(3000).bytes, "messages are nested more than 99 deep");
}

TEST_F(ImportTest, FileBeyondTheLimitOfProtobufIsToldWhatToDo) {
  folder.write("large.onnx", "");
  std::filesystem::resize_file(folder / "large.onnx", 2200000000);
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    said += diagnostic.str();
    return success();
  });
  EXPECT_TRUE(failed(importOnnx(context, folder / "large.onnx")));
  EXPECT_NE(said.find("can have 2 GiB at most; save the weights as external"),
            std::string::npos)
      << said;
}

TEST_F(ImportTest, UnknownFieldsOfNewerVersionsAreSkipped) {
  Message graph, extended;
  extended = node("Relu", {"x"}, "y");
  extended.text(9, "metadata").number(500, 1).text(501, "new");
  graph.message(1, extended).text(99, "new");
  graph.message(11, valueInfo("x", 1)).message(12, valueInfo("y", 1));
  Message whole = model(graph);
  whole.number(99, 7);
  EXPECT_TRUE(succeeded(import(whole.bytes))) << said;
}

TEST_F(ImportTest, RawDataStayInTheFileAndTypedFieldsAreRead) {
  Message raw, typed, graph;
  raw.number(1, 2).number(2, 1).text(8, "raw").text(9, "12345678");
  // float16 bits in int32_data, packed: 1.0 and 2.0.
  Message packed;
  packed.varint(0x3c00).varint(0x4000);
  typed.number(1, 2).number(2, 10).text(8, "typed").text(5, packed.bytes);
  graph.message(5, raw).message(5, typed);
  std::string bytes = model(graph).bytes;
  auto module = import(bytes);
  ASSERT_TRUE(succeeded(module)) << said;
  std::string text;
  llvm::raw_string_ostream(text) << **module;
  size_t offset = bytes.find("12345678");
  EXPECT_NE(
      text.find("offset = " + std::to_string(offset) + ", bytes = 8, f32"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf16>"),
            std::string::npos)
      << text;
}

} // namespace
