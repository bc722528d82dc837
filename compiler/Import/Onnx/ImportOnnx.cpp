//===- ImportOnnx.cpp - ONNX files to onnx-level IR -----------------------===//

#include "foresight/Import/Onnx/ImportOnnx.h"

#include "Model.h"
#include "TensorSource.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/Onnx/Onnx.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;

namespace {

constexpr int64_t kOldestOpset = 11;

/// Functions that call others; torch nests them once or twice.
constexpr unsigned kDeepestCall = 32;
/// What nodes with their names may take, in bytes: functions that call others
/// many times each grow without end. OPT-175B takes a tenth.
constexpr size_t kMostNodeBytes = size_t(1) << 28;

/// What functions are told apart by.
std::string functionKey(StringRef domain, StringRef name, StringRef overload) {
  return (domain + ":" + name + ":" + overload).str();
}

/// Names to values; a subgraph sees the names around it.
struct Scope {
  llvm::StringMap<Value> values;
  const Scope *outer = nullptr;

  Value find(StringRef name) const {
    for (const Scope *scope = this; scope; scope = scope->outer)
      if (Value value = scope->values.lookup(name))
        return value;
    return {};
  }
};

/// What an inlined function's body may refer to.
struct Call {
  llvm::StringMap<const proto::AttributeProto *> attributes;
  std::string prefix;
  unsigned depth = 0;
};

class Importer {
public:
  Importer(MLIRContext &context, StringRef path, StringRef file,
           StringRef folder, bool anyLinks)
      : builder(&context), context(context), path(path),
        fileLoc(FileLineColLoc::get(&context, path, 0, 0)),
        tensors(context, path, file, folder, anyLinks) {}

  FailureOr<OwningOpRef<ModuleOp>> run(const proto::ModelProto &model);

private:
  LogicalResult graph(const proto::GraphProto &graph, GraphOp op);
  LogicalResult inputs(const proto::GraphProto &graph, Block &block,
                       Scope &scope);
  LogicalResult body(const proto::GraphProto &graph, Scope &scope);
  LogicalResult node(const proto::NodeProto &node, Scope &scope,
                     const Call &call);
  LogicalResult constantNode(const proto::NodeProto &node, Scope &scope,
                             const Call &call);
  LogicalResult inlineCall(const proto::NodeProto &node, Scope &scope,
                           const Call &call,
                           const proto::FunctionProto &function);
  LogicalResult constant(const proto::TensorProto &tensor, StringRef name,
                         Scope &scope);
  LogicalResult define(Scope &scope, StringRef name, Value value,
                       StringRef what);
  LogicalResult operands(const proto::NodeProto &node, Scope &scope,
                         StringRef nodeName, SmallVectorImpl<Value> &values);
  FailureOr<Attribute> attribute(const proto::AttributeProto &a,
                                 StringRef nodeName);
  void output(const proto::GraphProto &graph, Scope &scope);

  /// What `a` stands for: itself, or what the caller gave for its reference.
  const proto::AttributeProto *resolve(const proto::AttributeProto &a,
                                       const Call &call) {
    if (a.ref_attr_name().empty())
      return &a;
    return call.attributes.lookup(a.ref_attr_name());
  }

  InFlightDiagnostic fail() { return emitError(fileLoc); }
  Location named(const Twine &name) {
    return NameLoc::get(builder.getStringAttr(name), fileLoc);
  }

  OpBuilder builder;
  MLIRContext &context;
  std::string path;
  Location fileLoc;
  TensorSource tensors;
  const proto::ModelProto *model = nullptr;
  llvm::StringMap<const proto::FunctionProto *> functions;
  size_t nodeBytes = 0;
  bool sawError = false;
};

} // namespace

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

FailureOr<OwningOpRef<ModuleOp>>
Importer::run(const proto::ModelProto &source) {
  model = &source;
  int64_t opset = 0;
  for (const proto::OperatorSetIdProto &set : source.opset_import())
    if (set.domain().empty() || set.domain() == "ai.onnx")
      opset = set.version();
  if (opset < kOldestOpset) {
    fail() << "opset " << opset << " is not supported; export with opset "
           << kOldestOpset << " or newer (17 or 18 is a good choice)";
    return failure();
  }
  for (const proto::FunctionProto &function : source.functions()) {
    auto newer = newerFields<proto::NewerFunction>(function);
    std::string key =
        functionKey(function.domain(), function.name(), newer.overload());
    if (!functions.try_emplace(key, &function).second) {
      fail() << "function '" << function.name() << "' of domain '"
             << function.domain() << "' is defined twice";
      return failure();
    }
  }

  OwningOpRef<ModuleOp> module(ModuleOp::create(fileLoc));
  (*module)->setAttr("onnx.source", builder.getStringAttr(path));
  if (!source.producer_name().empty())
    (*module)->setAttr("onnx.producer",
                       builder.getStringAttr(source.producer_name() + " " +
                                             source.producer_version()));
  builder.setInsertionPointToEnd(module->getBody());
  OperationState state(fileLoc, GraphOp::getOperationName());
  GraphOp::build(builder, state, "main", opset, builder.getArrayAttr({}));
  auto op = cast<GraphOp>(builder.create(state));
  if (failed(graph(source.graph(), op)) || sawError)
    return failure();
  if (failed(verify(*module)))
    return failure();
  return module;
}

LogicalResult Importer::graph(const proto::GraphProto &graph, GraphOp op) {
  Block &block = op.getBody().emplaceBlock();
  builder.setInsertionPointToEnd(&block);
  Scope scope;
  if (failed(inputs(graph, block, scope)))
    return failure();
  if (failed(body(graph, scope)))
    return failure();
  return success();
}

LogicalResult Importer::inputs(const proto::GraphProto &graph, Block &block,
                               Scope &scope) {
  llvm::StringMap<bool> initialized;
  for (const proto::TensorProto &tensor : graph.initializer())
    initialized[tensor.name()] = true;
  SmallVector<Attribute> names;
  for (const proto::ValueInfoProto &info : graph.input()) {
    // Old versions list initializers among the inputs.
    if (initialized.count(info.name()))
      continue;
    const proto::TypeProto::Tensor &tensor = info.type().tensor_type();
    FailureOr<Type> element = tensors.elementType(tensor.elem_type());
    if (!info.type().has_tensor_type() || failed(element)) {
      fail() << "input '" << info.name() << "' is "
             << (info.type().has_tensor_type()
                     ? "a tensor of " + nameOf(tensor.elem_type())
                     : std::string("not a tensor"))
             << ", which is not supported";
      sawError = true;
      continue;
    }
    SmallVector<int64_t> dims;
    for (const proto::TensorShapeProto::Dimension &dim : tensor.shape().dim())
      dims.push_back(dim.has_dim_value() && dim.dim_value() >= 0
                         ? dim.dim_value()
                         : ShapedType::kDynamic);
    Type type = tensor.has_shape() ? Type(RankedTensorType::get(dims, *element))
                                   : Type(UnrankedTensorType::get(*element));
    Value arg = block.addArgument(type, named(info.name()));
    names.push_back(builder.getStringAttr(info.name()));
    if (failed(define(scope, info.name(), arg, "input")))
      return failure();
  }
  cast<GraphOp>(block.getParentOp()).setInputsAttr(builder.getArrayAttr(names));
  return success();
}

LogicalResult Importer::body(const proto::GraphProto &graph, Scope &scope) {
  if (graph.sparse_initializer_size())
    return fail() << "graph '" << graph.name()
                  << "' has sparse initializers, which are not supported";
  for (const proto::TensorProto &tensor : graph.initializer())
    if (failed(constant(tensor, tensor.name(), scope)))
      sawError = true;
  for (const proto::NodeProto &n : graph.node())
    if (failed(node(n, scope, Call())))
      return failure();
  output(graph, scope);
  return success();
}

void Importer::output(const proto::GraphProto &graph, Scope &scope) {
  SmallVector<Value> values;
  SmallVector<Attribute> names;
  for (const proto::ValueInfoProto &info : graph.output()) {
    Value value = scope.find(info.name());
    if (!value) {
      fail() << "output '" << info.name() << "' of graph '" << graph.name()
             << "' is not defined by any node";
      sawError = true;
      continue;
    }
    values.push_back(value);
    names.push_back(builder.getStringAttr(info.name()));
  }
  OutputOp::create(builder, fileLoc, builder.getArrayAttr(names), values);
}

LogicalResult Importer::define(Scope &scope, StringRef name, Value value,
                               StringRef what) {
  if (name.empty())
    return success();
  if (!scope.values.try_emplace(name, value).second)
    return fail() << what << " '" << name
                  << "' is defined twice; a graph may define a name once";
  return success();
}

LogicalResult Importer::constant(const proto::TensorProto &tensor,
                                 StringRef name, Scope &scope) {
  FailureOr<std::pair<RankedTensorType, Attribute>> source =
      tensors.source(tensor, name);
  if (failed(source))
    return failure();
  auto op = ConstantOp::create(builder, named(name), source->first, name,
                               source->second);
  return define(scope, name, op.getResult(), "tensor");
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

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

  std::string name = call.prefix + node.name();
  if (node.name().empty() && node.output_size())
    name = call.prefix + node.output(0);
  nodeBytes += 2048 + name.size();
  if (nodeBytes > kMostNodeBytes)
    return fail() << "the graph has too many nodes once its functions are "
                     "inlined; it stopped at node '"
                  << StringRef(name).take_back(200) << "'";
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

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

FailureOr<OwningOpRef<ModuleOp>>
foresight::importOnnx(MLIRContext &context, StringRef path,
                      const OnnxImportOptions &options) {
  context.loadDialect<ForesightDialect, OnnxDialect>();
  Location loc = FileLineColLoc::get(&context, path, 0, 0);
  llvm::sys::fs::file_status status;
  if (std::error_code code = llvm::sys::fs::status(path, status)) {
    emitError(loc) << "cannot be read: " << code.message();
    return failure();
  }
  if (!llvm::sys::fs::is_regular_file(status)) {
    emitError(loc) << "is not a regular file";
    return failure();
  }
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                          /*RequiresNullTerminator=*/false);
  if (!file) {
    emitError(loc) << "cannot be read: " << file.getError().message();
    return failure();
  }
  StringRef bytes = (*file)->getBuffer();
  llvm::Expected<proto::ModelProto> model = parseModel(bytes);
  if (!model) {
    emitError(loc) << llvm::toString(model.takeError());
    return failure();
  }
  StringRef folder = options.externalDataDir.empty()
                         ? llvm::sys::path::parent_path(path)
                         : StringRef(options.externalDataDir);
  return Importer(context, path, bytes, folder, options.allowLinks).run(*model);
}
