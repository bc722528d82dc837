//===- ImportNodes.cpp - Nodes, constants and functions of a graph --------===//

#include "Importer.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;

/// Functions that call others; torch nests them once or twice.
static constexpr unsigned kDeepestCall = 32;
/// What nodes and calls with their names may take, in bytes: functions that
/// call others many times each grow without end. OPT-175B takes a tenth.
static constexpr size_t kMostNodeBytes = size_t(1) << 28;

/// About how much a node becomes; tensors and graphs in it count by themselves.
static size_t costOf(const proto::NodeProto &node) {
  size_t bytes = 2048 + 128 * (static_cast<size_t>(node.input_size()) +
                               static_cast<size_t>(node.output_size()));
  for (const proto::AttributeProto &a : node.attribute())
    bytes += 128 + a.name().size() + a.s().size() +
             8 * (static_cast<size_t>(a.ints_size()) +
                  static_cast<size_t>(a.floats_size())) +
             128 * static_cast<size_t>(a.strings_size());
  return bytes;
}

LogicalResult Importer::operands(const proto::NodeProto &node, Scope &scope,
                                 StringRef nodeName,
                                 SmallVectorImpl<Value> &values) {
  for (StringRef name : node.input()) {
    if (name.empty()) {
      values.push_back(NoneOp::create(builder, fileLoc));
      continue;
    }
    Value value = scope.find(name);
    if (!value)
      return fail() << "node '" << nodeName << "' (" << node.op_type()
                    << ") reads '" << name
                    << "', which nothing before it defines";
    values.push_back(value);
  }
  return success();
}

LogicalResult Importer::node(const proto::NodeProto &node, Scope &scope,
                             const Call &call) {
  std::string name = call.prefix + node.name();
  if (node.name().empty() && node.output_size())
    name = call.prefix + node.output(0);
  nodeBytes += costOf(node) + name.size();
  if (nodeBytes > kMostNodeBytes)
    return fail() << "the graph has too many nodes once its functions are "
                     "inlined; it stopped at node '"
                  << StringRef(name).take_back(200) << "'";
  StringRef domain = node.domain();
  if (domain == "ai.onnx")
    domain = StringRef();
  auto function = functions.find(
      functionKey(node.domain(), node.op_type(),
                  newerFields<proto::NewerNode>(node).overload()));
  if (function != functions.end())
    return inlineCall(node, scope, call, *function->second);
  if (domain.empty() && node.op_type() == "Constant")
    return constantNode(node, scope, call);

  SmallVector<Value> values;
  if (failed(operands(node, scope, name, values)))
    return failure();

  SmallVector<NamedAttribute> params;
  SmallVector<Attribute> branches;
  SmallVector<const proto::GraphProto *> graphs;
  for (const proto::AttributeProto &written : node.attribute()) {
    const proto::AttributeProto *a = resolve(written, call);
    if (!a)
      continue; // an optional attribute that the caller did not give
    if (a->has_g()) {
      branches.push_back(builder.getStringAttr(written.name()));
      graphs.push_back(&a->g());
      continue;
    }
    FailureOr<Attribute> value = attribute(*a, name);
    if (failed(value))
      return failure();
    params.push_back({builder.getStringAttr(written.name()), *value});
  }

  OperationState state(named(name), NodeOp::getOperationName());
  SmallVector<Type> types(node.output_size(), ValueType::get(&context));
  NodeOp::build(builder, state, types, builder.getStringAttr(node.op_type()),
                domain.empty() ? StringAttr() : builder.getStringAttr(domain),
                params.empty() ? DictionaryAttr()
                               : builder.getDictionaryAttr(params),
                branches.empty() ? ArrayAttr() : builder.getArrayAttr(branches),
                values, graphs.size());
  auto op = cast<NodeOp>(builder.create(state));
  for (auto [region, graph] : llvm::zip(op.getBodies(), graphs)) {
    if (graph->input_size())
      return fail() << "node '" << name << "' (" << node.op_type()
                    << ") has a subgraph with inputs; loops are not supported";
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&region.emplaceBlock());
    Scope inner;
    inner.outer = &scope;
    if (failed(body(*graph, inner)))
      return failure();
  }
  for (auto [output, result] : llvm::zip(node.output(), op.getOutputs()))
    if (failed(define(scope, output, result, "value")))
      return failure();
  return success();
}

/// A Constant node is an initializer that stands among the nodes.
LogicalResult Importer::constantNode(const proto::NodeProto &node, Scope &scope,
                                     const Call &call) {
  std::string name = call.prefix + node.name();
  if (node.output_size() != 1 || node.attribute_size() != 1)
    return fail() << "node '" << name
                  << "' (Constant) must have one attribute and one output";
  const proto::AttributeProto *a = resolve(node.attribute(0), call);
  StringRef kind = node.attribute(0).name();
  StringRef result = node.output(0);
  DenseElementsAttr dense;
  if (a && kind == "value" && a->has_t()) {
    FailureOr<std::pair<RankedTensorType, Attribute>> source =
        tensors.source(a->t(), name.empty() ? result : name);
    if (failed(source))
      return failure();
    auto op = ConstantOp::create(builder, named(name), source->first, result,
                                 source->second);
    return define(scope, result, op.getResult(), "value");
  }
  auto type = [&](ArrayRef<int64_t> shape, Type element) {
    return RankedTensorType::get(shape, element);
  };
  if (a && kind == "value_int")
    dense = DenseElementsAttr::get(type({}, builder.getI64Type()), a->i());
  else if (a && kind == "value_float")
    dense = DenseElementsAttr::get(type({}, builder.getF32Type()), a->f());
  else if (a && kind == "value_ints")
    dense = DenseElementsAttr::get(
        type({static_cast<int64_t>(a->ints_size())}, builder.getI64Type()),
        ArrayRef<int64_t>(a->ints().data(), a->ints_size()));
  else if (a && kind == "value_floats")
    dense = DenseElementsAttr::get(
        type({static_cast<int64_t>(a->floats_size())}, builder.getF32Type()),
        ArrayRef<float>(a->floats().data(), a->floats_size()));
  else
    return fail() << "node '" << name << "' (Constant) has '" << kind
                  << "', which is not supported";
  auto op = ConstantOp::create(builder, named(name),
                               cast<RankedTensorType>(dense.getType()), result,
                               dense);
  return define(scope, result, op.getResult(), "value");
}

LogicalResult Importer::inlineCall(const proto::NodeProto &node, Scope &scope,
                                   const Call &call,
                                   const proto::FunctionProto &function) {
  std::string name = call.prefix + node.name();
  if (call.depth > kDeepestCall)
    return fail() << "function '" << function.name()
                  << "' calls itself, or functions are nested more than "
                  << kDeepestCall << " deep";
  SmallVector<Value> values;
  if (failed(operands(node, scope, name, values)))
    return failure();
  if (static_cast<int>(values.size()) > function.input_size() ||
      node.output_size() > function.output_size())
    return fail() << "node '" << name << "' (" << node.op_type() << ") has "
                  << values.size() << " inputs and " << node.output_size()
                  << " outputs, but its function has " << function.input_size()
                  << " and " << function.output_size();
  Call inner;
  inner.prefix = name + "/";
  inner.depth = call.depth + 1;
  auto newer = newerFields<proto::NewerFunction>(function);
  for (const proto::AttributeProto &a : newer.attribute_proto())
    inner.attributes[a.name()] = &a;
  for (const proto::AttributeProto &a : node.attribute())
    if (const proto::AttributeProto *given = resolve(a, call))
      inner.attributes[a.name()] = given;
  Scope body;
  for (auto [i, formal] : llvm::enumerate(function.input()))
    body.values[formal] =
        i < values.size() ? values[i] : Value(NoneOp::create(builder, fileLoc));
  for (const proto::NodeProto &n : function.node())
    if (failed(this->node(n, body, inner)))
      return failure();
  for (auto [formal, actual] : llvm::zip(function.output(), node.output())) {
    Value value = body.find(formal);
    if (!value)
      return fail() << "function '" << function.name() << "' does not define '"
                    << formal << "'";
    if (failed(define(scope, actual, value, "value")))
      return failure();
  }
  return success();
}

FailureOr<Attribute> Importer::attribute(const proto::AttributeProto &a,
                                         StringRef nodeName) {
  using proto::AttributeProto;
  auto type = a.type();
  if (type == AttributeProto::UNDEFINED) // not written before IR version 3
    type = a.has_t()         ? AttributeProto::TENSOR
           : a.floats_size() ? AttributeProto::FLOATS
           : a.ints_size()   ? AttributeProto::INTS
           : a.has_s()       ? AttributeProto::STRING
           : a.has_f()       ? AttributeProto::FLOAT
                             : AttributeProto::INT;
  switch (type) {
  case AttributeProto::FLOAT:
    return Attribute(builder.getF32FloatAttr(a.f()));
  case AttributeProto::INT:
    return Attribute(builder.getI64IntegerAttr(a.i()));
  case AttributeProto::STRING:
    return Attribute(builder.getStringAttr(a.s()));
  case AttributeProto::FLOATS:
    return Attribute(builder.getDenseF32ArrayAttr(
        {a.floats().data(), static_cast<size_t>(a.floats_size())}));
  case AttributeProto::INTS:
    return Attribute(builder.getDenseI64ArrayAttr(
        {a.ints().data(), static_cast<size_t>(a.ints_size())}));
  case AttributeProto::STRINGS: {
    SmallVector<Attribute> strings;
    for (StringRef s : a.strings())
      strings.push_back(builder.getStringAttr(s));
    return Attribute(builder.getArrayAttr(strings));
  }
  case AttributeProto::TENSOR: {
    if (!a.has_t())
      break;
    auto source = tensors.source(a.t(), nodeName);
    if (failed(source))
      return failure();
    return source->second;
  }
  default:
    break;
  }
  fail() << "node '" << nodeName << "' has an attribute '" << a.name()
         << "' of a kind that is not supported";
  return failure();
}
