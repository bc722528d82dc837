//===- MatchSlices.cpp - Some rows or features of a part ------------------===//

#include "Recogniser.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;
using onnx::Tensor;

/// The last `kept` rows of each sequence.
Tensor Recogniser::lastRows(const Tensor &all, size_t w, int64_t kept) const {
  const World &world = worlds[w];
  kept = std::min(kept, world.tokens);
  int64_t width = all.count() / world.rows();
  std::vector<double> rows;
  for (int64_t b = 0; b < world.batch; ++b) {
    auto end = all.floats().begin() + (b + 1) * world.tokens * width;
    rows.insert(rows.end(), end - kept * width, end);
  }
  return Tensor::ofFloats(all.element(), {world.batch, kept, width},
                          std::move(rows));
}

/// Graphs that were made to generate compute the head for a sequence's last
/// tokens alone, as a step here does.
bool Recogniser::matchLastRows(State &state, int x) {
  int64_t width = program.parts[x].width, kept = 0;
  bool all = true;
  if (width < 1)
    return false;
  for (auto [w, world] : llvm::enumerate(worlds)) {
    const Tensor &tensor = state.tensors[w];
    if (!tensor || !tensor.isFloat() || tensor.count() == 0 ||
        tensor.count() % (world.batch * width) || data[x].worlds.empty())
      return false;
    kept = std::max(kept, tensor.count() / (world.batch * width));
  }
  for (auto [w, world] : llvm::enumerate(worlds)) {
    const std::vector<double> &rows = state.tensors[w].floats();
    int64_t here = std::min(kept, world.tokens);
    all &= here == world.tokens;
    if (static_cast<int64_t>(rows.size()) != world.batch * here * width)
      return false;
    Tensor expected = lastRows(data[x].worlds[w], w, kept);
    for (int64_t row = 0; row < world.batch * here; ++row) {
      int64_t b = row / here, t = world.tokens - here + row % here;
      if (world.isReal(b * world.tokens + t) &&
          !std::equal(rows.begin() + row * width,
                      rows.begin() + (row + 1) * width,
                      expected.floats().begin() + row * width))
        return false;
    }
  }
  if (all)
    return false; // nothing was left out
  become(state, x);
  state.kept = kept;
  return true;
}

static ArrayRef<double> rowOf(const Tensor &tensor, int64_t row,
                              int64_t width) {
  return ArrayRef(tensor.floats()).slice(row * width, width);
}

/// Where `some` numbers may lie among `all`: in runs of equal length and
/// distance. The caller compares the other rows.
static std::optional<Slice> findSlice(ArrayRef<double> all,
                                      ArrayRef<double> some) {
  const int64_t whole = all.size(), size = some.size();
  Slice slice{std::find(all.begin(), all.end(), some[0]) - all.begin(), size};
  int64_t run = 0;
  while (run < size && slice.first + run < whole &&
         all[slice.first + run] == some[run])
    ++run;
  if (run == size)
    return slice;
  if (run == 0 || size % run)
    return std::nullopt;
  auto next = std::find(all.begin() + slice.first + run, all.end(), some[run]);
  slice.run = run;
  slice.step = next - all.begin() - slice.first;
  if (slice.index(size - 1) >= whole)
    return std::nullopt;
  return slice;
}

/// Some features of a linear layer: query, key or value of a layer that was
/// joined from the three.
bool Recogniser::matchSlice(State &state, int x, Location loc) {
  // A copy: adding parts moves them.
  const Part base = program.parts[x];
  int64_t width = widthOf(state);
  if (base.kind != Part::Kind::Linear || width > base.width || base.rows.run)
    return false;
  auto value = [&](size_t w, int64_t row, int64_t column) {
    return data[x].worlds[w].floats()[row * base.width + column];
  };
  const World &world = worlds.front();
  int64_t real = 0;
  while (!world.isReal(real))
    ++real;
  std::optional<Slice> slice =
      findSlice(rowOf(data[x].worlds.front(), real, base.width),
                rowOf(state.tensors.front(), real, width));
  if (!slice || difference(state, [&](size_t w, int64_t row, int64_t column) {
                  return value(w, row, slice->index(column));
                }) != 0)
    return false;
  become(state, addSlice(x, *slice, state.tensors, loc));
  return true;
}

/// Some features of linear layer `x` as a layer. `x` is all of a matrix, or
/// rows of it that lie together.
int Recogniser::addSlice(int x, Slice features, ArrayRef<Tensor> tensors,
                         Location loc) {
  Part slice = program.parts[x];
  slice.width = features.size;
  auto within = [&](const Slice &outer) {
    Slice inner = features;
    inner.first = outer.index(features.first);
    return inner;
  };
  slice.rows = within(slice.rows);
  if (slice.beta)
    slice.bias = within(slice.bias);
  slice.locations.push_back(loc);
  return addPart(std::move(slice), tensors);
}

/// Query, key and value of attention that is `width` wide, of which some may
/// come from one linear layer: a graph that moves heads to the front before it
/// takes the three apart has no value that is one of them. They lie one after
/// the other in each of `heads` groups of features. Empty if `parts` do not
/// come to three.
SmallVector<int, 4> Recogniser::splitJoined(ArrayRef<int> parts, int64_t width,
                                            int64_t heads, Location loc) {
  int64_t total = 0;
  for (int x : parts) {
    const Part &part = program.parts[x];
    if (part.width % width || data[x].worlds.empty() ||
        (part.width != width &&
         (part.kind != Part::Kind::Linear || part.rows.run)))
      return {};
    total += part.width / width;
  }
  SmallVector<int, 4> result;
  if (total != 3)
    return result;
  const int64_t run = width / heads;
  for (int x : parts) {
    const int64_t whole = program.parts[x].width, count = whole / width;
    if (count == 1)
      result.push_back(x);
    for (int64_t i = 0; i < count && count > 1; ++i) {
      Slice features{i * run, width};
      if (heads > 1) {
        features.run = run;
        features.step = count * run;
      }
      std::vector<Tensor> tensors;
      for (auto [w, world] : llvm::enumerate(worlds)) {
        const Tensor &all = data[x].worlds[w];
        std::vector<double> some;
        for (int64_t row = 0; row < world.rows(); ++row) {
          ArrayRef<double> from = rowOf(all, row, whole);
          for (int64_t column = 0; column < width; ++column)
            some.push_back(from[features.index(column)]);
        }
        tensors.push_back(Tensor::ofFloats(all.element(), {world.rows(), width},
                                           std::move(some)));
      }
      result.push_back(addSlice(x, features, tensors, loc));
    }
  }
  return result;
}

/// Some elements of a vector, such as one bias of several that were joined, are
/// a vector of their own.
void Recogniser::sliceVector(State &state) {
  Vector whole = vectors[leaves[state.leaves[0]].index];
  const std::vector<double> &all = vectorData[leaves[state.leaves[0]].index];
  const Tensor &tensor = state.tensors.front();
  if (!tensor.isFloat() || tensor.count() >= static_cast<int64_t>(all.size()) ||
      tensor.count() < 2 || !roomForVector(tensor.count()) ||
      llvm::any_of(state.tensors, [&](const Tensor &other) {
        return !other.isFloat() || other.floats() != tensor.floats();
      }))
    return;
  std::vector<double> some = tensor.floats();
  auto at = std::search(all.begin(), all.end(), some.begin(), some.end());
  if (at == all.end())
    return;
  whole.elements.first += at - all.begin();
  whole.elements.size = tensor.count();
  state.vector = addVector(whole, std::move(some));
  setLeaves(state, {addLeaf({Leaf::VectorLeaf, state.vector})});
}
