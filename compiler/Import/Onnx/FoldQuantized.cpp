//===- FoldQuantized.cpp - Quantised weights as the numbers they stand for ===//
//
// Where only weights are quantised, what is computed with them is what would be
// computed with the numbers that they stand for, and those are kept in a type
// that the compiler has. Activations that are rounded on the way are another
// matter: they stay, and are refused.
//
//===----------------------------------------------------------------------===//

#include "foresight/Import/Onnx/FoldQuantized.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/Onnx/Evaluator.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;

namespace {

/// Numbers that are kept in memory, 1 GiB of them.
constexpr int64_t kMostNumbers = int64_t(1) << 28;
/// Codes that share a scale; quantisers use 16 to 256.
constexpr int64_t kLargestBlock = 1 << 16;

bool isDequantizeLinear(NodeOp node) {
  return !node.getDomain() && node.getOpType() == "DequantizeLinear";
}
bool isMatMulNBits(NodeOp node) {
  return node.getDomain() == "com.microsoft" &&
         node.getOpType() == "MatMulNBits";
}

/// Integers of a constant, as they lie in its file or in the IR.
class Codes {
public:
  /// Unset unless they can be read.
  static std::optional<Codes> of(ConstantOp constant) {
    Codes codes;
    auto type = cast<RankedTensorType>(constant.getType());
    Type element = type.getElementType();
    codes.bits = element.isInteger(1) ? 8 : element.getIntOrFloatBitWidth();
    codes.isUnsigned = element.isUnsignedInteger();
    if (auto external = dyn_cast<ExternalAttr>(constant.getSource())) {
      auto slice = llvm::MemoryBuffer::getFileSlice(
          external.getFile(), external.getBytes(), external.getOffset());
      if (!slice ||
          static_cast<int64_t>((*slice)->getBufferSize()) < external.getBytes())
        return std::nullopt;
      codes.file = std::move(*slice);
      return codes;
    }
    auto dense = dyn_cast<DenseIntElementsAttr>(constant.getSource());
    if (!dense)
      return std::nullopt;
    for (const APInt &value : dense.getValues<APInt>())
      codes.values.push_back(codes.isUnsigned
                                 ? static_cast<int64_t>(value.getZExtValue())
                                 : value.getSExtValue());
    return codes;
  }

  int64_t at(int64_t i) const {
    if (!file)
      return values[i];
    const char *bytes = file->getBufferStart();
    uint64_t code = 0;
    if (bits < 8) // the first is in the low bits
      code = static_cast<uint8_t>(bytes[i * bits / 8]) >> (i * bits % 8) &
             ((1u << bits) - 1);
    else
      for (unsigned byte = 0; byte < bits / 8; ++byte)
        code |= uint64_t(static_cast<uint8_t>(bytes[i * bits / 8 + byte]))
                << (8 * byte);
    return isUnsigned ? static_cast<int64_t>(code)
                      : llvm::SignExtend64(code, bits);
  }

private:
  unsigned bits = 0;
  bool isUnsigned = false;
  std::unique_ptr<llvm::MemoryBuffer> file;
  std::vector<int64_t> values;
};

class Folder {
public:
  explicit Folder(GraphOp graph) : graph(graph), b(graph) {}
  LogicalResult run();

private:
  LogicalResult dequantizeLinear(NodeOp node);
  LogicalResult matMulNBits(NodeOp node);
  /// The numbers as a constant before `node`.
  Value constant(NodeOp node, StringRef name, ArrayRef<int64_t> shape,
                 ArrayRef<float> numbers);
  LogicalResult charge(NodeOp node);
  /// Takes out the codes as well, which nothing else can read.
  void replace(NodeOp node, Value result) {
    llvm::SetVector<Operation *> constants;
    for (Value input : node.getInputs())
      if (auto constant = input.getDefiningOp<ConstantOp>())
        constants.insert(constant);
    node.getOutputs().front().replaceAllUsesWith(result);
    node.erase();
    for (Operation *constant : constants)
      if (constant->use_empty())
        constant->erase();
  }

  ConstantOp constantAt(NodeOp node, unsigned i) {
    return i < node.getInputs().size()
               ? node.getInputs()[i].getDefiningOp<ConstantOp>()
               : ConstantOp();
  }
  bool has(NodeOp node, unsigned i) {
    return i < node.getInputs().size() &&
           !isa<NoneType>(node.getInputs()[i].getType());
  }
  int64_t integer(NodeOp node, StringRef name, int64_t otherwise) {
    DictionaryAttr params = node.getParamsAttr();
    auto value = params ? params.getAs<IntegerAttr>(name) : IntegerAttr();
    return value ? value.getInt() : otherwise;
  }

  GraphOp graph;
  OpBuilder b;
  int64_t numbers = 0;
};

} // namespace

/// Counts what `node` would be folded to, before anything is: a model that is
/// too large is refused at once.
LogicalResult Folder::charge(NodeOp node) {
  int64_t count = 0;
  if (isDequantizeLinear(node)) {
    if (ConstantOp codes = constantAt(node, 0))
      count = cast<RankedTensorType>(codes.getType()).getNumElements();
  } else if (isMatMulNBits(node) && constantAt(node, 1)) {
    count = times(std::max<int64_t>(0, integer(node, "N", 0)),
                  std::max<int64_t>(0, integer(node, "K", 0)));
  }
  if (count <= kMostNumbers - numbers) {
    numbers += count;
    return success();
  }
  return emitError(node.getLoc())
         << describe(node) << ": the weights before it stand for more than "
         << kMostNumbers
         << " numbers, the most that are folded; export the model without "
            "quantisation and choose a type with --dtype";
}

Value Folder::constant(NodeOp node, StringRef name, ArrayRef<int64_t> shape,
                       ArrayRef<float> values) {
  auto type = RankedTensorType::get(shape, b.getF32Type());
  return ConstantOp::create(b, node.getLoc(), type, name,
                            DenseElementsAttr::get(type, values))
      .getResult();
}

/// `DequantizeLinear` of a constant: (code - zero) * scale, with one scale for
/// all, for each slice of an axis, or for each block of an axis.
LogicalResult Folder::dequantizeLinear(NodeOp node) {
  ConstantOp x = constantAt(node, 0), scale = constantAt(node, 1);
  ConstantOp zero = constantAt(node, 2);
  if (!x || !scale || (has(node, 2) && !zero))
    return success();
  auto type = cast<RankedTensorType>(x.getType());
  auto scaleType = cast<RankedTensorType>(scale.getType());
  if (!isa<IntegerType>(type.getElementType()) ||
      type.getElementTypeBitWidth() > 32 ||
      !isa<FloatType>(scaleType.getElementType()) ||
      (zero && (!isa<IntegerType>(
                    cast<RankedTensorType>(zero.getType()).getElementType()) ||
                cast<RankedTensorType>(zero.getType()).getShape() !=
                    scaleType.getShape())))
    return success();
  // Strides of the scales over the elements.
  int64_t rank = type.getRank(), block = integer(node, "block_size", 0);
  int64_t axis = integer(node, "axis", 1);
  axis = axis < 0 ? axis + rank : axis;
  bool single = scaleType.getNumElements() == 1 && block == 0;
  if (!single && (axis < 0 || axis >= rank || block < 0))
    return success();
  SmallVector<int64_t> expected;
  if (!single && block == 0)
    expected = {type.getDimSize(axis)};
  if (block > 0) {
    expected.assign(type.getShape().begin(), type.getShape().end());
    expected[axis] = llvm::divideCeil(expected[axis], block);
  }
  if (!single && scaleType.getShape() != ArrayRef<int64_t>(expected))
    return success();

  std::optional<Codes> codes = Codes::of(x), zeros;
  if (zero)
    zeros = Codes::of(zero);
  llvm::Expected<Tensor> scales = load(scale);
  if (!scales)
    return emitError(node.getLoc()) << llvm::toString(scales.takeError());
  if (!codes || (zero && !zeros))
    return success();
  int64_t inner = 1;
  for (int64_t i = axis + 1; !single && i < rank; ++i)
    inner *= type.getDimSize(i);
  int64_t length = single ? 1 : type.getDimSize(axis);
  std::vector<float> values(type.getNumElements());
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    int64_t along = i / inner % length, at = single ? 0 : along;
    if (block > 0)
      at = (i / (inner * length) * llvm::divideCeil(length, block) +
            along / block) *
               inner +
           i % inner;
    int64_t code = codes->at(i) - (zeros ? zeros->at(at) : 0);
    values[i] =
        static_cast<float>(code) * static_cast<float>(scales->floats()[at]);
  }
  b.setInsertionPoint(node);
  Value folded = constant(node, x.getName(), type.getShape(), values);
  replace(node, folded);
  return success();
}

/// ONNX Runtime's `MatMulNBits`: a product with the transpose of a matrix whose
/// rows are blocks of codes with a scale each.
LogicalResult Folder::matMulNBits(NodeOp node) {
  int64_t rows = integer(node, "N", 0), columns = integer(node, "K", 0);
  int64_t bits = integer(node, "bits", 4),
          block = integer(node, "block_size", 0);
  ConstantOp packed = constantAt(node, 1), scale = constantAt(node, 2);
  ConstantOp zero = constantAt(node, 3);
  // Input 4 would put columns in another order.
  if (!packed || !scale || (has(node, 3) && !zero) || has(node, 4) ||
      (bits != 4 && bits != 8) || rows < 1 || columns < 1 ||
      rows > kMostNumbers || columns > kMostNumbers || block < 16 ||
      block > kLargestBlock || block % 2)
    return success();
  int64_t blocks = llvm::divideCeil(columns, block);
  auto count = [](ConstantOp of) {
    return cast<RankedTensorType>(of.getType()).getNumElements();
  };
  auto isBytes = [](ConstantOp of) {
    return cast<RankedTensorType>(of.getType())
        .getElementType()
        .isUnsignedInteger(8);
  };
  int64_t zeroBytes = llvm::divideCeil(blocks * bits, 8);
  if (!isBytes(packed) || count(packed) != rows * blocks * block * bits / 8 ||
      count(scale) != rows * blocks ||
      (zero && (!isBytes(zero) || count(zero) != rows * zeroBytes)))
    return success();

  std::optional<Codes> codes = Codes::of(packed), zeros;
  if (zero)
    zeros = Codes::of(zero);
  llvm::Expected<Tensor> scales = load(scale);
  if (!scales)
    return emitError(node.getLoc()) << llvm::toString(scales.takeError());
  if (!codes || (zero && !zeros))
    return success();
  auto unpack = [&](const Codes &from, int64_t begin, int64_t i) {
    int64_t byte = from.at(begin + i * bits / 8);
    return bits == 8 ? byte : byte >> (i % 2 * 4) & 15;
  };
  std::vector<float> values(rows * columns);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      int64_t group = r * blocks + c / block;
      int64_t middle = zeros ? unpack(*zeros, r * zeroBytes, c / block)
                             : int64_t(1) << (bits - 1);
      int64_t code =
          unpack(*codes, group * block * bits / 8, c % block) - middle;
      values[r * columns + c] = static_cast<float>(code) *
                                static_cast<float>(scales->floats()[group]);
    }
  b.setInsertionPoint(node);
  Value folded = constant(node, packed.getName(), {rows, columns}, values);
  auto make = [&](StringRef type, ValueRange inputs, DictionaryAttr params,
                  StringAttr domain) {
    OperationState state(node.getLoc(), NodeOp::getOperationName());
    NodeOp::build(b, state, {ValueType::get(b.getContext())},
                  b.getStringAttr(type), domain, params, ArrayAttr(), inputs,
                  0);
    return cast<NodeOp>(b.create(state)).getOutputs().front();
  };
  NamedAttribute turned(b.getStringAttr("transB"), b.getI64IntegerAttr(1));
  Value product = make("FusedMatMul", {node.getInputs()[0], folded},
                       b.getDictionaryAttr({turned}), node.getDomainAttr());
  if (has(node, 5))
    product = make("Add", {product, node.getInputs()[5]}, {}, {});
  replace(node, product);
  return success();
}

LogicalResult Folder::run() {
  SmallVector<NodeOp> nodes;
  graph.walk([&](NodeOp node) { nodes.push_back(node); });
  for (NodeOp node : nodes)
    if (failed(charge(node)))
      return failure();
  for (NodeOp node : nodes) {
    if (node.getNumResults() != 1)
      continue;
    LogicalResult folded = success();
    if (isDequantizeLinear(node))
      folded = dequantizeLinear(node);
    else if (isMatMulNBits(node))
      folded = matMulNBits(node);
    if (failed(folded))
      return failure();
  }
  return success();
}

LogicalResult foresight::onnx::foldQuantized(GraphOp graph) {
  return Folder(graph).run();
}
