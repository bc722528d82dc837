//===- Importer.h - From messages of onnx.proto to IR -----------*- C++ -*-===//
#ifndef FORESIGHT_IMPORT_ONNX_IMPORTER_H
#define FORESIGHT_IMPORT_ONNX_IMPORTER_H

#include "Model.h"
#include "TensorSource.h"

#include "foresight/Import/Onnx/Onnx.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringMap.h"

#include <string>

namespace foresight::onnx {

/// What functions are told apart by.
inline std::string functionKey(llvm::StringRef domain, llvm::StringRef name,
                               llvm::StringRef overload) {
  return (domain + ":" + name + ":" + overload).str();
}

/// Names to values; a subgraph sees the names around it.
struct Scope {
  llvm::StringMap<mlir::Value> values;
  const Scope *outer = nullptr;

  mlir::Value find(llvm::StringRef name) const {
    for (const Scope *scope = this; scope; scope = scope->outer)
      if (mlir::Value value = scope->values.lookup(name))
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

/// One model file on its way to an `onnx.graph`.
class Importer {
public:
  Importer(mlir::MLIRContext &context, llvm::StringRef path,
           llvm::StringRef file, llvm::StringRef folder, bool anyLinks)
      : builder(&context), context(context), path(path),
        fileLoc(mlir::FileLineColLoc::get(&context, path, 0, 0)),
        tensors(context, path, file, folder, anyLinks) {}

  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
  run(const proto::ModelProto &model);

private:
  mlir::LogicalResult graph(const proto::GraphProto &graph, GraphOp op);
  mlir::LogicalResult inputs(const proto::GraphProto &graph, mlir::Block &block,
                             Scope &scope);
  mlir::LogicalResult body(const proto::GraphProto &graph, Scope &scope);
  mlir::LogicalResult node(const proto::NodeProto &node, Scope &scope,
                           const Call &call);
  mlir::LogicalResult constantNode(const proto::NodeProto &node, Scope &scope,
                                   const Call &call);
  mlir::LogicalResult inlineCall(const proto::NodeProto &node, Scope &scope,
                                 const Call &call,
                                 const proto::FunctionProto &function);
  mlir::LogicalResult constant(const proto::TensorProto &tensor,
                               llvm::StringRef name, Scope &scope);
  mlir::LogicalResult define(Scope &scope, llvm::StringRef name,
                             mlir::Value value, llvm::StringRef what);
  mlir::LogicalResult operands(const proto::NodeProto &node, Scope &scope,
                               llvm::StringRef nodeName,
                               mlir::SmallVectorImpl<mlir::Value> &values);
  mlir::FailureOr<mlir::Attribute> attribute(const proto::AttributeProto &a,
                                             llvm::StringRef nodeName);
  void output(const proto::GraphProto &graph, Scope &scope);

  /// What `a` stands for: itself, or what the caller gave for its reference.
  const proto::AttributeProto *resolve(const proto::AttributeProto &a,
                                       const Call &call) {
    if (a.ref_attr_name().empty())
      return &a;
    return call.attributes.lookup(a.ref_attr_name());
  }

  mlir::InFlightDiagnostic fail() { return mlir::emitError(fileLoc); }
  mlir::Location named(const llvm::Twine &name) {
    return mlir::NameLoc::get(builder.getStringAttr(name), fileLoc);
  }

  mlir::OpBuilder builder;
  mlir::MLIRContext &context;
  std::string path;
  mlir::Location fileLoc;
  TensorSource tensors;
  const proto::ModelProto *model = nullptr;
  llvm::StringMap<const proto::FunctionProto *> functions;
  size_t nodeBytes = 0;
  bool sawError = false;
};

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_IMPORTER_H
