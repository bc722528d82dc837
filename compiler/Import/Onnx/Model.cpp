//===- Model.cpp - A model file as messages of onnx.proto -----------------===//

#include "Model.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Endian.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <optional>

using namespace llvm;
using namespace foresight::onnx;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

std::string foresight::onnx::nameOf(int32_t dataType) {
  static constexpr const char *kNames[] = {
      "UNDEFINED",      "FLOAT",        "UINT8",          "INT8",
      "UINT16",         "INT16",        "INT32",          "INT64",
      "STRING",         "BOOL",         "FLOAT16",        "DOUBLE",
      "UINT32",         "UINT64",       "COMPLEX64",      "COMPLEX128",
      "BFLOAT16",       "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
      "FLOAT8E5M2FNUZ", "UINT4",        "INT4",           "FLOAT4E2M1",
      "FLOAT8E8M0",     "UINT2",        "INT2",           "FLOAT6E2M3",
      "FLOAT6E3M2"};
  if (dataType >= 0 && dataType < static_cast<int32_t>(std::size(kNames)))
    return kNames[dataType];
  return "element type " + std::to_string(dataType);
}

namespace {

/// Messages that tensors lie in.
enum class Kind { Model, Graph, Function, Node, Attribute, Sparse, Tensor };

/// What a field holds, if it may have tensors in it.
std::optional<Kind> kindOf(Kind message, int field) {
  switch (message) {
  case Kind::Model:
    if (field == proto::ModelProto::kGraphFieldNumber)
      return Kind::Graph;
    if (field == proto::ModelProto::kFunctionsFieldNumber)
      return Kind::Function;
    break;
  case Kind::Graph:
    if (field == proto::GraphProto::kNodeFieldNumber)
      return Kind::Node;
    if (field == proto::GraphProto::kInitializerFieldNumber)
      return Kind::Tensor;
    if (field == proto::GraphProto::kSparseInitializerFieldNumber)
      return Kind::Sparse;
    break;
  case Kind::Function:
    if (field == proto::FunctionProto::kNodeFieldNumber)
      return Kind::Node;
    if (field == proto::NewerFunction::kAttributeProtoFieldNumber)
      return Kind::Attribute;
    break;
  case Kind::Node:
    if (field == proto::NodeProto::kAttributeFieldNumber)
      return Kind::Attribute;
    break;
  case Kind::Attribute:
    if (field == proto::AttributeProto::kTFieldNumber ||
        field == proto::AttributeProto::kTensorsFieldNumber)
      return Kind::Tensor;
    if (field == proto::AttributeProto::kGFieldNumber ||
        field == proto::AttributeProto::kGraphsFieldNumber)
      return Kind::Graph;
    if (field == proto::AttributeProto::kSparseTensorFieldNumber ||
        field == proto::AttributeProto::kSparseTensorsFieldNumber)
      return Kind::Sparse;
    break;
  case Kind::Sparse:
    if (field == proto::SparseTensorProto::kValuesFieldNumber ||
        field == proto::SparseTensorProto::kIndicesFieldNumber)
      return Kind::Tensor;
    break;
  case Kind::Tensor:
    break;
  }
  return std::nullopt;
}

/// protobuf refuses messages that are nested deeper than 100.
constexpr int kDeepest = 99;

void appendVarint(std::string &out, uint32_t value) {
  uint8_t bytes[5];
  uint8_t *end = CodedOutputStream::WriteVarint32ToArray(value, bytes);
  out.append(reinterpret_cast<char *>(bytes), end - bytes);
}

/// Copies a model file, but puts in the place of each tensor's raw data where
/// in the file they are.
class Condenser {
public:
  explicit Condenser(StringRef bytes)
      : bytes(bytes), in(reinterpret_cast<const uint8_t *>(bytes.data()),
                         static_cast<int>(bytes.size())) {
    in.PushLimit(static_cast<int>(bytes.size()));
  }

  std::string error;

  bool message(Kind kind, int depth, std::string &out) {
    if (depth > kDeepest)
      return fail("messages are nested more than " + Twine(kDeepest) +
                  " deep: no exporter nests `If` like that");
    for (;;) {
      int begin = in.CurrentPosition();
      uint32_t tag = in.ReadTag();
      if (tag == 0)
        return in.ConsumedEntireMessage() || fail("no field begins here");
      if (!field(kind, depth, begin, tag, out))
        return false;
    }
  }

private:
  StringRef bytes;
  CodedInputStream in;

  bool fail(const Twine &what) {
    if (error.empty())
      error = ("byte " + Twine(in.CurrentPosition()) + ": " + what).str();
    return false;
  }

  void copyFrom(int begin, std::string &out) {
    StringRef copied = bytes.slice(begin, in.CurrentPosition());
    out.append(copied.data(), copied.size());
  }

  bool field(Kind kind, int depth, int begin, uint32_t tag, std::string &out) {
    if (WireFormatLite::GetTagWireType(tag) !=
        WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&in, tag))
        return fail("a field that is cut short or of an unknown kind");
      copyFrom(begin, out);
      return true;
    }
    uint32_t size = 0;
    if (!in.ReadVarint32(&size))
      return fail("a size that is cut short");
    if (size > static_cast<uint32_t>(in.BytesUntilLimit()))
      return fail("a field of " + Twine(size) + " bytes, but only " +
                  Twine(in.BytesUntilLimit()) +
                  " are left: the file is truncated or not a model");
    int number = WireFormatLite::GetTagFieldNumber(tag);
    if (kind == Kind::Tensor &&
        number == proto::TensorProto::kRawDataFieldNumber) {
      char place[16];
      support::endian::write64le(place, in.CurrentPosition());
      support::endian::write64le(place + 8, size);
      in.Skip(static_cast<int>(size));
      appendVarint(out, tag);
      appendVarint(out, sizeof place);
      out.append(place, sizeof place);
      return true;
    }
    std::optional<Kind> inner = kindOf(kind, number);
    if (!inner) {
      in.Skip(static_cast<int>(size));
      copyFrom(begin, out);
      return true;
    }
    std::string condensed;
    auto limit = in.PushLimit(static_cast<int>(size));
    if (!message(*inner, depth + 1, condensed))
      return false;
    in.PopLimit(limit);
    appendVarint(out, tag);
    appendVarint(out, static_cast<uint32_t>(condensed.size()));
    out += condensed;
    return true;
  }
};

} // namespace

Expected<proto::ModelProto> foresight::onnx::parseModel(StringRef bytes) {
  if (bytes.size() > INT32_MAX)
    return createStringError(
        inconvertibleErrorCode(),
        "has " + Twine(bytes.size()) +
            " bytes, but a model file can have 2 GiB at most; save the weights "
            "as external data: onnx.save_model(model, 'model.onnx', "
            "save_as_external_data=True)");
  auto refuse = [](const Twine &why) {
    return createStringError(inconvertibleErrorCode(),
                             "is not an ONNX model, or was cut short: " + why);
  };
  Condenser condenser(bytes);
  std::string condensed;
  if (!condenser.message(Kind::Model, 1, condensed))
    return refuse(condenser.error);
  proto::ModelProto model;
  if (!model.ParseFromString(condensed))
    return refuse("its messages are damaged");
  if (!model.has_graph())
    return refuse("it has no graph");
  if (model.ir_version() <= 0)
    return refuse("it has no IR version");
  return model;
}

StringRef foresight::onnx::rawData(const proto::TensorProto &tensor,
                                   StringRef file) {
  // Written by the condenser alone, so it is a place in the file.
  const std::string &place = tensor.raw_data();
  if (place.size() != 16)
    return {};
  return file.substr(support::endian::read64le(place.data()),
                     support::endian::read64le(place.data() + 8));
}
