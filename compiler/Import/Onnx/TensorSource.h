//===- TensorSource.h - What stands for a tensor in the IR ------*- C++ -*-===//
#ifndef FORESIGHT_IMPORT_ONNX_TENSORSOURCE_H
#define FORESIGHT_IMPORT_ONNX_TENSORSOURCE_H

#include "Model.h"

#include "foresight/Import/Onnx/ExternalData.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Support/LogicalResult.h"

namespace foresight::onnx {

/// Turns tensors of a model into `#foresight.external` ranges, of the model
/// file itself or of its data files, or dense elements if they are tiny.
class TensorSource {
public:
  /// `bytes` is the mapped model file `path`; `folder` has the data files.
  TensorSource(mlir::MLIRContext &context, llvm::StringRef path,
               llvm::StringRef bytes, llvm::StringRef folder, bool anyLinks);

  /// The type and source of `tensor`. Reports an error with `name`.
  mlir::FailureOr<std::pair<mlir::RankedTensorType, mlir::Attribute>>
  source(const proto::TensorProto &tensor, llvm::StringRef name);

  mlir::FailureOr<mlir::Type> elementType(int32_t dataType);

private:
  mlir::FailureOr<FileRange> range(const proto::TensorProto &tensor,
                                   llvm::StringRef name, int64_t bytes);
  mlir::FailureOr<mlir::Attribute> typedValues(const proto::TensorProto &tensor,
                                               llvm::StringRef name,
                                               mlir::RankedTensorType type);
  mlir::InFlightDiagnostic fail(llvm::StringRef name);

  mlir::Builder builder;
  std::string path;
  llvm::StringRef bytes;
  ExternalData external;
};

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_TENSORSOURCE_H
