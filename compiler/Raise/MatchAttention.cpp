//===- MatchAttention.cpp - Attention by what it computes -----------------===//
//
// Where a token sees exactly two, its result lies between their values, and
// how far along says how the two scores differ. That gives the roles of the
// three operands, the number of heads and the scale, whatever the graph looks
// like; the mask is then a question of which tokens every row sees.
//
//===----------------------------------------------------------------------===//

#include "Recogniser.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;
using onnx::Tensor;

/// Below this scale all tokens weigh the same to within rounding, so nothing
/// tells the query from the key.
static constexpr double kSmallestScale = 1e-6;

/// Key or value of one head at a place in the history.
const double *Recogniser::history(size_t w, int part, int past,
                                  int64_t sequence, int64_t place, int64_t head,
                                  int64_t heads) const {
  const World &world = worlds[w];
  int64_t width = program.parts[part].width, size = width / heads;
  if (place >= world.past) {
    int64_t row = sequence * world.tokens + place - world.past;
    return data[part].worlds[w].floats().data() + row * width + head * size;
  }
  const Tensor &cache = inputData[past][w];
  return cache.floats().data() +
         ((sequence * heads + head) * world.past + place) * size;
}

/// Scale from the row of a world that sees two tokens; unset if these roles
/// cannot explain it.
std::optional<double> Recogniser::solveScale(const State &state,
                                             const Roles &roles) {
  size_t w = 0;
  int64_t row = -1;
  for (auto [i, world] : llvm::enumerate(worlds)) {
    for (int64_t r = 0; r < world.rows(); ++r)
      // The last world is the one whose result does not depend on the mask.
      if (world.isReal(r) && world.position(r) == 1) {
        w = i;
        row = r;
      }
  }
  if (row < 0)
    return std::nullopt;
  const World &world = worlds[w];
  int64_t width = program.parts[roles.query].width;
  int64_t size = width / roles.heads, sequence = world.sequence(row);
  int64_t second = world.place(row), first = second - 1;
  std::optional<double> scale;
  double best = 0;
  SmallVector<std::pair<double, double>> equations; // logit, score difference
  for (int64_t h = 0; h < roles.heads; ++h) {
    auto at = [&](int part, int past, int64_t place) {
      return history(w, part, past, sequence, place, h, roles.heads);
    };
    const double *v0 = at(roles.value, roles.pastValue, first);
    const double *v1 = at(roles.value, roles.pastValue, second);
    const double *k0 = at(roles.key, roles.pastKey, first);
    const double *k1 = at(roles.key, roles.pastKey, second);
    const double *q =
        data[roles.query].worlds[w].floats().data() + row * width + h * size;
    const double *out =
        state.tensors[w].floats().data() + row * width + h * size;
    double along = 0, length = 0, scores = 0;
    for (int64_t i = 0; i < size; ++i) {
      along += (out[i] - v1[i]) * (v0[i] - v1[i]);
      length += (v0[i] - v1[i]) * (v0[i] - v1[i]);
      scores += q[i] * (k0[i] - k1[i]);
    }
    double share = along / length;
    for (int64_t i = 0; i < size; ++i)
      if (!(std::abs(out[i] - v1[i] - share * (v0[i] - v1[i])) <=
            1e-7 * (std::abs(v0[i]) + std::abs(v1[i]) + 1e-3)))
        return std::nullopt;
    if (!(share > 1e-9 && share < 1 - 1e-9))
      continue; // too sharp to say how sharp
    double logit = std::log(share / (1 - share));
    equations.push_back({logit, scores});
    if (std::abs(scores) > best) {
      best = std::abs(scores);
      scale = logit / scores;
    }
  }
  if (!scale || !(*scale > kSmallestScale))
    return std::nullopt;
  for (auto [logit, scores] : equations)
    if (!(std::abs(logit - *scale * scores) <= 1e-5 * (1 + std::abs(logit))))
      return std::nullopt;
  return scale;
}

/// How far `state` is from attention with these roles where each row sees what
/// `sight` says.
double Recogniser::attentionError(const State &state, const Roles &roles,
                                  double scale, Sight sight,
                                  bool singleTokensOnly) const {
  int64_t width = program.parts[roles.query].width;
  int64_t size = width / roles.heads;
  bool causal = sight == Sight::Causal || sight == Sight::NoPadding;
  bool padding = sight == Sight::Causal || sight == Sight::NoCausalMask;
  double most = 0, largest = 1e-300;
  for (auto [w, world] : llvm::enumerate(worlds)) {
    if (singleTokensOnly && world.tokens != 1)
      continue;
    for (int64_t row = 0; row < world.rows(); ++row) {
      if (!world.isReal(row))
        continue;
      int64_t sequence = world.sequence(row);
      int64_t begin = padding ? world.pads[sequence] : 0;
      int64_t end = causal ? world.place(row) + 1 : world.history();
      for (int64_t h = 0; h < roles.heads; ++h) {
        const double *q = data[roles.query].worlds[w].floats().data() +
                          row * width + h * size;
        std::vector<double> weights;
        double highest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t s = begin; s < end; ++s) {
          const double *k =
              history(w, roles.key, roles.pastKey, sequence, s, h, roles.heads);
          double score = 0;
          for (int64_t i = 0; i < size; ++i)
            score += q[i] * k[i];
          weights.push_back(score * scale);
          highest = std::max(highest, weights.back());
        }
        for (double &weight : weights)
          sum += weight = std::exp(weight - highest);
        for (int64_t i = 0; i < size; ++i) {
          double mixed = 0;
          for (int64_t s = begin; s < end; ++s)
            mixed += weights[s - begin] / sum *
                     history(w, roles.value, roles.pastValue, sequence, s, h,
                             roles.heads)[i];
          double value = state.tensors[w].floats()[row * width + h * size + i];
          double off = std::abs(value - mixed);
          if (!(off <= std::numeric_limits<double>::max()))
            return std::numeric_limits<double>::infinity();
          most = std::max(most, off);
          largest = std::max(largest, std::abs(value));
        }
      }
    }
  }
  return most / largest;
}

void Recogniser::matchAttention(State &state, ArrayRef<int> parts,
                                ArrayRef<int> pasts, Location loc) {
  int64_t width = widthOf(state);
  for (int part : parts)
    if (program.parts[part].width != width)
      return;
  if (!pasts.empty() && pasts.size() != 2)
    return;

  SmallVector<int64_t> headCounts;
  if (!pasts.empty()) {
    auto shapeOf = [&](int past) {
      return cast<RankedTensorType>(
                 graph.getBody().front().getArgument(past).getType())
          .getShape();
    };
    for (int past : pasts)
      if (shapeOf(past)[1] * shapeOf(past)[3] != width ||
          shapeOf(past)[1] != shapeOf(pasts[0])[1])
        return;
    headCounts = {shapeOf(pasts[0])[1]};
  } else {
    for (int64_t heads = 1; heads <= width; ++heads)
      if (width % heads == 0)
        headCounts.push_back(heads);
  }
  SmallVector<std::pair<int, int>> caches = {{-1, -1}};
  if (!pasts.empty())
    caches = {{pasts[0], pasts[1]}, {pasts[1], pasts[0]}};
  else if (inputs.hasPast)
    return; // attention that does not see the cache

  constexpr double kTolerance = 1e-7;
  static constexpr int kOrders[6][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1},
                                        {2, 0, 1}, {1, 2, 0}, {2, 1, 0}};
  for (auto [pastKey, pastValue] : caches)
    for (const int *order : kOrders)
      for (int64_t heads : headCounts) {
        Roles roles{parts[order[0]], parts[order[1]], parts[order[2]],
                    pastKey,         pastValue,       heads};
        std::optional<double> scale = solveScale(state, roles);
        if (!scale)
          continue;
        const int64_t headSize = width / heads;
        double meant = 1 / std::sqrt(static_cast<double>(headSize));
        // The query may have been scaled in fewer bits than the result has.
        double precision =
            std::max(precisionOf(state.tensors.front()),
                     precisionOf(data[roles.query].worlds.front()));
        Part part{.kind = Part::Kind::Attention, .width = width};
        part.operands = {roles.query, roles.key, roles.value};
        part.heads = heads;
        part.number =
            std::abs(*scale - meant) <= precision * meant ? meant : *scale;
        part.pastKey = pastKey;
        part.pastValue = pastValue;
        part.locations = {loc};
        double error = attentionError(state, roles, *scale, Sight::Causal);
        if (error <= kTolerance) {
          offer(state, {part, error, kTolerance, ""});
          return;
        }
        // Exporters that traced a step of one token left the causal mask out;
        // for such steps the graph is right, and a longer step means the same
        // as several of them.
        bool blind = attentionError(state, roles, *scale,
                                    Sight::NoCausalMask) <= kTolerance;
        if (blind && inputs.hasPast &&
            attentionError(state, roles, *scale, Sight::Causal,
                           /*singleTokensOnly=*/true) <= kTolerance) {
          if (!repaired && !options.quiet)
            emitWarning(loc)
                << "node '" << onnx::nameOf(loc)
                << "': attention has no causal mask, as if the graph was "
                   "traced with one "
                   "token; it is right for one token a step, and is compiled "
                   "as causal attention";
          repaired = true;
          offer(state, {part, 0, kTolerance, ""});
          return;
        }
        std::string what =
            "causal attention of " + std::to_string(heads) + " heads";
        if (blind)
          what += " (it has no causal mask: tokens see later ones)";
        else if (attentionError(state, roles, *scale, Sight::NoPadding) <=
                 kTolerance)
          what += " (it does not heed the attention mask: padding is seen)";
        else if (attentionError(state, roles, *scale, Sight::Everything) <=
                 kTolerance)
          what += " (it has no mask: tokens see padding and later ones)";
        offer(state, {part, error, kTolerance, what});
      }
  offer(state, {{},
                std::numeric_limits<double>::infinity(),
                0,
                "attention, which no choice of query, key, value, heads and "
                "scale makes it"});
}
