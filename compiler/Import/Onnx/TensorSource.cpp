//===- TensorSource.cpp - What stands for a tensor in the IR --------------===//

#include "TensorSource.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/Onnx/Onnx.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;
using foresight::onnx::proto::TensorProto;

/// Integers up to here are values of the graph's arithmetic (axes, shapes) and
/// shown in the IR; floats are shown if they are single numbers.
static constexpr int64_t kDenseIntegers = 256;

/// Element types of newer versions of onnx.proto.
static constexpr int32_t kUint4 = 21, kInt4 = 22;

static bool isExternal(const TensorProto &tensor) {
  return tensor.data_location() == TensorProto::EXTERNAL;
}

/// Elements from their bytes; a boolean has one of its own.
static DenseElementsAttr fromBytes(RankedTensorType type, ArrayRef<char> raw) {
  if (!type.getElementType().isInteger(1))
    return DenseElementsAttr::getFromRawBuffer(type, raw);
  SmallVector<bool> bits;
  for (char byte : raw)
    bits.push_back(byte != 0);
  return DenseElementsAttr::get(type, bits);
}

TensorSource::TensorSource(MLIRContext &context, StringRef path,
                           StringRef bytes, StringRef folder, bool anyLinks)
    : builder(&context), path(path), bytes(bytes), external(folder, anyLinks) {}

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
  case TensorProto::FLOAT:
    return Type(builder.getF32Type());
  case TensorProto::FLOAT16:
    return Type(builder.getF16Type());
  case TensorProto::BFLOAT16:
    return Type(builder.getBF16Type());
  case TensorProto::DOUBLE:
    return Type(builder.getF64Type());
  case TensorProto::BOOL:
    return integer(1, false);
  case TensorProto::INT8:
    return integer(8, false);
  case TensorProto::INT16:
    return integer(16, false);
  case TensorProto::INT32:
    return integer(32, false);
  case TensorProto::INT64:
    return integer(64, false);
  case TensorProto::UINT8:
    return integer(8, true);
  case TensorProto::UINT16:
    return integer(16, true);
  case TensorProto::UINT32:
    return integer(32, true);
  case TensorProto::UINT64:
    return integer(64, true);
  case kInt4:
    return integer(4, false);
  case kUint4:
    return integer(4, true);
  default:
    return failure();
  }
}

FailureOr<FileRange> TensorSource::range(const TensorProto &tensor,
                                         StringRef name, int64_t size) {
  if (!isExternal(tensor)) {
    StringRef raw = rawData(tensor, bytes);
    if (static_cast<int64_t>(raw.size()) != size) {
      fail(name) << "its shape needs " << size << " bytes, but " << raw.size()
                 << " are stored";
      return failure();
    }
    return FileRange{path, raw.data() - bytes.data(), size};
  }
  StringRef location;
  int64_t offset = 0, length = -1;
  for (const proto::StringStringEntryProto &entry : tensor.external_data()) {
    StringRef key = entry.key(), value = entry.value();
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

/// The low `width` bytes of each value: what int32_data and its likes hold for
/// an element.
template <typename Values>
static std::vector<char> lowBytes(const Values &values, size_t width) {
  std::vector<char> bytes(static_cast<size_t>(values.size()) * width);
  for (int i = 0; i < values.size(); ++i)
    std::memcpy(bytes.data() + static_cast<size_t>(i) * width, &values[i],
                width);
  return bytes;
}

/// Values from the typed field that the element type has.
FailureOr<Attribute> TensorSource::typedValues(const TensorProto &tensor,
                                               StringRef name,
                                               RankedTensorType type) {
  Type element = type.getElementType();
  size_t width = llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
  std::vector<char> raw;
  switch (tensor.data_type()) {
  case TensorProto::FLOAT:
    raw = lowBytes(tensor.float_data(), width);
    break;
  case TensorProto::DOUBLE:
    raw = lowBytes(tensor.double_data(), width);
    break;
  case TensorProto::INT64:
    raw = lowBytes(tensor.int64_data(), width);
    break;
  case TensorProto::UINT32:
  case TensorProto::UINT64:
    raw = lowBytes(tensor.uint64_data(), width);
    break;
  default: // smaller types, and the bits of 16-bit floats
    raw = lowBytes(tensor.int32_data(), width);
  }
  int64_t count = static_cast<int64_t>(raw.size() / width);
  if (count != type.getNumElements()) {
    fail(name) << "its shape needs " << type.getNumElements() << " values, but "
               << count << " are stored";
    return failure();
  }
  return Attribute(fromBytes(type, raw));
}

FailureOr<std::pair<RankedTensorType, Attribute>>
TensorSource::source(const TensorProto &tensor, StringRef name) {
  FailureOr<Type> element = elementType(tensor.data_type());
  if (failed(element)) {
    fail(name) << "elements of " << nameOf(tensor.data_type())
               << " are not supported; export in float32, float16 or bfloat16";
    return failure();
  }
  // Products of some of the sizes of an empty tensor may not overflow either.
  int64_t extent = 1;
  for (int64_t dim : tensor.dims())
    if (dim < 0 ||
        llvm::MulOverflow(extent, std::max<int64_t>(dim, 1), extent) ||
        extent > (int64_t(1) << 48)) {
      fail(name) << "its shape has a size of " << dim
                 << ", which cannot be right";
      return failure();
    }
  int64_t count = llvm::is_contained(tensor.dims(), 0) ? 0 : extent;
  auto type = RankedTensorType::get(
      {tensor.dims().data(), static_cast<size_t>(tensor.dims_size())},
      *element);
  bool packed =
      !(*element).isInteger(1) && (*element).getIntOrFloatBitWidth() < 8;
  if (!isExternal(tensor) && !tensor.has_raw_data() && count > 0) {
    if (packed) {
      fail(name) << "elements of " << nameOf(tensor.data_type())
                 << " are only read from raw_data and external data";
      return failure();
    }
    FailureOr<Attribute> values = typedValues(tensor, name, type);
    if (failed(values))
      return failure();
    return std::make_pair(type, *values);
  }
  FailureOr<FileRange> at = range(tensor, name, bytesOf(*element, count));
  if (failed(at))
    return failure();
  bool tiny = isa<IntegerType>(*element) ? count <= kDenseIntegers : count <= 1;
  // Codes of weights, not values of the graph's arithmetic.
  tiny &= !packed;
  if (!tiny)
    return std::make_pair(
        type, Attribute(ExternalAttr::get(builder.getContext(), at->file,
                                          at->offset, at->bytes, *element,
                                          /*transposed=*/false)));
  std::string copy;
  StringRef raw = rawData(tensor, bytes);
  if (isExternal(tensor) && count > 0) {
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
  return std::make_pair(
      type, Attribute(fromBytes(type, ArrayRef<char>(raw.data(), raw.size()))));
}
