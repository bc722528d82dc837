//===- ImportOnnx.cpp - ONNX files to onnx-level IR -----------------------===//

#include "foresight/Import/Onnx/ImportOnnx.h"

#include "TensorSource.h"
#include "Wire.h"

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
  llvm::StringMap<const wire::Attribute *> attributes;
  std::string prefix;
  unsigned depth = 0;
};

class Importer {
public:
  Importer(MLIRContext &context, StringRef path, StringRef file,
           StringRef folder)
      : builder(&context), context(context), path(path),
        fileLoc(FileLineColLoc::get(&context, path, 0, 0)),
        tensors(context, path, file, folder) {}

  FailureOr<OwningOpRef<ModuleOp>> run(const wire::Model &model);

private:
  LogicalResult graph(const wire::Graph &graph, GraphOp op);
  LogicalResult inputs(const wire::Graph &graph, Block &block, Scope &scope);
  LogicalResult body(const wire::Graph &graph, Scope &scope);
  LogicalResult node(const wire::Node &node, Scope &scope, const Call &call);
  LogicalResult constantNode(const wire::Node &node, Scope &scope,
                             const Call &call);
  LogicalResult inlineCall(const wire::Node &node, Scope &scope,
                           const Call &call, const wire::Function &function);
  LogicalResult constant(const wire::Tensor &tensor, StringRef name,
                         Scope &scope);
  LogicalResult define(Scope &scope, StringRef name, Value value,
                       StringRef what);
  LogicalResult operands(const wire::Node &node, Scope &scope,
                         StringRef nodeName, SmallVectorImpl<Value> &values);
  FailureOr<Attribute> attribute(const wire::Attribute &a, StringRef nodeName);
  void output(const wire::Graph &graph, Scope &scope);

  /// What `a` stands for: itself, or what the caller gave for its reference.
  const wire::Attribute *resolve(const wire::Attribute &a, const Call &call) {
    if (a.reference.empty())
      return &a;
    return call.attributes.lookup(a.reference);
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
  const wire::Model *model = nullptr;
  llvm::StringMap<const wire::Function *> functions;
  bool sawError = false;
};

} // namespace

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

FailureOr<OwningOpRef<ModuleOp>> Importer::run(const wire::Model &source) {
  model = &source;
  int64_t opset = 0;
  for (auto [domain, version] : source.opsets)
    if (domain.empty() || domain == "ai.onnx")
      opset = version;
  if (opset < kOldestOpset) {
    fail() << "opset " << opset << " is not supported; export with opset "
           << kOldestOpset << " or newer (17 or 18 is a good choice)";
    return failure();
  }
  for (const wire::Function &function : source.functions)
    functions[(function.domain + ":" + function.name).str()] = &function;

  OwningOpRef<ModuleOp> module(ModuleOp::create(fileLoc));
  (*module)->setAttr("onnx.source", builder.getStringAttr(path));
  if (!source.producer.empty())
    (*module)->setAttr(
        "onnx.producer",
        builder.getStringAttr(source.producer + " " + source.producerVersion));
  builder.setInsertionPointToEnd(module->getBody());
  OperationState state(fileLoc, GraphOp::getOperationName());
  GraphOp::build(builder, state, "main", opset, builder.getArrayAttr({}));
  auto op = cast<GraphOp>(builder.create(state));
  if (failed(graph(source.graph, op)) || sawError)
    return failure();
  if (failed(verify(*module)))
    return failure();
  return module;
}

LogicalResult Importer::graph(const wire::Graph &graph, GraphOp op) {
  Block &block = op.getBody().emplaceBlock();
  builder.setInsertionPointToEnd(&block);
  Scope scope;
  if (failed(inputs(graph, block, scope)))
    return failure();
  if (failed(body(graph, scope)))
    return failure();
  return success();
}

LogicalResult Importer::inputs(const wire::Graph &graph, Block &block,
                               Scope &scope) {
  llvm::StringMap<bool> initialized;
  for (const wire::Tensor &tensor : graph.initializers)
    initialized[tensor.name] = true;
  SmallVector<Attribute> names;
  for (const wire::ValueInfo &info : graph.inputs) {
    // Old versions list initializers among the inputs.
    if (initialized.count(info.name))
      continue;
    FailureOr<Type> element = tensors.elementType(info.elementType);
    if (!info.isTensor || failed(element)) {
      fail() << "input '" << info.name << "' is "
             << (info.isTensor ? "a tensor of " + wire::nameOf(info.elementType)
                               : std::string("not a tensor"))
             << ", which is not supported";
      sawError = true;
      continue;
    }
    SmallVector<int64_t> dims;
    for (int64_t dim : info.dims)
      dims.push_back(dim < 0 ? ShapedType::kDynamic : dim);
    Type type = info.hasShape ? Type(RankedTensorType::get(dims, *element))
                              : Type(UnrankedTensorType::get(*element));
    Value arg = block.addArgument(type, named(info.name));
    names.push_back(builder.getStringAttr(info.name));
    if (failed(define(scope, info.name, arg, "input")))
      return failure();
  }
  cast<GraphOp>(block.getParentOp()).setInputsAttr(builder.getArrayAttr(names));
  return success();
}

LogicalResult Importer::body(const wire::Graph &graph, Scope &scope) {
  if (graph.hasSparse)
    return fail() << "graph '" << graph.name
                  << "' has sparse initializers, which are not supported";
  for (const wire::Tensor &tensor : graph.initializers)
    if (failed(constant(tensor, tensor.name, scope)))
      sawError = true;
  for (const wire::Node &n : graph.nodes)
    if (failed(node(n, scope, Call())))
      return failure();
  output(graph, scope);
  return success();
}

void Importer::output(const wire::Graph &graph, Scope &scope) {
  SmallVector<Value> values;
  SmallVector<Attribute> names;
  for (const wire::ValueInfo &info : graph.outputs) {
    Value value = scope.find(info.name);
    if (!value) {
      fail() << "output '" << info.name << "' of graph '" << graph.name
             << "' is not defined by any node";
      sawError = true;
      continue;
    }
    values.push_back(value);
    names.push_back(builder.getStringAttr(info.name));
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

LogicalResult Importer::constant(const wire::Tensor &tensor, StringRef name,
                                 Scope &scope) {
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

LogicalResult Importer::operands(const wire::Node &node, Scope &scope,
                                 StringRef nodeName,
                                 SmallVectorImpl<Value> &values) {
  for (StringRef name : node.inputs) {
    if (name.empty()) {
      values.push_back(NoneOp::create(builder, fileLoc));
      continue;
    }
    Value value = scope.find(name);
    if (!value)
      return fail() << "node '" << nodeName << "' (" << node.opType
                    << ") reads '" << name
                    << "', which nothing before it defines";
    values.push_back(value);
  }
  return success();
}

LogicalResult Importer::node(const wire::Node &node, Scope &scope,
                             const Call &call) {
  StringRef domain = node.domain == "ai.onnx" ? StringRef() : node.domain;
  auto function = functions.find((node.domain + ":" + node.opType).str());
  if (function != functions.end())
    return inlineCall(node, scope, call, *function->second);
  if (domain.empty() && node.opType == "Constant")
    return constantNode(node, scope, call);

  std::string name = call.prefix + node.name.str();
  if (node.name.empty() && !node.outputs.empty())
    name = call.prefix + node.outputs.front().str();
  SmallVector<Value> values;
  if (failed(operands(node, scope, name, values)))
    return failure();

  SmallVector<NamedAttribute> params;
  SmallVector<Attribute> branches;
  SmallVector<const wire::Graph *> graphs;
  for (const wire::Attribute &written : node.attributes) {
    const wire::Attribute *a = resolve(written, call);
    if (!a)
      continue; // an optional attribute that the caller did not give
    if (a->g) {
      branches.push_back(builder.getStringAttr(written.name));
      graphs.push_back(a->g.get());
      continue;
    }
    FailureOr<Attribute> value = attribute(*a, name);
    if (failed(value))
      return failure();
    params.push_back({builder.getStringAttr(written.name), *value});
  }

  OperationState state(named(name), NodeOp::getOperationName());
  SmallVector<Type> types(node.outputs.size(), ValueType::get(&context));
  NodeOp::build(builder, state, types, builder.getStringAttr(node.opType),
                domain.empty() ? StringAttr() : builder.getStringAttr(domain),
                params.empty() ? DictionaryAttr()
                               : builder.getDictionaryAttr(params),
                branches.empty() ? ArrayAttr() : builder.getArrayAttr(branches),
                values, graphs.size());
  auto op = cast<NodeOp>(builder.create(state));
  for (auto [region, graph] : llvm::zip(op.getBodies(), graphs)) {
    if (!graph->inputs.empty())
      return fail() << "node '" << name << "' (" << node.opType
                    << ") has a subgraph with inputs; loops are not supported";
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&region.emplaceBlock());
    Scope inner;
    inner.outer = &scope;
    if (failed(body(*graph, inner)))
      return failure();
  }
  for (auto [output, result] : llvm::zip(node.outputs, op.getOutputs()))
    if (failed(define(scope, output, result, "value")))
      return failure();
  return success();
}

/// A Constant node is an initializer that stands among the nodes.
LogicalResult Importer::constantNode(const wire::Node &node, Scope &scope,
                                     const Call &call) {
  std::string name = call.prefix + node.name.str();
  if (node.outputs.size() != 1 || node.attributes.size() != 1)
    return fail() << "node '" << name
                  << "' (Constant) must have one attribute and one output";
  const wire::Attribute *a = resolve(node.attributes.front(), call);
  StringRef kind = node.attributes.front().name;
  DenseElementsAttr dense;
  if (a && kind == "value" && a->t) {
    FailureOr<std::pair<RankedTensorType, Attribute>> source =
        tensors.source(*a->t, name.empty() ? node.outputs[0] : name);
    if (failed(source))
      return failure();
    auto op = ConstantOp::create(builder, named(name), source->first,
                                 node.outputs[0], source->second);
    return define(scope, node.outputs[0], op.getResult(), "value");
  }
  auto type = [&](ArrayRef<int64_t> shape, Type element) {
    return RankedTensorType::get(shape, element);
  };
  if (a && kind == "value_int")
    dense = DenseElementsAttr::get(type({}, builder.getI64Type()), a->i);
  else if (a && kind == "value_float")
    dense = DenseElementsAttr::get(type({}, builder.getF32Type()), a->f);
  else if (a && kind == "value_ints")
    dense = DenseElementsAttr::get(
        type({static_cast<int64_t>(a->ints.size())}, builder.getI64Type()),
        ArrayRef<int64_t>(a->ints));
  else if (a && kind == "value_floats")
    dense = DenseElementsAttr::get(
        type({static_cast<int64_t>(a->floats.size())}, builder.getF32Type()),
        ArrayRef<float>(a->floats));
  else
    return fail() << "node '" << name << "' (Constant) has '" << kind
                  << "', which is not supported";
  auto op = ConstantOp::create(builder, named(name),
                               cast<RankedTensorType>(dense.getType()),
                               node.outputs[0], dense);
  return define(scope, node.outputs[0], op.getResult(), "value");
}

LogicalResult Importer::inlineCall(const wire::Node &node, Scope &scope,
                                   const Call &call,
                                   const wire::Function &function) {
  std::string name = call.prefix + node.name.str();
  // Functions may not recurse, so a chain is as long as there are functions.
  if (call.depth > functions.size())
    return fail() << "function '" << function.name << "' calls itself";
  SmallVector<Value> values;
  if (failed(operands(node, scope, name, values)))
    return failure();
  if (values.size() > function.inputs.size() ||
      node.outputs.size() > function.outputs.size())
    return fail() << "node '" << name << "' (" << node.opType << ") has "
                  << values.size() << " inputs and " << node.outputs.size()
                  << " outputs, but its function has " << function.inputs.size()
                  << " and " << function.outputs.size();
  Call inner;
  inner.prefix = name + "/";
  inner.depth = call.depth + 1;
  for (const wire::Attribute &a : function.defaults)
    inner.attributes[a.name] = &a;
  for (const wire::Attribute &a : node.attributes)
    if (const wire::Attribute *given = resolve(a, call))
      inner.attributes[a.name] = given;
  Scope body;
  for (auto [i, formal] : llvm::enumerate(function.inputs))
    body.values[formal] =
        i < values.size() ? values[i] : Value(NoneOp::create(builder, fileLoc));
  for (const wire::Node &n : function.nodes)
    if (failed(this->node(n, body, inner)))
      return failure();
  for (auto [formal, actual] : llvm::zip(function.outputs, node.outputs)) {
    Value value = body.find(formal);
    if (!value)
      return fail() << "function '" << function.name << "' does not define '"
                    << formal << "'";
    if (failed(define(scope, actual, value, "value")))
      return failure();
  }
  return success();
}

FailureOr<Attribute> Importer::attribute(const wire::Attribute &a,
                                         StringRef nodeName) {
  enum { kFloat = 1, kInt, kString, kTensor, kGraph, kFloats, kInts, kStrings };
  int32_t type = a.type;
  if (type == 0) // not written before IR version 3
    type = a.t                 ? kTensor
           : !a.floats.empty() ? kFloats
           : !a.ints.empty()   ? kInts
           : !a.s.empty()      ? kString
                               : kInt;
  switch (type) {
  case kFloat:
    return Attribute(builder.getF32FloatAttr(a.f));
  case kInt:
    return Attribute(builder.getI64IntegerAttr(a.i));
  case kString:
    return Attribute(builder.getStringAttr(a.s));
  case kFloats:
    return Attribute(builder.getDenseF32ArrayAttr(a.floats));
  case kInts:
    return Attribute(builder.getDenseI64ArrayAttr(a.ints));
  case kStrings: {
    SmallVector<Attribute> strings;
    for (StringRef s : a.strings)
      strings.push_back(builder.getStringAttr(s));
    return Attribute(builder.getArrayAttr(strings));
  }
  case kTensor: {
    if (!a.t)
      break;
    auto source = tensors.source(*a.t, nodeName);
    if (failed(source))
      return failure();
    return source->second;
  }
  default:
    break;
  }
  fail() << "node '" << nodeName << "' has an attribute '" << a.name
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
  llvm::Expected<wire::Model> model = wire::parseModel(bytes);
  if (!model) {
    emitError(loc) << "is not an ONNX model, or was cut short: "
                   << llvm::toString(model.takeError());
    return failure();
  }
  StringRef folder = options.externalDataDir.empty()
                         ? llvm::sys::path::parent_path(path)
                         : StringRef(options.externalDataDir);
  return Importer(context, path, bytes, folder).run(*model);
}
