//===- Wire.h - A model file as messages over its own bytes -----*- C++ -*-===//
//
// A reader of the part of onnx.proto that models use. Nothing is copied: names
// and data are ranges of the mapped file, so a weight's place in the file is
// known and a model may be larger than protobuf's own 2 GiB. Unknown fields
// are skipped, so files of newer versions can be read.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_IMPORT_ONNX_WIRE_H
#define FORESIGHT_IMPORT_ONNX_WIRE_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace foresight::onnx::wire {

using llvm::StringRef;

/// TensorProto.DataType of ONNX 1.12, plus the names of later ones for
/// messages.
enum DataType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBfloat16 = 16,
};

/// `FLOAT16`, or `element type 23` for one that has no name here.
std::string nameOf(int32_t dataType);

struct Tensor {
  StringRef name;
  llvm::SmallVector<int64_t, 4> dims;
  int32_t dataType = kUndefined;
  bool external = false;
  bool hasRaw = false;
  StringRef raw;
  /// Values of a typed field: the bits of integers and of floats.
  std::vector<uint64_t> values;
  /// Which typed field `values` came from (4, 5, 7, 10 or 11); 0 if none.
  uint32_t valuesField = 0;
  bool hasStrings = false;
  std::vector<std::pair<StringRef, StringRef>> externalData;
};

struct Graph;

struct Attribute {
  StringRef name;
  StringRef reference;
  int32_t type = 0;
  float f = 0;
  int64_t i = 0;
  StringRef s;
  std::shared_ptr<Tensor> t;
  std::shared_ptr<Graph> g;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<StringRef> strings;
};

struct Node {
  StringRef name, opType, domain;
  std::vector<StringRef> inputs, outputs;
  std::vector<Attribute> attributes;
};

struct ValueInfo {
  StringRef name;
  bool isTensor = false;
  bool hasShape = false;
  int32_t elementType = kUndefined;
  /// -1 for a dimension that has a label or nothing.
  llvm::SmallVector<int64_t, 4> dims;
};

struct Graph {
  StringRef name;
  std::vector<Node> nodes;
  std::vector<Tensor> initializers;
  std::vector<ValueInfo> inputs, outputs;
  bool hasSparse = false;
};

struct Function {
  StringRef name, domain;
  std::vector<StringRef> inputs, outputs;
  std::vector<Attribute> defaults;
  std::vector<Node> nodes;
};

struct Model {
  int64_t irVersion = 0;
  StringRef producer, producerVersion;
  std::vector<std::pair<StringRef, int64_t>> opsets;
  Graph graph;
  std::vector<Function> functions;
};

/// Reads `bytes`, which must outlive the result. The error says at which byte
/// the file stops being a model.
llvm::Expected<Model> parseModel(StringRef bytes);

} // namespace foresight::onnx::wire

#endif // FORESIGHT_IMPORT_ONNX_WIRE_H
