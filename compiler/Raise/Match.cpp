//===- Match.cpp - Formulas that rows of features are compared with -------===//

#include "Recogniser.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;
using onnx::Tensor;

/// Two ways to compute the same thing in f64 differ by less than this.
static constexpr double kExact = 1e-9;

/// How well constants of the graph are rounded to, so how far a formula with
/// exact constants may be off.
double Recogniser::precisionOf(const Tensor &tensor) const {
  Type element = tensor.element();
  return element.isF16() ? 2e-3 : element.isBF16() ? 2e-2 : 1e-6;
}

/// Features of a row, or -1 if the value does not consist of rows.
int64_t Recogniser::widthOf(const State &state) const {
  int64_t width = -1;
  for (auto [w, world] : llvm::enumerate(worlds)) {
    const Tensor &tensor = state.tensors[w];
    if (!tensor || !tensor.isFloat() || tensor.count() % world.rows())
      return -1;
    int64_t here = tensor.count() / world.rows();
    if (here < 2 || (width >= 0 && width != here))
      return -1;
    width = here;
  }
  return width;
}

/// Keeps the best formula within its tolerance, or remembers the nearest.
void Recogniser::offer(State &state, Candidate candidate) {
  if (candidate.error <= candidate.tolerance) {
    int index = addPart(std::move(candidate.part), state.tensors);
    become(state, index);
    return;
  }
  if (state.nearest.empty() || candidate.error < state.nearestError) {
    llvm::raw_string_ostream text(state.nearest);
    state.nearest.clear();
    text << candidate.what;
    if (std::isfinite(candidate.error))
      text << ", off by " << llvm::format("%.2g", candidate.error)
           << " of the largest value";
    state.nearestError = candidate.error;
  }
}

void Recogniser::match(onnx::NodeOp node, State &state) {
  SmallVector<int, 4> parts, scales, pasts;
  for (int leaf : state.leaves) {
    const Leaf &made = leaves[leaf];
    if (made.kind == Leaf::PartLeaf)
      parts.push_back(made.index);
    else if (made.kind == Leaf::VectorLeaf)
      scales.push_back(made.index);
    else if (inputs.roles[made.index] == Role::Past)
      pasts.push_back(made.index);
  }
  if (parts.size() == 1 && scales.empty() && matchLastRows(state, parts[0]))
    return;
  if (parts.empty() || parts.size() > 3 || widthOf(state) < 0)
    return;
  Location loc = node.getLoc();
  if (parts.size() == 1 && scales.empty())
    matchOne(state, parts[0], loc);
  else if (parts.size() == 1)
    matchVectors(state, parts[0], scales, loc);
  else if (parts.size() == 2)
    matchSum(state, parts[0], parts[1], scales, loc);
  else if (scales.empty())
    matchAttention(state, parts, pasts, loc);
  if (state.part >= 0 || parts.size() == 3 || !scales.empty())
    return;
  // One after the other, or those of each head together; rows that are still
  // cut into heads say how many there are.
  const int64_t width = widthOf(state);
  ArrayRef<int64_t> shape = state.tensors.front().shape();
  const int64_t heads =
      shape.size() > 2 && shape.back() > 0 && width % shape.back() == 0
          ? width / shape.back()
          : 1;
  for (int64_t together : {int64_t(1), heads}) {
    SmallVector<int, 4> roles = splitJoined(parts, width, together, loc);
    if (!roles.empty())
      matchAttention(state, roles, pasts, loc);
    if (state.part >= 0 || heads == 1)
      return;
  }
}

//===----------------------------------------------------------------------===//
// One part
//===----------------------------------------------------------------------===//

static double activate(Activation kind, double x) {
  switch (kind) {
  case Activation::None:
    return x;
  case Activation::Relu:
    return x > 0 ? x : 0;
  case Activation::Gelu:
    return 0.5 * x * (1 + std::erf(x * M_SQRT1_2));
  case Activation::GeluTanh:
    return 0.5 * x *
           (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

void Recogniser::matchOne(State &state, int x, Location loc) {
  const Part &base = program.parts[x];
  if (base.width != widthOf(state)) {
    matchSlice(state, x, loc);
    return;
  }
  auto value = [&](size_t w, int64_t row, int64_t column) {
    return data[x].worlds[w].floats()[row * base.width + column];
  };
  // The same rows in another shape or type.
  double error = difference(state, value);
  if (error == 0)
    return become(state, x);

  Candidate best{{}, std::numeric_limits<double>::infinity(), 0, ""};
  for (Activation kind :
       {Activation::Relu, Activation::Gelu, Activation::GeluTanh}) {
    Part part{.kind = Part::Kind::Activate, .width = base.width};
    part.operands = {x};
    part.activation = kind;
    part.locations = {loc};
    double off = difference(state, [&](size_t w, int64_t row, int64_t column) {
      return activate(kind, value(w, row, column));
    });
    if (off < best.error)
      best = {part, off,
              kind == Activation::Relu ? kExact
                                       : precisionOf(state.tensors.front()),
              ("activation " + stringifyActivation(kind)).str()};
    // Nothing is nearer; the others take long.
    if (best.error == 0)
      break;
  }
  offer(state, std::move(best));
  if (state.part < 0)
    matchVectors(state, x, {}, loc);
}

//===----------------------------------------------------------------------===//
// One part with vectors: bias and LayerNorm
//===----------------------------------------------------------------------===//

namespace {
struct Statistics {
  double mean = 0, variance = 0;
};
} // namespace

static Statistics statisticsOf(const double *row, int64_t width) {
  Statistics result;
  for (int64_t i = 0; i < width; ++i)
    result.mean += row[i] / width;
  for (int64_t i = 0; i < width; ++i)
    result.variance += (row[i] - result.mean) * (row[i] - result.mean) / width;
  return result;
}

/// A number as it was meant: what f32 or f16 made of 1e-05 is 1e-05 again.
static double undoRounding(double value, double precision) {
  char text[32];
  snprintf(text, sizeof text, "%.2g", value);
  double meant = std::strtod(text, nullptr);
  return std::abs(meant - value) <= precision * std::abs(value) ? meant : value;
}

/// The epsilon with which `state` would be LayerNorm of part `x`, from the
/// element of each row that says most; unset if they do not agree.
std::optional<double> Recogniser::solveEpsilon(const State &state, int x,
                                               int gamma, int beta) {
  int64_t width = program.parts[x].width;
  double sum = 0;
  int64_t count = 0;
  for (auto [w, world] : llvm::enumerate(worlds))
    for (int64_t row = 0; row < world.rows(); ++row) {
      if (!world.isReal(row))
        continue;
      const double *in = data[x].worlds[w].floats().data() + row * width;
      const double *out = state.tensors[w].floats().data() + row * width;
      Statistics s = statisticsOf(in, width);
      int64_t at = 0;
      auto numerator = [&](int64_t i) {
        return (in[i] - s.mean) * (gamma < 0 ? 1 : vectorData[gamma][i]);
      };
      for (int64_t i = 1; i < width; ++i)
        if (std::abs(numerator(i)) > std::abs(numerator(at)))
          at = i;
      double shift = beta < 0 ? 0 : vectorData[beta][at];
      double deviation = numerator(at) / (out[at] - shift);
      double epsilon = deviation * deviation - s.variance;
      if (deviation <= 0 || !(epsilon > -1e-9 && epsilon < 0.1))
        return std::nullopt;
      sum += epsilon;
      ++count;
    }
  return count ? std::optional(std::max(0.0, sum / count)) : std::nullopt;
}

void Recogniser::matchVectors(State &state, int x, ArrayRef<int> scales,
                              Location loc) {
  // A copy: adding parts moves them.
  const Part base = program.parts[x];
  int64_t width = base.width;
  if (width != widthOf(state) || scales.size() > 2)
    return;
  for (int vector : scales)
    if (static_cast<int64_t>(vectorData[vector].size()) != width)
      return;
  auto value = [&](size_t w, int64_t row, int64_t column) {
    return data[x].worlds[w].floats()[row * width + column];
  };

  bool takesBias =
      base.kind == Part::Kind::Linear || base.kind == Part::Kind::Norm;
  if (scales.size() == 1 && takesBias && !base.beta) {
    Part part = base;
    part.setBias(vectors[scales[0]].constant, vectors[scales[0]].elements);
    part.locations.push_back(loc);
    double error =
        difference(state, [&](size_t w, int64_t row, int64_t column) {
          return value(w, row, column) + vectorData[scales[0]][column];
        });
    offer(state,
          {part, error, kExact, "a bias on the " + nameOf(base.kind).str()});
    if (state.part >= 0)
      return;
  }
  // LayerNorm spelled out becomes a part before its scale is applied.
  if (scales.size() == 1 && base.kind == Part::Kind::Norm && !base.gamma &&
      !base.beta && !vectors[scales[0]].elements.size) {
    Part part = base;
    part.gamma = vectors[scales[0]].constant;
    part.locations.push_back(loc);
    double error =
        difference(state, [&](size_t w, int64_t row, int64_t column) {
          return value(w, row, column) * vectorData[scales[0]][column];
        });
    offer(state, {part, error, kExact, "LayerNorm"});
    if (state.part >= 0)
      return;
  }

  SmallVector<std::pair<int, int>> choices; // gamma, beta
  if (scales.empty())
    choices = {{-1, -1}};
  else if (scales.size() == 1)
    choices = {{scales[0], -1}, {-1, scales[0]}, {scales[0], scales[0]}};
  else
    choices = {{scales[0], scales[1]}, {scales[1], scales[0]}};
  for (auto [gamma, beta] : choices) {
    if (gamma >= 0 && vectors[gamma].elements.size)
      continue; // only biases are joined
    std::optional<double> epsilon = solveEpsilon(state, x, gamma, beta);
    if (!epsilon) {
      if (!scales.empty())
        offer(state, {{},
                      std::numeric_limits<double>::infinity(),
                      0,
                      "LayerNorm, which no epsilon makes it"});
      continue;
    }
    double error = 0;
    std::vector<Statistics> rows;
    size_t current = ~size_t(0);
    error = difference(
        state, [&, g = gamma, b = beta](size_t w, int64_t row, int64_t column) {
          if (w != current) {
            current = w;
            rows.clear();
            for (int64_t r = 0; r < worlds[w].rows(); ++r)
              rows.push_back(statisticsOf(
                  data[x].worlds[w].floats().data() + r * width, width));
          }
          double normal = (value(w, row, column) - rows[row].mean) /
                          std::sqrt(rows[row].variance + *epsilon);
          return normal * (g < 0 ? 1 : vectorData[g][column]) +
                 (b < 0 ? 0 : vectorData[b][column]);
        });
    Part part{.kind = Part::Kind::Norm, .width = width};
    part.operands = {x};
    if (gamma >= 0)
      part.gamma = vectors[gamma].constant;
    if (beta >= 0)
      part.setBias(vectors[beta].constant, vectors[beta].elements);
    part.number = undoRounding(*epsilon, precisionOf(state.tensors.front()));
    part.locations = {loc};
    offer(state, {part, error, kExact, "LayerNorm"});
    if (state.part >= 0)
      return;
  }
}

//===----------------------------------------------------------------------===//
// Two parts: the residual stream
//===----------------------------------------------------------------------===//

void Recogniser::matchSum(State &state, int a, int b, ArrayRef<int> scales,
                          Location loc) {
  int64_t width = widthOf(state);
  if (program.parts[a].width != width || program.parts[b].width != width ||
      scales.size() > 1)
    return;
  auto value = [&](int part, size_t w, int64_t row, int64_t column) {
    return data[part].worlds[w].floats()[row * width + column];
  };
  int bias = scales.empty() ? -1 : scales[0];
  if (bias >= 0 && static_cast<int64_t>(vectorData[bias].size()) != width)
    return;
  double error = difference(state, [&](size_t w, int64_t row, int64_t column) {
    return value(a, w, row, column) + value(b, w, row, column) +
           (bias < 0 ? 0 : vectorData[bias][column]);
  });
  Part sum{.kind = Part::Kind::Add, .width = width};
  sum.operands = {a, b};
  sum.locations = {loc};
  if (bias < 0 || error > kExact)
    return offer(state, {sum, error, kExact, "a sum of both"});

  // A bias that was added last belongs to the layer among the two.
  auto bare = [&](int part) {
    return program.parts[part].kind == Part::Kind::Linear &&
           !program.parts[part].beta;
  };
  if (bare(a) == bare(b))
    return;
  int &layer = bare(a) ? sum.operands[0] : sum.operands[1];
  Part biased = program.parts[layer];
  biased.setBias(vectors[bias].constant, vectors[bias].elements);
  std::vector<Tensor> tensors;
  for (const Tensor &tensor : data[layer].worlds) {
    tensors.push_back(tensor);
    std::vector<double> &values = tensors.back().writeFloats();
    for (size_t i = 0; i < values.size(); ++i)
      values[i] += vectorData[bias][i % width];
  }
  layer = addPart(std::move(biased), tensors);
  offer(state, {sum, error, kExact, "a sum of both"});
}
