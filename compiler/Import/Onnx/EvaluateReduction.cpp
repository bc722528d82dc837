//===- EvaluateReduction.cpp - Operators that add up ----------------------===//

#include "EvaluateNode.h"

#include <cmath>

using namespace llvm;
using namespace mlir;
using namespace foresight::onnx;

namespace {

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Evaluated matMul(const NodeView &n) {
  Tensor a = n[0], b = n[1];
  if (!a.isFloat() || !b.isFloat() || a.rank() == 0 || b.rank() == 0)
    return evaluationError("needs two float tensors");
  bool rowVector = a.rank() == 1, columnVector = b.rank() == 1;
  if (rowVector)
    a = a.reshaped({1, a.dim(0)});
  if (columnVector)
    b = b.reshaped({b.dim(0), 1});
  int64_t rows = a.dim(a.rank() - 2), inner = a.dim(a.rank() - 1);
  int64_t columns = b.dim(b.rank() - 1);
  if (b.dim(b.rank() - 2) != inner)
    return evaluationError("shapes " + toString(n[0].shape()) + " and " +
                           toString(n[1].shape()) + " have no product");
  ArrayRef<int64_t> outerA = ArrayRef(a.shape()).drop_back(2);
  ArrayRef<int64_t> outerB = ArrayRef(b.shape()).drop_back(2);
  Expected<Shape> outer = broadcast(outerA, outerB);
  if (!outer)
    return outer.takeError();
  Shape shape = *outer;
  if (!rowVector)
    shape.push_back(rows);
  if (!columnVector)
    shape.push_back(columns);
  if (Error large = checkSize(shape))
    return std::move(large);
  std::vector<int64_t> ia = broadcastIndices(outerA, *outer);
  std::vector<int64_t> ib = broadcastIndices(outerB, *outer);
  Tensor result(a.element(), shape);
  double *out = result.writeFloats().data();
  for (size_t m = 0; m < ia.size(); ++m) {
    const double *x = a.floats().data() + ia[m] * rows * inner;
    const double *y = b.floats().data() + ib[m] * inner * columns;
    for (int64_t r = 0; r < rows; ++r, out += columns)
      for (int64_t k = 0; k < inner; ++k) {
        double factor = x[r * inner + k];
        for (int64_t c = 0; c < columns; ++c)
          out[c] += factor * y[k * columns + c];
      }
  }
  result.saturate();
  return one(result);
}

/// The last two axes exchanged.
Tensor turned(const Tensor &x) {
  Shape shape = x.shape();
  int64_t rows = x.dim(x.rank() - 2), columns = x.dim(x.rank() - 1);
  std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
  Tensor result(x.element(), shape);
  std::vector<double> &out = result.writeFloats();
  for (int64_t i = 0; i < x.count(); ++i) {
    int64_t row = i / columns % rows, column = i % columns;
    out[i - row * columns - column + column * rows + row] = x.floats()[i];
  }
  return result;
}

/// ONNX Runtime's `FusedMatMul`.
Evaluated fusedMatMul(const NodeView &n) {
  if (n.integer("transBatchA", 0) || n.integer("transBatchB", 0))
    return evaluationError("transposed batches are not supported");
  SmallVector<Tensor, 2> operands = {n[0], n[1]};
  for (size_t i : {0, 1}) {
    if (!n.integer(i == 0 ? "transA" : "transB", 0))
      continue;
    if (!operands[i].isFloat() || operands[i].rank() < 2)
      return evaluationError("needs two float matrices");
    operands[i] = turned(operands[i]);
  }
  Evaluated product = matMul({n.node, operands, n.opset});
  if (!product)
    return product;
  for (double &value : product->front().writeFloats())
    value *= n.real("alpha", 1);
  product->front().saturate();
  return product;
}

Evaluated gemm(const NodeView &n) {
  const Tensor &a = n[0], &b = n[1];
  if (!a.isFloat() || !b.isFloat() || a.rank() != 2 || b.rank() != 2)
    return evaluationError("needs two float matrices");
  bool ta = n.integer("transA", 0) != 0, tb = n.integer("transB", 0) != 0;
  int64_t rows = a.dim(ta), inner = a.dim(!ta), columns = b.dim(!tb);
  if (b.dim(tb) != inner)
    return evaluationError("shapes " + toString(a.shape()) + " and " +
                           toString(b.shape()) + " have no product");
  double alpha = n.real("alpha", 1), beta = n.real("beta", 1);
  if (Error large = checkSize({rows, columns}))
    return std::move(large);
  if (n.has(2) && !n[2].isFloat())
    return evaluationError("adds integers");
  Tensor result(a.element(), {rows, columns});
  std::vector<int64_t> ic;
  if (n.has(2)) {
    Expected<Shape> shape = broadcast(n[2].shape(), result.shape());
    if (!shape)
      return shape.takeError();
    if (*shape != result.shape())
      return evaluationError("the added tensor has shape " +
                             toString(n[2].shape()));
    ic = broadcastIndices(n[2].shape(), result.shape());
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k)
        sum += a.floats()[ta ? k * rows + r : r * inner + k] *
               b.floats()[tb ? c * inner + k : k * columns + c];
      double added = n.has(2) ? beta * n[2].floats()[ic[r * columns + c]] : 0.0;
      result.writeFloats()[r * columns + c] = alpha * sum + added;
    }
  result.saturate();
  return one(result);
}

//===----------------------------------------------------------------------===//
// Along axes
//===----------------------------------------------------------------------===//

enum class Reduce { Mean, Sum, Max, Min, Prod };

template <Reduce kind> Evaluated reduce(const NodeView &n) {
  const Tensor &x = n[0];
  auto axes = n.integers("axes", 1);
  if ((!axes || axes->empty()) && n.integer("noop_with_empty_axes", 0))
    return one(x);
  SmallVector<bool> reduced(x.rank(), !axes || axes->empty());
  if (axes)
    for (int64_t axis : *axes) {
      Expected<int64_t> at = normalizedAxis(axis, x.rank());
      if (!at)
        return at.takeError();
      reduced[*at] = true;
    }
  bool keep = n.integer("keepdims", 1) != 0;
  Shape kept, shape;
  int64_t terms = 1;
  for (int64_t i = 0; i < x.rank(); ++i) {
    kept.push_back(reduced[i] ? 1 : x.dim(i));
    if (!reduced[i] || keep)
      shape.push_back(kept.back());
    if (reduced[i])
      terms *= x.dim(i);
  }
  if (terms == 0)
    return evaluationError("reduces nothing");
  Tensor result(x.element(), shape);
  std::vector<int64_t> to = broadcastIndices(kept, x.shape());
  std::vector<bool> begun(static_cast<size_t>(result.count()));
  auto accumulate = [&](auto &out, const auto &in) {
    for (size_t i = 0; i < in.size(); ++i) {
      auto &slot = out[to[i]];
      if (!begun[to[i]])
        slot = in[i];
      else if (kind == Reduce::Max)
        slot = std::max(slot, in[i]);
      else if (kind == Reduce::Min)
        slot = std::min(slot, in[i]);
      else if (kind == Reduce::Prod)
        slot = product(slot, in[i]);
      else
        slot = plus(slot, in[i]);
      begun[to[i]] = true;
    }
    if (kind == Reduce::Mean)
      for (auto &slot : out)
        slot /= terms;
  };
  if (x.isFloat())
    accumulate(result.writeFloats(), x.floats());
  else
    accumulate(result.writeInts(), x.ints());
  result.saturate();
  return one(result);
}

Evaluated softmax(const NodeView &n) {
  const Tensor &x = n[0];
  if (!x.isFloat())
    return evaluationError("integers are not supported");
  // Before opset 13 everything from the axis on was one row.
  bool rowed = n.opset < 13;
  Expected<int64_t> axis =
      normalizedAxis(n.integer("axis", rowed ? 1 : -1), x.rank());
  if (!axis)
    return axis.takeError();
  int64_t length = x.dim(*axis), stride = 1;
  for (int64_t i = *axis + 1; i < x.rank(); ++i)
    (rowed ? length : stride) *= x.dim(i);
  Tensor result(x.element(), x.shape());
  if (result.count() == 0)
    return one(result);
  const std::vector<double> &in = x.floats();
  std::vector<double> &out = result.writeFloats();
  int64_t groups = x.count() / (length * stride);
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t s = 0; s < stride; ++s) {
      int64_t base = g * length * stride + s;
      double most = in[base], sum = 0;
      for (int64_t i = 1; i < length; ++i)
        most = std::max(most, in[base + i * stride]);
      for (int64_t i = 0; i < length; ++i)
        sum += out[base + i * stride] = std::exp(in[base + i * stride] - most);
      for (int64_t i = 0; i < length; ++i)
        out[base + i * stride] /= sum;
    }
  return one(result);
}

Evaluated layerNormalization(const NodeView &n) {
  const Tensor &x = n[0];
  if (!x.isFloat())
    return evaluationError("integers are not supported");
  Expected<int64_t> axis = normalizedAxis(n.integer("axis", -1), x.rank());
  if (!axis)
    return axis.takeError();
  double epsilon = n.real("epsilon", 1e-5);
  Shape inner(x.shape().begin() + *axis, x.shape().end());
  int64_t width = countOf(inner), rows = width ? x.count() / width : 0;
  auto wide = [&](size_t i) -> Expected<std::vector<int64_t>> {
    if (!n[i].isFloat())
      return evaluationError("a scale of integers");
    Expected<Shape> shape = broadcast(n[i].shape(), inner);
    if (!shape)
      return shape.takeError();
    if (*shape != inner)
      return evaluationError("a scale of shape " + toString(n[i].shape()));
    return broadcastIndices(n[i].shape(), inner);
  };
  std::vector<int64_t> scale, shift;
  for (size_t i : {1, 2}) {
    if (!n.has(i))
      continue;
    Expected<std::vector<int64_t>> indices = wide(i);
    if (!indices)
      return indices.takeError();
    (i == 1 ? scale : shift) = *indices;
  }
  Shape outer(x.shape().begin(), x.shape().begin() + *axis);
  outer.append(inner.size(), 1);
  Tensor result(x.element(), x.shape()), means(x.element(), outer),
      inverses(x.element(), outer);
  for (int64_t r = 0; r < rows; ++r) {
    const double *in = x.floats().data() + r * width;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i)
      mean += in[i] / width;
    for (int64_t i = 0; i < width; ++i)
      variance += (in[i] - mean) * (in[i] - mean) / width;
    double inverse = 1 / std::sqrt(variance + epsilon);
    means.writeFloats()[r] = mean;
    inverses.writeFloats()[r] = inverse;
    for (int64_t i = 0; i < width; ++i) {
      double value = (in[i] - mean) * inverse;
      if (n.has(1))
        value *= n[1].floats()[scale[i]];
      if (n.has(2))
        value += n[2].floats()[shift[i]];
      result.writeFloats()[r * width + i] = value;
    }
  }
  return Tensors{result, means, inverses};
}

Evaluated cumSum(const NodeView &n) {
  Expected<int64_t> axis = normalizedAxis(
      n[1].isFloat() || n[1].count() != 1 ? 0 : n[1].ints()[0], n[0].rank());
  if (!axis)
    return axis.takeError();
  bool exclusive = n.integer("exclusive", 0), reverse = n.integer("reverse", 0);
  Tensor result = n[0];
  int64_t length = result.dim(*axis), stride = 1;
  for (int64_t i = *axis + 1; i < result.rank(); ++i)
    stride *= result.dim(i);
  auto run = [&](auto &data) {
    if (data.empty())
      return;
    int64_t groups = static_cast<int64_t>(data.size()) / (length * stride);
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t s = 0; s < stride; ++s) {
        std::decay_t<decltype(data[0])> sum = 0;
        for (int64_t i = 0; i < length; ++i) {
          int64_t at = reverse ? length - 1 - i : i;
          auto &slot = data[(g * length + at) * stride + s];
          auto value = slot;
          slot = exclusive ? sum : plus(sum, value);
          sum = plus(sum, value);
        }
      }
  };
  if (result.isFloat())
    run(result.writeFloats());
  else
    run(result.writeInts());
  return one(result);
}

} // namespace

void foresight::onnx::addReductionOperators(OperatorTable &t) {
  t["MatMul"] = {matMul, 2};
  t["Gemm"] = {gemm, 2};
  t["com.microsoft.FusedMatMul"] = {fusedMatMul, 2};
  t["ReduceMean"] = {reduce<Reduce::Mean>, 1};
  t["ReduceSum"] = {reduce<Reduce::Sum>, 1};
  t["ReduceMax"] = {reduce<Reduce::Max>, 1};
  t["ReduceMin"] = {reduce<Reduce::Min>, 1};
  t["ReduceProd"] = {reduce<Reduce::Prod>, 1};
  t["Softmax"] = {softmax, 1};
  t["LayerNormalization"] = {layerNormalization, 1};
  t["CumSum"] = {cumSum, 2};
}
