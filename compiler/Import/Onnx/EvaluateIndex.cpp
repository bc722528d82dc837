//===- EvaluateIndex.cpp - Operators that look elements up ----------------===//

#include "EvaluateNode.h"

using namespace llvm;
using namespace mlir;
using namespace foresight::onnx;

namespace {

/// Copies `block` elements for each of `from`, element by element numbers.
Tensor pickBlocks(const Tensor &x, ArrayRef<int64_t> shape,
                  ArrayRef<int64_t> from, int64_t block) {
  Tensor result(x.element(), shape);
  auto copy = [&](auto &out, const auto &in) {
    for (size_t i = 0; i < from.size(); ++i)
      std::copy_n(in.begin() + from[i], block,
                  out.begin() + static_cast<int64_t>(i) * block);
  };
  if (x.isFloat())
    copy(result.writeFloats(), x.floats());
  else
    copy(result.writeInts(), x.ints());
  return result;
}

/// `index` counted from the front, or an error.
Expected<int64_t> checkedIndex(int64_t index, int64_t size) {
  int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size)
    return evaluationError("index " + Twine(index) + " of " + Twine(size) +
                           " elements");
  return at;
}

Evaluated gather(const NodeView &n) {
  const Tensor &x = n[0], &indices = n[1];
  if (indices.isFloat())
    return evaluationError("indices must be integers");
  Expected<int64_t> axis = normalizedAxis(n.integer("axis", 0), x.rank());
  if (!axis)
    return axis.takeError();
  ArrayRef<int64_t> before = ArrayRef(x.shape()).take_front(*axis);
  ArrayRef<int64_t> after = ArrayRef(x.shape()).drop_front(*axis + 1);
  int64_t block = countOf(after), size = x.dim(*axis);
  Shape shape(before);
  shape.append(indices.shape().begin(), indices.shape().end());
  shape.append(after.begin(), after.end());
  if (Error large = checkSize(shape))
    return std::move(large);
  std::vector<int64_t> from;
  for (int64_t o = 0; o < countOf(before); ++o)
    for (int64_t index : indices.ints()) {
      Expected<int64_t> at = checkedIndex(index, size);
      if (!at)
        return at.takeError();
      from.push_back((o * size + *at) * block);
    }
  return one(pickBlocks(x, shape, from, block));
}

Evaluated gatherElements(const NodeView &n) {
  const Tensor &x = n[0], &indices = n[1];
  Expected<int64_t> axis = normalizedAxis(n.integer("axis", 0), x.rank());
  if (!axis)
    return axis.takeError();
  if (indices.isFloat() || indices.rank() != x.rank())
    return evaluationError("indices must be integers of the input's rank");
  std::vector<int64_t> from;
  Shape at(x.rank(), 0);
  for (int64_t index : indices.ints()) {
    Expected<int64_t> found = checkedIndex(index, x.dim(*axis));
    if (!found)
      return found.takeError();
    int64_t flat = 0;
    for (int64_t d = 0; d < x.rank(); ++d) {
      if (d != *axis && at[d] >= x.dim(d))
        return evaluationError("indices are larger than the input");
      flat = flat * x.dim(d) + (d == *axis ? *found : at[d]);
    }
    from.push_back(flat);
    for (int64_t d = x.rank(); d-- > 0;) {
      if (++at[d] < indices.dim(d))
        break;
      at[d] = 0;
    }
  }
  return one(pickBlocks(x, indices.shape(), from, 1));
}

/// Where each index tuple of `indices` points in a tensor of `shape`; after
/// `batch` leading dimensions that both share.
Expected<std::vector<int64_t>> tuples(const Tensor &indices,
                                      ArrayRef<int64_t> shape, int64_t batch) {
  if (indices.isFloat() || indices.rank() <= batch)
    return evaluationError("indices must be integers");
  for (int64_t i = 0; i < batch; ++i)
    if (indices.dim(i) != shape[i])
      return evaluationError("batches of " + Twine(indices.dim(i)) + " and " +
                             Twine(shape[i]));
  int64_t width = indices.dim(indices.rank() - 1);
  if (width + batch > static_cast<int64_t>(shape.size()))
    return evaluationError("index tuples are longer than the input's rank");
  int64_t block = countOf(shape.drop_front(batch + width));
  int64_t perBatch =
      countOf(ArrayRef(indices.shape()).drop_front(batch).drop_back());
  std::vector<int64_t> result;
  int64_t total = countOf(ArrayRef(indices.shape()).drop_back());
  for (int64_t i = 0; i < total; ++i) {
    int64_t flat = perBatch ? i / perBatch : 0;
    for (int64_t k = 0; k < width; ++k) {
      Expected<int64_t> at =
          checkedIndex(indices.ints()[i * width + k], shape[batch + k]);
      if (!at)
        return at.takeError();
      flat = flat * shape[batch + k] + *at;
    }
    result.push_back(flat * block);
  }
  return result;
}

Evaluated gatherNd(const NodeView &n) {
  const Tensor &x = n[0], &indices = n[1];
  int64_t batch = n.integer("batch_dims", 0);
  if (batch < 0 || batch >= std::min(x.rank(), indices.rank()))
    return evaluationError("batch_dims " + Twine(batch));
  Expected<std::vector<int64_t>> from = tuples(indices, x.shape(), batch);
  if (!from)
    return from.takeError();
  int64_t width = indices.dim(indices.rank() - 1);
  ArrayRef<int64_t> after = ArrayRef(x.shape()).drop_front(batch + width);
  Shape shape(ArrayRef(indices.shape()).drop_back());
  shape.append(after.begin(), after.end());
  if (Error large = checkSize(shape))
    return std::move(large);
  return one(pickBlocks(x, shape, *from, countOf(after)));
}

Evaluated scatterNd(const NodeView &n) {
  const Tensor &x = n[0], &indices = n[1], &updates = n[2];
  StringRef reduction = n.text("reduction", "none");
  if (reduction != "none" && reduction != "add")
    return evaluationError("reduction '" + reduction + "'");
  if (x.isFloat() != updates.isFloat())
    return evaluationError("updates of another kind");
  Expected<std::vector<int64_t>> to = tuples(indices, x.shape(), 0);
  if (!to)
    return to.takeError();
  int64_t block =
      countOf(ArrayRef(x.shape()).drop_front(indices.dim(indices.rank() - 1)));
  if (updates.count() != static_cast<int64_t>(to->size()) * block)
    return evaluationError("updates of shape " + toString(updates.shape()));
  Tensor result = x;
  auto write = [&](auto &out, const auto &in) {
    for (size_t i = 0; i < to->size(); ++i)
      for (int64_t k = 0; k < block; ++k) {
        auto value = in[static_cast<int64_t>(i) * block + k];
        auto &slot = out[(*to)[i] + k];
        slot = reduction == "add" ? plus(slot, value) : value;
      }
  };
  if (x.isFloat())
    write(result.writeFloats(), updates.floats());
  else
    write(result.writeInts(), updates.ints());
  return one(result);
}

Evaluated trilu(const NodeView &n) {
  Tensor result = n[0];
  if (result.rank() < 2)
    return evaluationError("needs a matrix");
  bool upper = n.integer("upper", 1) != 0;
  int64_t k = 0;
  if (n.has(1)) {
    if (n[1].isFloat() || n[1].count() != 1)
      return evaluationError("its diagonal is not a single integer");
    k = n[1].ints()[0];
  }
  int64_t rows = result.dim(result.rank() - 2);
  int64_t columns = result.dim(result.rank() - 1);
  k = std::clamp(k, -rows - columns, rows + columns);
  auto cut = [&](auto &data) {
    for (size_t i = 0; i < data.size(); ++i) {
      int64_t column = static_cast<int64_t>(i) % columns;
      int64_t row = static_cast<int64_t>(i) / columns % rows;
      if (upper ? column < row + k : column > row + k)
        data[i] = 0;
    }
  };
  if (result.isFloat())
    cut(result.writeFloats());
  else
    cut(result.writeInts());
  return one(result);
}

} // namespace

void foresight::onnx::addIndexOperators(OperatorTable &t) {
  t["Gather"] = {gather, 2};
  t["GatherElements"] = {gatherElements, 2};
  t["GatherND"] = {gatherNd, 2};
  t["ScatterND"] = {scatterNd, 3};
  t["Trilu"] = {trilu, 1};
}
