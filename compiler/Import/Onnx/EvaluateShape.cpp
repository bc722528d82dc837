//===- EvaluateShape.cpp - Operators on shapes ----------------------------===//

#include "EvaluateNode.h"

#include <algorithm>
#include <cmath>

using namespace llvm;
using namespace mlir;
using namespace foresight::onnx;

namespace {

/// A new tensor of `shape` whose element i is element `from[i]` of `x`.
Tensor pick(const Tensor &x, ArrayRef<int64_t> shape, ArrayRef<int64_t> from) {
  Tensor result(x.element(), shape);
  if (x.isFloat()) {
    std::vector<double> &out = result.writeFloats();
    for (size_t i = 0; i < from.size(); ++i)
      out[i] = x.floats()[from[i]];
  } else {
    std::vector<int64_t> &out = result.writeInts();
    for (size_t i = 0; i < from.size(); ++i)
      out[i] = x.ints()[from[i]];
  }
  return result;
}

Tensor shapeTensor(const NodeView &n, ArrayRef<int64_t> shape) {
  return Tensor::ofInts(IntegerType::get(n.node.getContext(), 64),
                        {static_cast<int64_t>(shape.size())},
                        std::vector<int64_t>(shape.begin(), shape.end()));
}

/// Steps in memory between neighbours along each axis.
Shape stridesOf(ArrayRef<int64_t> shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= shape[i])
    strides[i] = stride;
  return strides;
}

/// Indices of all elements of a box: `base` plus steps along each axis.
std::vector<int64_t> boxIndices(ArrayRef<int64_t> shape,
                                ArrayRef<int64_t> steps, int64_t base) {
  std::vector<int64_t> result(static_cast<size_t>(countOf(shape)));
  Shape at(shape.size(), 0);
  int64_t index = base;
  for (int64_t &slot : result) {
    slot = index;
    for (size_t d = shape.size(); d-- > 0;) {
      index += steps[d];
      if (++at[d] < shape[d])
        break;
      index -= steps[d] * shape[d];
      at[d] = 0;
    }
  }
  return result;
}

Evaluated shapeOf(const NodeView &n) {
  int64_t rank = n[0].rank();
  auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  int64_t start = clamp(n.integer("start", 0));
  int64_t end = clamp(n.integer("end", rank));
  return one(shapeTensor(
      n,
      ArrayRef(n[0].shape()).slice(start, std::max<int64_t>(end - start, 0))));
}

Evaluated sizeOf(const NodeView &n) {
  return one(Tensor::ofInts(IntegerType::get(n.node.getContext(), 64), {},
                            {n[0].count()}));
}

Evaluated reshape(const NodeView &n) {
  auto wanted = n.integers("shape", 1);
  if (!wanted)
    return evaluationError("its shape is not known");
  bool zeroIsZero = n.integer("allowzero", 0) != 0;
  Shape shape;
  int64_t known = 1, open = -1;
  for (auto [i, size] : enumerate(*wanted)) {
    int64_t actual = size;
    if (size == 0 && !zeroIsZero) {
      if (static_cast<int64_t>(i) >= n[0].rank())
        return evaluationError("size 0 copies a dimension that is not there");
      actual = n[0].dim(i);
    }
    if (size == -1) {
      if (open >= 0)
        return evaluationError("two sizes of -1");
      open = i;
      actual = 1;
    } else if (size < -1) {
      return evaluationError("a size of " + Twine(size));
    }
    shape.push_back(actual);
    known = times(known, actual);
  }
  if (open >= 0)
    shape[open] = known == 0 ? 0 : n[0].count() / known;
  if (countOf(shape) != n[0].count())
    return evaluationError("shape " + toString(n[0].shape()) +
                           " cannot become " + toString(*wanted));
  return one(n[0].reshaped(shape));
}

Evaluated flatten(const NodeView &n) {
  int64_t axis = n.integer("axis", 1);
  axis =
      std::clamp<int64_t>(axis < 0 ? axis + n[0].rank() : axis, 0, n[0].rank());
  int64_t rows = countOf(ArrayRef(n[0].shape()).take_front(axis));
  int64_t columns = countOf(ArrayRef(n[0].shape()).drop_front(axis));
  return one(n[0].reshaped({rows, columns}));
}

Evaluated squeeze(const NodeView &n) {
  auto axes = n.integers("axes", 1);
  SmallVector<bool> dropped(n[0].rank(), false);
  if (axes)
    for (int64_t axis : *axes) {
      Expected<int64_t> at = normalizedAxis(axis, n[0].rank());
      if (!at)
        return at.takeError();
      if (n[0].dim(*at) != 1)
        return evaluationError("axis " + Twine(axis) + " of shape " +
                               toString(n[0].shape()) + " is not 1");
      dropped[*at] = true;
    }
  Shape shape;
  for (int64_t i = 0; i < n[0].rank(); ++i)
    if (axes ? !dropped[i] : n[0].dim(i) != 1)
      shape.push_back(n[0].dim(i));
  return one(n[0].reshaped(shape));
}

Evaluated unsqueeze(const NodeView &n) {
  auto axes = n.integers("axes", 1);
  if (!axes)
    return evaluationError("its axes are not known");
  int64_t rank = n[0].rank() + static_cast<int64_t>(axes->size());
  SmallVector<bool> added(rank, false);
  for (int64_t axis : *axes) {
    Expected<int64_t> at = normalizedAxis(axis, rank);
    if (!at)
      return at.takeError();
    if (added[*at])
      return evaluationError("axis " + Twine(axis) + " is added twice");
    added[*at] = true;
  }
  Shape shape;
  size_t next = 0;
  for (int64_t i = 0; i < rank; ++i)
    shape.push_back(added[i] ? 1 : n[0].dim(next++));
  return one(n[0].reshaped(shape));
}

Evaluated expand(const NodeView &n) {
  auto wanted = n.integers("shape", 1);
  if (!wanted)
    return evaluationError("its shape is not known");
  Expected<Shape> shape = broadcast(n[0].shape(), *wanted);
  if (!shape)
    return shape.takeError();
  if (Error large = checkSize(*shape))
    return std::move(large);
  return one(pick(n[0], *shape, broadcastIndices(n[0].shape(), *shape)));
}

Evaluated transpose(const NodeView &n) {
  const Tensor &x = n[0];
  SmallVector<int64_t> order;
  if (auto given = n.integers("perm", ~size_t(0)))
    order = *given;
  else
    for (int64_t i = x.rank(); i-- > 0;)
      order.push_back(i);
  SmallVector<bool> seen(x.rank(), false);
  Shape shape, steps, strides = stridesOf(x.shape());
  for (int64_t from : order) {
    if (from < 0 || from >= x.rank() || seen[from])
      return evaluationError("perm is not a permutation");
    seen[from] = true;
    shape.push_back(x.dim(from));
    steps.push_back(strides[from]);
  }
  if (static_cast<int64_t>(order.size()) != x.rank())
    return evaluationError("perm has " + Twine(order.size()) +
                           " axes, the input " + Twine(x.rank()));
  return one(pick(x, shape, boxIndices(shape, steps, 0)));
}

Evaluated concat(const NodeView &n) {
  Expected<int64_t> axis = normalizedAxis(n.integer("axis", 0), n[0].rank());
  if (!axis)
    return axis.takeError();
  Shape shape = n[0].shape();
  shape[*axis] = 0;
  for (const Tensor &x : n.inputs) {
    if (!x || x.rank() != n[0].rank() || x.isFloat() != n[0].isFloat())
      return evaluationError("inputs of different kinds");
    for (int64_t i = 0; i < x.rank(); ++i)
      if (i != *axis && x.dim(i) != n[0].dim(i))
        return evaluationError("shapes " + toString(n[0].shape()) + " and " +
                               toString(x.shape()) + " do not fit");
    shape[*axis] += x.dim(*axis);
  }
  if (Error large = checkSize(shape))
    return std::move(large);
  Tensor result(n[0].element(), shape);
  int64_t inner = countOf(ArrayRef(shape).drop_front(*axis + 1));
  int64_t outer = countOf(ArrayRef(shape).take_front(*axis));
  int64_t at = 0;
  for (const Tensor &x : n.inputs) {
    int64_t block = x.dim(*axis) * inner;
    auto copy = [&](auto &out, const auto &in) {
      for (int64_t o = 0; o < outer; ++o)
        std::copy_n(in.begin() + o * block, block,
                    out.begin() + o * shape[*axis] * inner + at);
    };
    if (x.isFloat())
      copy(result.writeFloats(), x.floats());
    else
      copy(result.writeInts(), x.ints());
    at += block;
  }
  return one(result);
}

Evaluated slice(const NodeView &n) {
  const Tensor &x = n[0];
  auto starts = n.integers("starts", 1), ends = n.integers("ends", 2);
  auto axes = n.integers("axes", 3), steps = n.integers("steps", 4);
  if (!starts || !ends || starts->size() != ends->size())
    return evaluationError("its starts and ends are not known");
  Shape shape = x.shape(), strides = stridesOf(x.shape()), stride = strides;
  SmallVector<bool> sliced(x.rank(), false);
  int64_t base = 0;
  for (size_t i = 0; i < starts->size(); ++i) {
    if ((axes && i >= axes->size()) || (steps && i >= steps->size()))
      return evaluationError("too few axes or steps");
    Expected<int64_t> axis =
        normalizedAxis(axes ? (*axes)[i] : static_cast<int64_t>(i), x.rank());
    if (!axis)
      return axis.takeError();
    int64_t size = x.dim(*axis), step = steps ? (*steps)[i] : 1;
    if (step == 0)
      return evaluationError("a step of 0");
    if (sliced[*axis])
      return evaluationError("axis " + Twine(*axis) + " is sliced twice");
    sliced[*axis] = true;
    // A step beyond the size takes one element, however far it would go.
    step = std::clamp(step, -size - 1, size + 1);
    int64_t lowest = step > 0 ? 0 : -1;
    int64_t highest = step > 0 ? size : size - 1;
    auto clamp = [&](int64_t at) {
      return std::clamp(at < 0 ? at + size : at, lowest, highest);
    };
    int64_t start = clamp((*starts)[i]);
    // A negative end beyond the front is "to the front" when stepping back.
    int64_t end = clamp((*ends)[i]);
    int64_t span = step > 0 ? end - start : start - end;
    int64_t magnitude = step > 0 ? step : -step;
    shape[*axis] = span <= 0 ? 0 : (span + magnitude - 1) / magnitude;
    base += start * strides[*axis];
    stride[*axis] = strides[*axis] * step;
  }
  if (countOf(shape) == 0)
    return one(Tensor(x.element(), shape));
  return one(pick(x, shape, boxIndices(shape, stride, base)));
}

Evaluated split(const NodeView &n) {
  const Tensor &x = n[0];
  Expected<int64_t> axis = normalizedAxis(n.integer("axis", 0), x.rank());
  if (!axis)
    return axis.takeError();
  int64_t parts = static_cast<int64_t>(n.node.getNumResults());
  if (parts == 0)
    return evaluationError("it has no outputs");
  SmallVector<int64_t> sizes;
  if (auto given = n.integers("split", 1)) {
    sizes = *given;
  } else {
    int64_t each = (x.dim(*axis) + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(std::clamp<int64_t>(x.dim(*axis) - i * each, 0, each));
  }
  int64_t sum = 0;
  for (int64_t size : sizes)
    sum = size < 0 || size > x.dim(*axis) ? -1 : sum < 0 ? -1 : sum + size;
  if (static_cast<int64_t>(sizes.size()) != parts || sum != x.dim(*axis))
    return evaluationError("its parts do not add up");
  Tensors results;
  Shape strides = stridesOf(x.shape());
  int64_t at = 0;
  for (int64_t size : sizes) {
    Shape shape = x.shape();
    shape[*axis] = size;
    results.push_back(
        pick(x, shape, boxIndices(shape, strides, at * strides[*axis])));
    at += size;
  }
  return results;
}

Evaluated tile(const NodeView &n) {
  const Tensor &x = n[0];
  auto repeats = n.integers("repeats", 1);
  if (!repeats || static_cast<int64_t>(repeats->size()) != x.rank())
    return evaluationError("its repeats are not known");
  // Repeating an axis is broadcasting a new axis before it.
  Shape from, to, shape;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if ((*repeats)[i] < 0)
      return evaluationError("a negative repeat");
    from.append({1, x.dim(i)});
    to.append({(*repeats)[i], x.dim(i)});
    shape.push_back(times((*repeats)[i], x.dim(i)));
  }
  if (Error large = checkSize(shape))
    return std::move(large);
  return one(pick(x, shape, broadcastIndices(from, to)));
}

Evaluated range(const NodeView &n) {
  for (size_t i = 0; i < 3; ++i)
    if (n[i].count() != 1 || n[i].isFloat() != n[0].isFloat())
      return evaluationError("its limits are not single numbers of one type");
  double start = n[0].number(0), limit = n[1].number(0), step = n[2].number(0);
  if (step == 0)
    return evaluationError("a step of 0");
  double length = std::max(0.0, std::ceil((limit - start) / step));
  if (Error large = checkSize({toInteger(length)}))
    return std::move(large);
  Tensor result(n[0].element(), {static_cast<int64_t>(length)});
  for (int64_t i = 0; i < result.count(); ++i)
    if (result.isFloat())
      result.writeFloats()[i] = start + static_cast<double>(i) * step;
    else
      result.writeInts()[i] = plus(n[0].ints()[0], product(i, n[2].ints()[0]));
  return one(result);
}

Evaluated constantOfShape(const NodeView &n) {
  auto shape = n.integers("shape", 0);
  if (!shape)
    return evaluationError("its shape is not known");
  if (Error large = checkSize(*shape))
    return std::move(large);
  if (!n.param("value"))
    return one(Tensor(Float32Type::get(n.node.getContext()), *shape));
  auto dense = dyn_cast<DenseElementsAttr>(n.param("value"));
  if (!dense || dense.getNumElements() != 1)
    return evaluationError("its value is not a single number");
  Tensor value = fromDense(dense);
  return one(pick(value, *shape,
                  std::vector<int64_t>(static_cast<size_t>(countOf(*shape)))));
}

} // namespace

void foresight::onnx::addShapeOperators(OperatorTable &t) {
  t["Shape"] = {shapeOf, 1};
  t["Size"] = {sizeOf, 1};
  t["Reshape"] = {reshape, 1};
  t["Flatten"] = {flatten, 1};
  t["Squeeze"] = {squeeze, 1};
  t["Unsqueeze"] = {unsqueeze, 1};
  t["Expand"] = {expand, 1};
  t["Transpose"] = {transpose, 1};
  t["Concat"] = {concat, 1};
  t["Slice"] = {slice, 1};
  t["Split"] = {split, 1};
  t["Tile"] = {tile, 2};
  t["Range"] = {range, 3};
  t["ConstantOfShape"] = {constantOfShape, 1};
}
