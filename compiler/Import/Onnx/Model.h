//===- Model.h - A model file as messages of onnx.proto ---------*- C++ -*-===//
//
// The messages are read by code that protoc makes from onnx.proto. Weights are
// taken out before: a model may be as large as protobuf allows, and memory
// holds none of them.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_IMPORT_ONNX_MODEL_H
#define FORESIGHT_IMPORT_ONNX_MODEL_H

#include "newer.pb.h"
#include "onnx.pb.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>

namespace foresight::onnx {

namespace proto = ::onnx;

/// Reads `bytes`, a model file. The error says at which byte it stops being a
/// model. `raw_data` of tensors in the result are read by `rawData`.
llvm::Expected<proto::ModelProto> parseModel(llvm::StringRef bytes);

/// The raw data of `tensor`, which is part of a model that was parsed from
/// `file`: a range of the file.
llvm::StringRef rawData(const proto::TensorProto &tensor, llvm::StringRef file);

/// What newer versions of onnx.proto know of `message`.
template <typename Newer, typename Message>
Newer newerFields(const Message &message) {
  Newer result;
  // What is damaged there is no loss: a reader may ignore unknown fields.
  (void)result.ParseFromString(message.unknown_fields());
  return result;
}

/// `FLOAT16`, or `element type 99` for one that has no name here.
std::string nameOf(int32_t dataType);

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_MODEL_H
