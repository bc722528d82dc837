//===- OnnxMutator.cpp - Changes of models that leave them models ---------===//
//
// Bytes changed at random seldom leave messages, and hardly ever a graph that
// still means something. Linked into a target, this changes the model: nodes,
// their attributes and edges, tensors, what the graph takes and gives, in the
// main graph, in those of `If` and in functions. One input in eight is left to
// changes of bytes.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"
#include "OnnxParts.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

using namespace foresight::fuzz;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t largest);

namespace {

class Mutation : OnnxParts, Chance {
public:
  Mutation(onnx::ModelProto &model, unsigned seed)
      : Chance(seed), model(model) {}

  void change() {
    collect(model);
    switch (below(12)) {
    case 0:
    case 1:
      return changeOperator();
    case 2:
    case 3:
      return changeAttribute();
    case 4:
    case 5:
      return changeEdge();
    case 6:
      return changeNodes();
    case 7:
    case 8:
      return changeTensor();
    case 9:
      return changeInterface();
    case 10:
      return changeFunction();
    default:
      return changeVersions();
    }
  }

  /// Puts a part of `other` into the model.
  void take(onnx::ModelProto &other) {
    collect(model);
    OnnxParts theirs;
    theirs.collect(other);
    if (onnx::NodeProto *node = pick(theirs.nodes); node && below(2) == 0)
      if (onnx::NodeProto *mine = pick(nodes))
        mine->CopyFrom(*node);
    collect(model); // what the node held is gone
    if (onnx::TensorProto *tensor = pick(theirs.tensors))
      if (onnx::TensorProto *mine = pick(tensors)) {
        const std::string name = mine->name();
        mine->CopyFrom(*tensor);
        if (below(4) != 0)
          mine->set_name(name);
      }
    if (below(4) == 0 && other.functions_size() > 0)
      model.add_functions()->CopyFrom(
          other.functions(static_cast<int>(below(other.functions_size()))));
    if (onnx::GraphProto *graph = pick(theirs.graphs); below(4) == 0)
      if (onnx::GraphProto *mine = pick(graphs); mine && mine != graphs[0])
        mine->CopyFrom(*graph);
  }

private:
  /// Of a value that there is, mostly.
  std::string name() {
    if (names.empty() || below(16) == 0)
      return below(2) ? "" : "nothing";
    return names[below(names.size())];
  }

  // Nodes

  void changeOperator() {
    onnx::NodeProto *node = pick(nodes);
    if (!node)
      return;
    if (onnx::NodeProto *other = pick(nodes); below(2)) {
      node->set_op_type(other->op_type());
      node->set_domain(other->domain());
    } else if (below(8)) {
      node->set_op_type(pick(kOperators));
    } else {
      node->set_domain(pick(kDomains));
    }
  }

  void changeEdge() {
    onnx::NodeProto *node = pick(nodes);
    if (!node)
      return;
    auto &edges = below(6) ? *node->mutable_input() : *node->mutable_output();
    switch (below(6)) {
    case 0:
      edges.Add(name());
      return;
    case 1:
      if (!edges.empty())
        edges.RemoveLast();
      return;
    case 2:
      if (!edges.empty())
        edges.SwapElements(indexIn(edges), indexIn(edges));
      return;
    default:
      if (!edges.empty())
        *edges.Mutable(indexIn(edges)) = name();
    }
  }

  void changeNodes() {
    Nodes *body = pick(bodies);
    if (!body || body->empty())
      return;
    const int at = indexIn(*body);
    switch (below(4)) {
    case 0:
      body->DeleteSubrange(at, 1);
      return;
    case 1:
      body->SwapElements(at, indexIn(*body));
      return;
    case 2:
      body->Add()->CopyFrom(onnx::NodeProto(body->Get(at)));
      return;
    default: // one more between a node and what it reads
      onnx::NodeProto *added = body->Add();
      onnx::NodeProto &reader = *body->Mutable(at);
      added->set_op_type(pick(kOperators));
      added->add_output("added" + std::to_string(below(1 << 20)));
      if (reader.input_size() == 0)
        return;
      std::string &read = *reader.mutable_input(indexIn(reader.input()));
      added->add_input(read);
      if (below(2))
        added->add_input(name());
      read = added->output(0);
      for (int i = body->size() - 1; i > at; --i)
        body->SwapElements(i, i - 1);
    }
  }

  void changeAttribute() {
    onnx::NodeProto *node = pick(nodes);
    if (!node)
      return;
    auto &attributes = *node->mutable_attribute();
    if (attributes.empty() || below(8) == 0) {
      onnx::AttributeProto *added = attributes.Add();
      added->set_name(pick(kAttributes));
      return setValue(*added);
    }
    onnx::AttributeProto &attribute = *pick(&attributes);
    switch (below(6)) {
    case 0:
      attributes.DeleteSubrange(indexIn(attributes), 1);
      return;
    case 1:
      attribute.set_name(pick(kAttributes));
      return;
    case 2:
      return setValue(attribute);
    default:
      return changeValue(attribute);
    }
  }
  void setValue(onnx::AttributeProto &attribute) {
    using Attribute = onnx::AttributeProto;
    switch (below(5)) {
    case 0:
      attribute.set_type(Attribute::INT);
      attribute.set_i(number());
      return;
    case 1:
      attribute.set_type(Attribute::FLOAT);
      attribute.set_f(pick(kReals));
      return;
    case 2:
      attribute.set_type(Attribute::INTS);
      attribute.clear_ints();
      for (size_t count = below(5); count > 0; --count)
        attribute.add_ints(number());
      return;
    case 3:
      attribute.set_type(Attribute::TENSOR);
      if (onnx::TensorProto *tensor = pick(tensors))
        attribute.mutable_t()->CopyFrom(onnx::TensorProto(*tensor));
      return;
    default:
      attribute.set_type(static_cast<Attribute::AttributeType>(below(15)));
    }
  }
  void changeValue(onnx::AttributeProto &attribute) {
    if (attribute.has_t())
      return change(*attribute.mutable_t());
    if (attribute.has_i())
      return attribute.set_i(below(2) ? number() : attribute.i() ^ 1);
    if (attribute.has_f())
      return attribute.set_f(pick(kReals));
    if (attribute.has_s())
      return attribute.set_s(name());
    change(*attribute.mutable_ints());
  }

  // Tensors

  void changeTensor() {
    onnx::TensorProto *tensor = pick(tensors);
    if (tensor)
      change(*tensor);
  }
  void change(google::protobuf::RepeatedField<int64_t> &numbers) {
    if (numbers.empty() || below(6) == 0)
      numbers.Add(number());
    else if (below(6) == 0)
      numbers.RemoveLast();
    else if (below(4) == 0)
      numbers.SwapElements(indexIn(numbers), indexIn(numbers));
    else
      numbers.Set(indexIn(numbers), number());
  }
  void change(onnx::TensorProto &tensor) {
    switch (below(6)) {
    case 0:
      return change(*tensor.mutable_dims());
    case 1:
      return tensor.set_data_type(static_cast<int>(below(29)));
    case 2:
      return tensor.set_name(name());
    case 3:
      if (onnx::StringStringEntryProto *entry =
              pick(tensor.mutable_external_data())) {
        if (below(8) == 0)
          entry->set_key(pick(kKeys));
        else
          entry->set_value(std::to_string(number()));
        return;
      }
      [[fallthrough]];
    case 4:
      if (tensor.int64_data_size() > 0)
        return change(*tensor.mutable_int64_data());
      if (tensor.float_data_size() > 0)
        return tensor.set_float_data(indexIn(tensor.float_data()),
                                     pick(kReals));
      [[fallthrough]];
    default:
      std::string &data = *tensor.mutable_raw_data();
      if (below(4) == 0)
        data.resize(below(2) ? below(65) : data.size() ^ (1 << below(4)));
      for (size_t count = data.empty() ? 0 : below(4); count > 0; --count)
        data[below(data.size())] =
            static_cast<char>(below(2) ? number() : data[below(data.size())]);
    }
  }

  // The rest

  void changeInterface() {
    onnx::GraphProto *graph = pick(graphs);
    auto &values =
        below(2) ? *graph->mutable_input() : *graph->mutable_output();
    if (values.empty() || below(8) == 0)
      return values.Add()->set_name(name());
    onnx::ValueInfoProto &value = *pick(&values);
    onnx::TypeProto::Tensor &type =
        *value.mutable_type()->mutable_tensor_type();
    auto &dims = *type.mutable_shape()->mutable_dim();
    switch (below(7)) {
    case 0:
      values.DeleteSubrange(indexIn(values), 1);
      return;
    case 1:
      values.SwapElements(indexIn(values), indexIn(values));
      return;
    case 2:
      return value.set_name(name());
    case 3:
      return type.set_elem_type(static_cast<int>(below(29)));
    case 4:
      dims.Add();
      return;
    case 5:
      if (!dims.empty())
        dims.RemoveLast();
      return;
    default:
      if (dims.empty())
        return;
      if (below(3) == 0)
        pick(&dims)->set_dim_param(below(2) ? "batch" : "any");
      else
        pick(&dims)->set_dim_value(number());
    }
  }

  /// Calls a function where a node was, or changes what one takes and gives.
  void changeFunction() {
    if (onnx::FunctionProto *function = pick(model.mutable_functions());
        function && below(2)) {
      auto &names =
          below(2) ? *function->mutable_input() : *function->mutable_output();
      if (names.empty() || below(3) == 0)
        names.Add(name());
      else if (below(2))
        names.RemoveLast();
      else
        *names.Mutable(indexIn(names)) = name();
      return;
    }
    onnx::NodeProto *node = pick(nodes);
    if (!node)
      return;
    onnx::FunctionProto *function = model.add_functions();
    function->set_name("f" + std::to_string(below(3)));
    function->set_domain("local");
    *function->mutable_input() = node->input();
    *function->mutable_output() = node->output();
    *function->mutable_opset_import() = model.opset_import();
    function->add_node()->CopyFrom(onnx::NodeProto(*node));
    node->set_op_type(function->name());
    node->set_domain(function->domain());
    if (below(2))
      model.add_opset_import()->set_domain("local");
  }

  void changeVersions() {
    if (below(3) == 0)
      return model.set_ir_version(number());
    if (onnx::OperatorSetIdProto *set = pick(model.mutable_opset_import())) {
      if (below(4) == 0)
        set->set_domain(pick(kDomains));
      else
        set->set_version(below(2) ? static_cast<int64_t>(9 + below(17))
                                  : number());
    }
  }

  onnx::ModelProto &model;
};

/// The new size, or 0 if the model does not fit.
size_t write(const onnx::ModelProto &model, uint8_t *data, size_t largest) {
  const size_t size = model.ByteSizeLong();
  if (size == 0 || size > largest)
    return 0;
  return model.SerializePartialToArray(data, static_cast<int>(largest)) ? size
                                                                        : 0;
}

bool parse(onnx::ModelProto &model, const uint8_t *data, size_t size) {
  return model.ParsePartialFromArray(data, static_cast<int>(size));
}

} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t largest, unsigned seed) {
  onnx::ModelProto model;
  if (seed % 8 == 0 || !parse(model, data, size))
    return LLVMFuzzerMutate(data, size, largest);
  for (unsigned changes = seed / 8 % 3 + 1; changes > 0; --changes)
    Mutation(model, seed / 24 + changes).change();
  const size_t changed = write(model, data, largest);
  return changed ? changed : LLVMFuzzerMutate(data, size, largest);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t *data, size_t size,
                                            const uint8_t *other,
                                            size_t otherSize, uint8_t *out,
                                            size_t largest, unsigned seed) {
  onnx::ModelProto model, from;
  if (!parse(model, data, size) || !parse(from, other, otherSize))
    return 0;
  Mutation(model, seed).take(from);
  return write(model, out, largest);
}
