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

/// Some features of a linear layer: query, key or value of a layer that was
/// joined from the three.
bool Recogniser::matchSlice(State &state, int x, Location loc) {
  // A copy: adding parts moves them.
  const Part base = program.parts[x];
  int64_t width = widthOf(state);
  if (base.kind != Part::Kind::Linear || width > base.width)
    return false;
  auto value = [&](size_t w, int64_t row, int64_t column) {
    return data[x].worlds[w].floats()[row * base.width + column];
  };
  const World &world = worlds.front();
  int64_t real = 0, first = 0;
  while (!world.isReal(real))
    ++real;
  const std::vector<double> &rows = state.tensors.front().floats();
  while (first + width <= base.width &&
         value(0, real, first) != rows[real * width])
    ++first;
  if (first + width > base.width ||
      difference(state, [&](size_t w, int64_t row, int64_t column) {
        return value(w, row, first + column);
      }) != 0)
    return false;
  become(state, addSlice(x, first, width, state.tensors, loc));
  return true;
}

/// `width` features of linear layer `x` from `first` on, as a layer.
int Recogniser::addSlice(int x, int64_t first, int64_t width,
                         ArrayRef<Tensor> tensors, Location loc) {
  Part slice = program.parts[x];
  slice.width = width;
  slice.rows = {slice.rows.first + first, width};
  if (slice.beta)
    slice.bias = {slice.bias.first + first, width};
  slice.locations.push_back(loc);
  return addPart(std::move(slice), tensors);
}

/// Query, key and value of attention that is `width` wide, of which some may
/// come from one linear layer: a graph that moves heads to the front before it
/// takes the three apart has no value that is one of them. Empty if `parts` do
/// not come to three.
SmallVector<int, 4> Recogniser::splitJoined(ArrayRef<int> parts, int64_t width,
                                            Location loc) {
  int64_t total = 0;
  for (int x : parts) {
    const Part &part = program.parts[x];
    if (part.width % width || data[x].worlds.empty() ||
        (part.width != width && part.kind != Part::Kind::Linear))
      return {};
    total += part.width / width;
  }
  SmallVector<int, 4> result;
  if (total != 3)
    return result;
  for (int x : parts) {
    int64_t whole = program.parts[x].width;
    for (int64_t first = 0; first < whole && whole > width; first += width) {
      std::vector<Tensor> tensors;
      for (auto [w, world] : llvm::enumerate(worlds)) {
        const std::vector<double> &all = data[x].worlds[w].floats();
        std::vector<double> some;
        for (int64_t row = 0; row < world.rows(); ++row) {
          auto begin = all.begin() + row * whole + first;
          some.insert(some.end(), begin, begin + width);
        }
        tensors.push_back(Tensor::ofFloats(data[x].worlds[w].element(),
                                           {world.rows(), width},
                                           std::move(some)));
      }
      result.push_back(addSlice(x, first, width, tensors, loc));
    }
    if (whole == width)
      result.push_back(x);
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
