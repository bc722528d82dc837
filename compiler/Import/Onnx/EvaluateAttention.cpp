//===- EvaluateAttention.cpp - Operators that are attention as a whole ----===//

#include "EvaluateNode.h"

#include <cmath>
#include <limits>

using namespace llvm;
using namespace mlir;
using namespace foresight::onnx;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Exchanges the two axes in the middle: [a, b, c, d] as [a, c, b, d].
Tensor exchanged(const Tensor &x) {
  int64_t a = x.dim(0), b = x.dim(1), c = x.dim(2), d = x.dim(3);
  std::vector<double> values(x.floats().size());
  for (int64_t i = 0; i < a; ++i)
    for (int64_t j = 0; j < b; ++j)
      for (int64_t k = 0; k < c; ++k)
        std::copy_n(x.floats().begin() + ((i * b + j) * c + k) * d, d,
                    values.begin() + ((i * c + k) * b + j) * d);
  return Tensor::ofFloats(x.element(), {a, c, b, d}, std::move(values));
}

/// [batch, tokens, heads * size] as [batch, heads, tokens, size].
Expected<Tensor> splitHeads(const Tensor &x, int64_t heads) {
  if (heads < 1 || x.dim(2) % heads)
    return evaluationError(Twine(x.dim(2)) + " features cannot be " +
                           Twine(heads) + " heads");
  return exchanged(x.reshaped({x.dim(0), x.dim(1), heads, x.dim(2) / heads}));
}

/// Keys or values of the cache with those of new tokens after them.
Expected<Tensor> appended(const Tensor &past, const Tensor &now) {
  if (!past.isFloat() || past.rank() != 4 || past.dim(0) != now.dim(0) ||
      past.dim(1) != now.dim(1) || past.dim(3) != now.dim(3))
    return evaluationError("a cache of shape " + toString(past.shape()) +
                           " for keys or values of " + toString(now.shape()));
  Shape shape = now.shape();
  shape[2] += past.dim(2);
  if (Error large = checkSize(shape))
    return std::move(large);
  std::vector<double> values;
  int64_t before = past.dim(2) * past.dim(3), after = now.dim(2) * now.dim(3);
  for (int64_t i = 0; i < now.dim(0) * now.dim(1); ++i) {
    auto from = past.floats().begin() + i * before;
    values.insert(values.end(), from, from + before);
    from = now.floats().begin() + i * after;
    values.insert(values.end(), from, from + after);
  }
  return Tensor::ofFloats(now.element(), shape, std::move(values));
}

/// Attention of heads, [batch, heads, tokens, size].
struct Attention {
  Tensor query, key, value;
  double scale = 1;
  /// Whether query i sees keys up to `offset` + i only.
  bool causal = false;
  int64_t offset = 0;
  /// Added to the scores, after broadcasting.
  SmallVector<Tensor, 2> biases = {};

  Expected<Tensor> compute() const;
};

Expected<Tensor> Attention::compute() const {
  int64_t batch = query.dim(0), heads = query.dim(1), tokens = query.dim(2);
  int64_t size = query.dim(3), seen = key.dim(2);
  if (key.dim(1) != heads || value.dim(1) != heads)
    return evaluationError(Twine(heads) + " heads of queries, " +
                           Twine(key.dim(1)) + " of keys and " +
                           Twine(value.dim(1)) +
                           " of values; OPT has as many of each");
  if (key.dim(0) != batch || value.dim(0) != batch || key.dim(3) != size ||
      value.dim(2) != seen)
    return evaluationError("queries of " + toString(query.shape()) +
                           ", keys of " + toString(key.shape()) +
                           " and values of " + toString(value.shape()) +
                           " do not belong together");
  Shape shape = {batch, heads, tokens, seen};
  int64_t width = value.dim(3);
  if (Error large = checkSize(shape))
    return std::move(large);
  if (Error large = checkSize({batch, heads, tokens, width}))
    return std::move(large);
  Tensor scores(query.element(), shape);
  std::vector<double> &weights = scores.writeFloats();
  for (const Tensor &bias : biases) {
    Expected<Shape> wide = broadcast(bias.shape(), shape);
    if (!wide)
      return wide.takeError();
    // A mask of one key is not said to be one of all.
    if (*wide != shape || bias.rank() == 0 || bias.dim(bias.rank() - 1) != seen)
      return evaluationError("a mask of shape " + toString(bias.shape()) +
                             " for scores of " + toString(shape));
    std::vector<int64_t> from = broadcastIndices(bias.shape(), shape);
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] += bias.floats()[from[i]];
  }
  Tensor result(query.element(), {batch, heads, tokens, width});
  std::vector<double> &out = result.writeFloats();
  for (int64_t row = 0; row < batch * heads * tokens; ++row) {
    int64_t head = row / tokens;
    const double *q = query.floats().data() + row * size;
    const double *k = key.floats().data() + head * seen * size;
    const double *v = value.floats().data() + head * seen * width;
    double *weight = weights.data() + row * seen;
    double most = -kInfinity, sum = 0;
    for (int64_t s = 0; s < seen; ++s) {
      double product = 0;
      for (int64_t i = 0; i < size; ++i)
        product += q[i] * k[s * size + i];
      weight[s] += scale * product;
      if (causal && s > offset + row % tokens)
        weight[s] = -kInfinity;
      most = std::max(most, weight[s]);
    }
    if (most == -kInfinity)
      continue; // a row that sees nothing is zero
    for (int64_t s = 0; s < seen; ++s)
      sum += weight[s] = std::exp(weight[s] - most);
    for (int64_t s = 0; s < seen; ++s)
      for (int64_t i = 0; i < width; ++i)
        out[row * width + i] += weight[s] / sum * v[s * width + i];
  }
  result.saturate();
  return result;
}

/// A mask as what is added to scores.
Tensor asBias(const Tensor &mask, Type element, double masked) {
  if (mask.isFloat())
    return mask;
  Tensor bias(element, mask.shape());
  for (int64_t i = 0; i < mask.count(); ++i)
    bias.writeFloats()[i] = mask.ints()[i] ? 0 : masked;
  return bias;
}

Error checkFloats(const NodeView &n, int64_t lowest, int64_t highest) {
  for (size_t i = 0; i < 3; ++i)
    if (!n[i].isFloat() || n[i].rank() < lowest || n[i].rank() > highest ||
        n[i].rank() != n[0].rank())
      return evaluationError("input " + Twine(i) + " has shape " +
                             toString(n[i].shape()) +
                             ", which is not supported");
  return Error::success();
}

/// `Attention` of opset 23 and newer.
Evaluated attention(const NodeView &n) {
  if (Error bad = checkFloats(n, 3, 4))
    return std::move(bad);
  if (n.real("softcap", 0) != 0)
    return evaluationError("its softcap is " +
                           std::to_string(n.real("softcap", 0)) +
                           "; OPT has none");
  for (const char *window : {"left_window_size", "right_window_size"})
    if (n.integer(window, -1) != -1)
      return evaluationError("it sees a window of tokens (" + Twine(window) +
                             "), which no OPT model does");
  if (n.has(6))
    return evaluationError("its input nonpad_kv_seqlen is not supported; "
                           "export with an attention mask");
  Attention a;
  a.query = n[0];
  a.key = n[1];
  a.value = n[2];
  bool flat = n[0].rank() == 3;
  if (flat) {
    int64_t heads[] = {n.integer("q_num_heads", 0),
                       n.integer("kv_num_heads", 0),
                       n.integer("kv_num_heads", 0)};
    Tensor *to[] = {&a.query, &a.key, &a.value};
    for (int i = 0; i < 3; ++i) {
      Expected<Tensor> split = splitHeads(*to[i], heads[i]);
      if (!split)
        return split.takeError();
      *to[i] = *split;
    }
  }
  a.scale = n.real("scale", 1 / std::sqrt(static_cast<double>(a.query.dim(3))));
  if (n.has(4) != n.has(5))
    return evaluationError("it has a cache of keys or of values, not of both");
  if (n.has(4)) {
    Expected<Tensor> keys = appended(n[4], a.key);
    if (!keys)
      return keys.takeError();
    Expected<Tensor> values = appended(n[5], a.value);
    if (!values)
      return values.takeError();
    a.key = *keys;
    a.value = *values;
    a.offset = n[4].dim(2);
  }
  a.causal = n.integer("is_causal", 0) != 0;
  if (n.has(3))
    a.biases.push_back(asBias(n[3], a.query.element(), -kInfinity));
  Expected<Tensor> mixed = a.compute();
  if (!mixed)
    return mixed.takeError();
  Tensor result = *mixed;
  if (flat) {
    result = exchanged(result);
    result = result.reshaped(
        {result.dim(0), result.dim(1), result.dim(2) * result.dim(3)});
  }
  return Tensors{result, a.key, a.value};
}

/// ONNX Runtime's `MultiHeadAttention`. Its bias has been made nodes of its own
/// (ExpandFused.cpp).
Evaluated multiHeadAttention(const NodeView &n) {
  if (n.size() < 3 || !n.has(1) || !n.has(2) || n[0].rank() != 3)
    return evaluationError("packed queries, keys and values are not supported");
  if (n.has(3))
    return evaluationError("its bias is not a constant vector");
  int64_t heads = n.integer("num_heads", 0);
  Attention a;
  Tensor *to[] = {&a.query, &a.key, &a.value};
  for (size_t i = 0; i < 3; ++i) {
    if (!n[i].isFloat() || n[i].rank() < 3 || n[i].rank() > 4)
      return evaluationError("input " + Twine(i) + " has shape " +
                             toString(n[i].shape()));
    if (n[i].rank() == 4) {
      *to[i] = n[i]; // keys and values may come by heads already
      continue;
    }
    Expected<Tensor> split = splitHeads(n[i], heads);
    if (!split)
      return split.takeError();
    *to[i] = *split;
  }
  // A scale of 0 stands for none.
  a.scale = n.real("scale", 0);
  if (a.scale == 0)
    a.scale = 1 / std::sqrt(static_cast<double>(a.query.dim(3)));
  for (size_t i = 8; i < n.size(); ++i)
    if (n.has(i))
      return evaluationError("input " + Twine(i) +
                             ", for a cache of fixed size, is not supported");
  if (n.has(6) != n.has(7))
    return evaluationError("it has a cache of keys or of values, not of both");
  if (n.has(6)) {
    Expected<Tensor> keys = appended(n[6], a.key);
    if (!keys)
      return keys.takeError();
    Expected<Tensor> values = appended(n[7], a.value);
    if (!values)
      return values.takeError();
    a.key = *keys;
    a.value = *values;
    a.offset = n[6].dim(2);
  }
  a.causal = n.integer("unidirectional", 0) != 0;
  if (n.has(4)) {
    // [batch, tokens] or [batch, queries, tokens], 1 where a token is seen.
    Tensor mask = n[4];
    if (mask.isFloat() || mask.rank() < 2 || mask.rank() > 3)
      return evaluationError("a mask of shape " + toString(mask.shape()) +
                             " is not supported");
    mask = mask.reshaped({mask.dim(0), 1, mask.rank() == 3 ? mask.dim(1) : 1,
                          mask.dim(mask.rank() - 1)});
    a.biases.push_back(
        asBias(mask, a.query.element(), n.real("mask_filter_value", -10000)));
  }
  if (n.has(5)) {
    if (!n[5].isFloat())
      return evaluationError("an attention bias of integers");
    a.biases.push_back(n[5]);
  }
  Expected<Tensor> mixed = a.compute();
  if (!mixed)
    return mixed.takeError();
  Tensor result = exchanged(*mixed);
  return Tensors{result.reshaped({result.dim(0), result.dim(1),
                                  result.dim(2) * result.dim(3)}),
                 a.key, a.value};
}

} // namespace

void foresight::onnx::addAttentionOperators(OperatorTable &t) {
  t["Attention"] = {attention, 3};
  t["com.microsoft.MultiHeadAttention"] = {multiHeadAttention, 1};
}
