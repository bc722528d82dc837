//===- ImportOnnx.cpp - ONNX files to onnx-level IR -----------------------===//

#include "foresight/Import/Onnx/ImportOnnx.h"

#include "Importer.h"

#include "foresight/Dialect/Foresight.h"

#include "mlir/IR/Verifier.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;

static constexpr int64_t kOldestOpset = 11;

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
