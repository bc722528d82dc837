//===- Evaluator.cpp - What onnx nodes compute ----------------------------===//

#include "EvaluateNode.h"

#include "foresight/Dialect/Foresight.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cmath>

using namespace llvm;
using namespace mlir;
using namespace foresight::onnx;

static const OperatorTable &operators() {
  static const OperatorTable table = [] {
    OperatorTable t;
    addBroadcastOperators(t);
    addElementwiseOperators(t);
    addReductionOperators(t);
    addShapeOperators(t);
    addIndexOperators(t);
    addAttentionOperators(t);
    return t;
  }();
  return table;
}

static OperatorTable::const_iterator findOperator(NodeOp node) {
  if (!node.getDomain())
    return operators().find(node.getOpType());
  return operators().find((*node.getDomain() + "." + node.getOpType()).str());
}

Expected<int64_t> foresight::onnx::normalizedAxis(int64_t axis, int64_t rank) {
  int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank)
    return evaluationError("axis " + Twine(axis) + " of " + Twine(rank) +
                           " dimensions");
  return at;
}

/// A tensor; all tensors, 1 GB; and what some seconds compute. A step of three
/// tokens of OPT-175B takes less than a tenth of each.
static constexpr int64_t kLargestTensor = int64_t(1) << 24;
static constexpr int64_t kMostElements = int64_t(1) << 27;
static constexpr int64_t kMostWork = int64_t(1) << 33;
static constexpr size_t kHighestRank = 64;

Error foresight::onnx::checkSize(ArrayRef<int64_t> shape) {
  if (shape.size() > kHighestRank)
    return evaluationError("a result of " + Twine(shape.size()) +
                           " dimensions");
  // An empty tensor counts as if it were not, so that no product of some of
  // its sizes overflows either.
  int64_t count = 1;
  bool negative = false;
  for (int64_t size : shape) {
    count = times(count, std::max<int64_t>(size, 1));
    negative |= size < 0;
  }
  if (negative || count > kLargestTensor)
    return evaluationError("a result of shape " + toString(shape));
  if (count + Tensor::liveCount() > kMostElements)
    return evaluationError("a result of shape " + toString(shape) +
                           " beside others of " + Twine(Tensor::liveCount()) +
                           " elements, which is more than any small input "
                           "leads to");
  return Error::success();
}

/// Multiplications of a product of matrices.
static int64_t productWork(const NodeView &n) {
  if (n.size() < 2 || !n[0] || !n[1] || !n[0].rank() || !n[1].rank())
    return 0;
  ArrayRef<int64_t> a = n[0].shape(), b = n[1].shape();
  bool transposed = b.size() >= 2 && n.integer("transB", 0) != 0;
  int64_t columns = b.size() < 2 ? 1 : b[b.size() - (transposed ? 2 : 1)];
  ArrayRef<int64_t> outerA = a.drop_back(std::min<size_t>(a.size(), 2));
  Expected<Shape> outer =
      broadcast(outerA, b.drop_back(std::min<size_t>(b.size(), 2)));
  if (!outer) {
    consumeError(outer.takeError());
    return 0; // it is not computed
  }
  // Each element of a matrix on the left meets each column of the right.
  return times(times(countOf(*outer), countOf(a.drop_front(outerA.size()))),
               columns);
}

Error Budget::charge(NodeOp node, ArrayRef<Tensor> inputs) {
  int64_t most = 1;
  for (const Tensor &input : inputs) {
    most = std::max(most, input ? input.count() : 0);
    work += input ? input.count() : 0;
  }
  auto add = [&](int64_t more) { work += std::min(more, kMostWork + 1); };
  StringRef type = node.getOpType();
  if (type == "MatMul" || type == "Gemm" || type == "FusedMatMul")
    add(productWork({node, inputs, 0}));
  if (type.ends_with("Attention") && inputs[0] && inputs[0].rank() >= 2)
    // Each element of a query meets at most each token of each input, and each
    // token of a query each element.
    for (const Tensor &input : inputs)
      if (input && input.rank() >= 2) {
        add(times(inputs[0].count(), input.dim(input.rank() - 2)));
        add(times(input.count(), inputs[0].dim(inputs[0].rank() - 2)));
      }
  work += most;
  return overdrawn(node);
}

Error Budget::chargeNormals(NodeOp node, int64_t count) {
  // Making one takes as long as several products.
  work += std::min(times(count, 8), kMostWork + 1);
  return overdrawn(node);
}

Error Budget::overdrawn(NodeOp node) const {
  if (work > kMostWork)
    return evaluationError(describe(node) +
                           ": the graph computes more than a small input of "
                           "any OPT model leads to");
  return Error::success();
}

int64_t foresight::onnx::toInteger(double value) {
  return std::isnan(value)  ? 0
         : value >= 0x1p63  ? INT64_MAX
         : value <= -0x1p63 ? INT64_MIN
                            : static_cast<int64_t>(value);
}

Type foresight::onnx::typeOf(int64_t dataType, MLIRContext *context) {
  auto integer = [&](unsigned width, bool isUnsigned = false) -> Type {
    return IntegerType::get(context, width,
                            isUnsigned ? IntegerType::Unsigned
                                       : IntegerType::Signless);
  };
  switch (dataType) {
  case 1:
    return Float32Type::get(context);
  case 2:
    return integer(8, true);
  case 3:
    return integer(8);
  case 4:
    return integer(16, true);
  case 5:
    return integer(16);
  case 6:
    return integer(32);
  case 7:
    return integer(64);
  case 9:
    return integer(1);
  case 10:
    return Float16Type::get(context);
  case 11:
    return Float64Type::get(context);
  case 12:
    return integer(32, true);
  case 13:
    return integer(64, true);
  case 16:
    return BFloat16Type::get(context);
  default:
    return {};
  }
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

bool foresight::onnx::isSupported(NodeOp node) {
  return (!node.getDomain() && node.getOpType() == "If") ||
         findOperator(node) != operators().end();
}

Expected<Tensors>
foresight::onnx::evaluate(NodeOp node, ArrayRef<Tensor> inputs, int64_t opset) {
  auto fail = [&](const Twine &what) {
    return evaluationError(describe(node) + ": " + what);
  };
  auto known = findOperator(node);
  if (known == operators().end())
    return fail("the operator is not supported");
  NodeView view{node, inputs, opset};
  for (size_t i = 0; i < known->second.least; ++i)
    if (!view.has(i))
      return fail("input " + Twine(i) + " is missing");
  Expected<Tensors> results = known->second.compute(view);
  if (!results)
    return fail(toString(results.takeError()));
  for (const Tensor &result : *results)
    if (Error large = checkSize(result.shape()))
      return fail(toString(std::move(large)));
  if (results->size() < node.getNumResults())
    return fail("has " + Twine(node.getNumResults()) +
                " outputs; the operator has " + Twine(results->size()));
  return results;
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

Tensor foresight::onnx::fromDense(DenseElementsAttr dense) {
  Tensor result(dense.getElementType(), dense.getType().getShape());
  if (result.isFloat()) {
    for (auto [slot, value] :
         zip(result.writeFloats(), dense.getValues<APFloat>())) {
      APFloat wide = value;
      bool lost;
      wide.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
      slot = wide.convertToDouble();
    }
    return result;
  }
  bool isSigned = !dense.getElementType().isUnsignedInteger() &&
                  !dense.getElementType().isInteger(1);
  for (auto [slot, value] : zip(result.writeInts(), dense.getValues<APInt>()))
    slot = isSigned ? value.getSExtValue()
                    : static_cast<int64_t>(value.getZExtValue());
  return result;
}

/// Element `i` of raw little-endian data.
static double readFloat(Type type, const char *data, int64_t i) {
  if (type.isF64())
    return support::endian::read<double>(data + i * 8, endianness::little);
  if (type.isF32())
    return support::endian::read<float>(data + i * 4, endianness::little);
  uint16_t bits = support::endian::read16le(data + i * 2);
  const fltSemantics &semantics =
      type.isF16() ? APFloat::IEEEhalf() : APFloat::BFloat();
  return APFloat(semantics, APInt(16, bits)).convertToFloat();
}

static int64_t readInteger(Type type, const char *data, int64_t i) {
  unsigned width = type.isInteger(1) ? 8 : type.getIntOrFloatBitWidth();
  uint64_t bits = 0;
  for (unsigned byte = 0; byte < width / 8; ++byte)
    bits |= uint64_t(static_cast<uint8_t>(data[i * (width / 8) + byte]))
            << (8 * byte);
  if (type.isInteger(1))
    return bits != 0;
  return type.isUnsignedInteger() ? static_cast<int64_t>(bits)
                                  : SignExtend64(bits, width);
}

Expected<Tensor> foresight::onnx::load(ConstantOp constant) {
  auto fail = [&](const Twine &what) {
    return evaluationError("tensor '" + constant.getName() + "': " + what);
  };
  auto type = cast<RankedTensorType>(constant.getType());
  if (Error large = checkSize(type.getShape()))
    return fail(toString(std::move(large)));
  unsigned bits = type.getElementTypeBitWidth();
  if (bits > 1 && bits < 8)
    return fail("integers of " + Twine(bits) + " bits are weights only");
  if (auto dense = dyn_cast<DenseElementsAttr>(constant.getSource()))
    return fromDense(dense);
  auto external = dyn_cast<ExternalAttr>(constant.getSource());
  if (!external)
    return fail("its source cannot be read");
  auto slice = MemoryBuffer::getFileSlice(
      external.getFile(), external.getBytes(), external.getOffset());
  if (!slice)
    return fail("'" + external.getFile() +
                "' cannot be read: " + slice.getError().message());
  if (static_cast<int64_t>((*slice)->getBufferSize()) < external.getBytes())
    return fail("'" + external.getFile() + "' is too short");
  const char *data = (*slice)->getBufferStart();
  Tensor result(type.getElementType(), type.getShape());
  int64_t count = result.count();
  if (result.isFloat()) {
    std::vector<double> &out = result.writeFloats();
    for (int64_t i = 0; i < count; ++i)
      out[i] = readFloat(type.getElementType(), data, i);
  } else {
    std::vector<int64_t> &out = result.writeInts();
    for (int64_t i = 0; i < count; ++i)
      out[i] = readInteger(type.getElementType(), data, i);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

namespace {
class Run {
public:
  explicit Run(int64_t opset) : opset(opset) {}

  llvm::DenseMap<Value, Tensor> values;

  Expected<Tensors> block(Block &block) {
    for (Operation &op : block) {
      if (auto constant = dyn_cast<ConstantOp>(op)) {
        Expected<Tensor> value = load(constant);
        if (!value)
          return value.takeError();
        values[constant.getResult()] = *value;
      } else if (auto node = dyn_cast<NodeOp>(op)) {
        Expected<Tensors> results = this->node(node);
        if (!results)
          return results.takeError();
        for (auto [result, value] : zip(node.getOutputs(), *results))
          values[result] = value;
      } else if (auto output = dyn_cast<OutputOp>(op)) {
        Tensors results;
        for (Value value : output.getValues())
          results.push_back(values.lookup(value));
        return results;
      }
    }
    return evaluationError("a graph without onnx.output");
  }

private:
  int64_t opset;
  Budget budget;

  Expected<Tensors> node(NodeOp node) {
    SmallVector<Tensor> inputs;
    for (Value input : node.getInputs())
      inputs.push_back(values.lookup(input));
    if (Error costly = budget.charge(node, inputs))
      return std::move(costly);
    if (node.getOpType() != "If" || node.getDomain())
      return evaluate(node, inputs, opset);
    if (inputs.size() != 1 || !inputs[0] || inputs[0].isFloat() ||
        inputs[0].count() != 1)
      return evaluationError(describe(node) +
                             ": its condition is not a boolean");
    StringRef taken = inputs[0].ints()[0] ? "then_branch" : "else_branch";
    ArrayAttr branches = node.getBranchesAttr();
    for (auto [name, body] :
         zip(branches ? branches.getValue() : ArrayRef<Attribute>(),
             node.getBodies()))
      if (cast<StringAttr>(name).getValue() == taken)
        return block(body.front());
    return evaluationError(describe(node) + ": it has no " + taken);
  }
};
} // namespace

Expected<Tensors> foresight::onnx::evaluate(GraphOp graph,
                                            ArrayRef<Tensor> inputs) {
  Run run(graph.getOpset());
  Block &block = graph.getBody().front();
  if (block.getNumArguments() != inputs.size())
    return evaluationError("the graph has " + Twine(block.getNumArguments()) +
                           " inputs, " + Twine(inputs.size()) + " given");
  for (auto [arg, value] : zip(block.getArguments(), inputs))
    run.values[arg] = value;
  return run.block(block);
}
