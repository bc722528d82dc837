//===- TensorSource.cpp - What stands for a tensor in the IR --------------===//

#include "TensorSource.h"

#include "foresight/Dialect/Foresight.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;

/// Integers up to here are values of the graph's arithmetic (axes, shapes) and
/// shown in the IR; floats are shown if they are single numbers.
static constexpr int64_t kDenseIntegers = 256;

TensorSource::TensorSource(MLIRContext &context, StringRef path,
                           StringRef bytes, StringRef folder)
    : builder(&context), path(path), bytes(bytes), external(folder) {}

InFlightDiagnostic TensorSource::fail(StringRef name) {
  Location loc = FileLineColLoc::get(builder.getContext(), path, 0, 0);
  return emitError(loc) << "tensor '" << name << "': ";
}

FailureOr<Type> TensorSource::elementType(int32_t dataType) {
  auto integer = [&](unsigned width, bool isUnsigned) -> Type {
    return IntegerType::get(builder.getContext(), width,
                            isUnsigned ? IntegerType::Unsigned
                                       : IntegerType::Signless);
  };
  switch (dataType) {
  case wire::kFloat:
    return Type(builder.getF32Type());
  case wire::kFloat16:
    return Type(builder.getF16Type());
  case wire::kBfloat16:
    return Type(builder.getBF16Type());
  case wire::kDouble:
    return Type(builder.getF64Type());
  case wire::kBool:
    return integer(1, false);
  case wire::kInt8:
    return integer(8, false);
  case wire::kInt16:
    return integer(16, false);
  case wire::kInt32:
    return integer(32, false);
  case wire::kInt64:
    return integer(64, false);
  case wire::kUint8:
    return integer(8, true);
  case wire::kUint16:
    return integer(16, true);
  case wire::kUint32:
    return integer(32, true);
  case wire::kUint64:
    return integer(64, true);
  default:
    return failure();
  }
}

FailureOr<FileRange> TensorSource::range(const wire::Tensor &tensor,
                                         StringRef name, int64_t size) {
  if (!tensor.external) {
    if (static_cast<int64_t>(tensor.raw.size()) != size) {
      fail(name) << "its shape needs " << size << " bytes, but "
                 << tensor.raw.size() << " are stored";
      return failure();
    }
    return FileRange{path, tensor.raw.data() - bytes.data(), size};
  }
  StringRef location;
  int64_t offset = 0, length = -1;
  for (auto [key, value] : tensor.externalData) {
    if (key == "location") {
      location = value;
      continue;
    }
    if (key != "offset" && key != "length")
      continue;
    int64_t number = 0;
    if (value.getAsInteger(10, number) || number < 0) {
      fail(name) << key << " of its external data is '" << value
                 << "', not a number";
      return failure();
    }
    (key == "offset" ? offset : length) = number;
  }
  llvm::Expected<FileRange> found =
      external.resolve(name, location, offset, length, size);
  if (!found) {
    fail(name) << llvm::toString(found.takeError());
    return failure();
  }
  return *found;
}

/// Values from a typed field: what int32_data and its likes hold.
FailureOr<Attribute> TensorSource::typedValues(const wire::Tensor &tensor,
                                               StringRef name,
                                               RankedTensorType type) {
  if (static_cast<int64_t>(tensor.values.size()) != type.getNumElements()) {
    fail(name) << "its shape needs " << type.getNumElements() << " values, but "
               << tensor.values.size() << " are stored";
    return failure();
  }
  Type element = type.getElementType();
  unsigned width = element.getIntOrFloatBitWidth();
  if (element.isInteger(1)) {
    SmallVector<bool> bits(tensor.values.begin(), tensor.values.end());
    return Attribute(DenseElementsAttr::get(type, bits));
  }
  // The bits of an element are the low bits of the stored number.
  std::vector<char> raw(tensor.values.size() * (width / 8));
  for (auto [i, value] : llvm::enumerate(tensor.values))
    std::memcpy(raw.data() + i * (width / 8), &value, width / 8);
  return Attribute(DenseElementsAttr::getFromRawBuffer(type, raw));
}

FailureOr<std::pair<RankedTensorType, Attribute>>
TensorSource::source(const wire::Tensor &tensor, StringRef name) {
  FailureOr<Type> element = elementType(tensor.dataType);
  if (failed(element)) {
    fail(name) << "elements of " << wire::nameOf(tensor.dataType)
               << " are not supported; export in float32, float16 or bfloat16";
    return failure();
  }
  int64_t count = 1;
  for (int64_t dim : tensor.dims)
    if (dim < 0 || llvm::MulOverflow(count, dim, count) ||
        count > (int64_t(1) << 48)) {
      fail(name) << "its shape has a size of " << dim
                 << ", which cannot be right";
      return failure();
    }
  auto type = RankedTensorType::get(tensor.dims, *element);
  int64_t width = llvm::divideCeil((*element).getIntOrFloatBitWidth(), 8);
  if (!tensor.external && !tensor.hasRaw && count > 0) {
    FailureOr<Attribute> values = typedValues(tensor, name, type);
    if (failed(values))
      return failure();
    return std::make_pair(type, *values);
  }
  FailureOr<FileRange> at = range(tensor, name, count * width);
  if (failed(at))
    return failure();
  bool tiny = isa<IntegerType>(*element) ? count <= kDenseIntegers : count <= 1;
  if (!tiny)
    return std::make_pair(
        type, Attribute(ExternalAttr::get(builder.getContext(), at->file,
                                          at->offset, at->bytes, *element,
                                          /*transposed=*/false)));
  std::string copy;
  StringRef raw = tensor.raw;
  if (tensor.external && count > 0) {
    auto slice =
        llvm::MemoryBuffer::getFileSlice(at->file, at->bytes, at->offset);
    if (!slice) {
      fail(name) << "'" << at->file
                 << "' cannot be read: " << slice.getError().message();
      return failure();
    }
    copy = (*slice)->getBuffer().str();
    raw = copy;
  }
  if ((*element).isInteger(1)) {
    SmallVector<bool> bits;
    for (char byte : raw)
      bits.push_back(byte != 0);
    return std::make_pair(type, Attribute(DenseElementsAttr::get(type, bits)));
  }
  return std::make_pair(type,
                        Attribute(DenseElementsAttr::getFromRawBuffer(
                            type, ArrayRef<char>(raw.data(), raw.size()))));
}
