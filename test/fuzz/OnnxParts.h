//===- OnnxParts.h - What there is to change in a model ---------*- C++ -*-===//
#ifndef FORESIGHT_TEST_FUZZ_ONNXPARTS_H
#define FORESIGHT_TEST_FUZZ_ONNXPARTS_H

#include "onnx.pb.h"

#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace foresight::fuzz {

/// The words of a text.
struct Words : std::vector<std::string> {
  explicit Words(const char *text) {
    std::istringstream in(text);
    for (std::string word; in >> word;)
      push_back(word);
  }
};

inline constexpr int64_t kNumbers[] = {
    -1,        0,         1,        2,       3,
    4,         7,         16,       31,      64,
    255,       4096,      65536,    1 << 20, (1 << 28) + 1,
    INT32_MAX, INT64_MAX, INT64_MIN};
inline constexpr float kReals[] = {0,     1,     -1,      0.5, 1e-5f,
                                   1e-6f, 1e30f, -1e-30f, 8};
inline const Words kOperators(
    "Abs Add And Cast CastLike Clip Concat Constant ConstantOfShape "
    "CumSum Div Equal Erf Expand Flatten Gather GatherND GatherElements "
    "Gelu Gemm GreaterOrEqual If Identity LayerNormalization Less MatMul "
    "Max Min Mod Mul Neg Not Pow Range ReduceMean ReduceMax Relu Reshape "
    "ScatterND Shape Slice Softmax Split Sqrt Squeeze Sub Tile Transpose "
    "Trilu Unsqueeze Where Xor Einsum Loop NonZero Attention "
    "DequantizeLinear Pad MatMulInteger");
inline const Words kAttributes(
    "axis axes perm to value alpha beta end start epsilon upper transA "
    "transB fmod keepdims split steps reduction starts ends allowzero "
    "shape repeats is_causal scale reverse num_heads then_branch");
inline const Words kKeys("location offset length checksum");
inline constexpr const char *kDomains[] = {"", "ai.onnx", "com.microsoft",
                                           "local"};

/// Choices, the same for the same seed.
class Chance {
public:
  explicit Chance(unsigned seed) : random(seed) {}

  size_t below(size_t limit) { return limit ? random() % limit : 0; }
  template <typename T> T *pick(const std::vector<T *> &of) {
    return of.empty() ? nullptr : of[below(of.size())];
  }
  template <typename T, size_t size> const T &pick(const T (&of)[size]) {
    return of[below(size)];
  }
  const std::string &pick(const Words &of) { return of[below(of.size())]; }
  template <typename T> T *pick(google::protobuf::RepeatedPtrField<T> *of) {
    return of->empty() ? nullptr : of->Mutable(indexIn(*of));
  }
  template <typename Elements> int indexIn(const Elements &elements) {
    return static_cast<int>(below(elements.size()));
  }
  int64_t number() {
    return below(2) ? static_cast<int64_t>(below(6)) - 1 : pick(kNumbers);
  }

private:
  std::minstd_rand random;
};

/// The parts of a model, those of inner graphs and of functions among them.
struct OnnxParts {
  using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

  std::vector<onnx::GraphProto *> graphs;
  std::vector<Nodes *> bodies;
  std::vector<onnx::NodeProto *> nodes;
  std::vector<onnx::TensorProto *> tensors;
  std::vector<std::string> names;

  void collect(onnx::ModelProto &model) {
    graphs.clear();
    bodies.clear();
    nodes.clear();
    tensors.clear();
    names.clear();
    collect(*model.mutable_graph());
    for (onnx::FunctionProto &function : *model.mutable_functions()) {
      for (const std::string &name : function.input())
        names.push_back(name);
      collect(*function.mutable_node());
    }
  }

private:
  void collect(onnx::GraphProto &graph) {
    graphs.push_back(&graph);
    for (onnx::TensorProto &tensor : *graph.mutable_initializer()) {
      tensors.push_back(&tensor);
      names.push_back(tensor.name());
    }
    for (const onnx::ValueInfoProto &input : graph.input())
      names.push_back(input.name());
    collect(*graph.mutable_node());
  }
  void collect(Nodes &body) {
    bodies.push_back(&body);
    for (onnx::NodeProto &node : body) {
      nodes.push_back(&node);
      for (const std::string &name : node.output())
        names.push_back(name);
      for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
        if (attribute.has_t())
          tensors.push_back(attribute.mutable_t());
        if (attribute.has_g())
          collect(*attribute.mutable_g());
      }
    }
  }
};

} // namespace foresight::fuzz

#endif // FORESIGHT_TEST_FUZZ_ONNXPARTS_H
