//===- AttentionOps.cpp - KV caches and attention -------------------------===//

#include "Evaluate.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;

namespace {

LogicalResult checkPosition(Operation *op, int64_t position, int64_t capacity) {
  if (position >= 0 && position < capacity)
    return success();
  return op->emitOpError() << "is at position " << position
                           << " of a cache with room for " << capacity
                           << " tokens";
}

bool contains(const std::vector<int32_t> &set, int64_t member) {
  return std::binary_search(set.begin(), set.end(), member);
}

} // namespace

FailureOr<Data> interpreter::evaluate(KvAppendOp op, const Scope &scope) {
  KvCache cache = scope.cache(op.getCache());
  const Matrix &keys = scope.matrix(op.getKeys());
  const Matrix &values = scope.matrix(op.getValues());
  const Ids &positions = scope.ids(op.getPositions());
  Type element = cast<KvCacheType>(op.getCache().getType()).getElementType();
  for (int64_t t = 0; t < keys.rows; ++t) {
    const int64_t position = positions.values[t];
    if (failed(checkPosition(op, position, cache.capacity)))
      return failure();
    for (int64_t h = 0; h < cache.heads; ++h)
      for (int64_t j = 0; j < cache.headDim; ++j) {
        const int64_t to = cache.offset(h, position) + j;
        const int64_t from = h * cache.headDim + j;
        cache.keys[to] = roundTo(element, keys.at(t, from));
        cache.values[to] = roundTo(element, values.at(t, from));
      }
  }
  return Data(std::move(cache));
}

FailureOr<Data> interpreter::evaluate(AttentionOp op, const Scope &scope) {
  const Matrix &query = scope.matrix(op.getQuery());
  const KvCache &cache = scope.cache(op.getCache());
  const Ids &positions = scope.ids(op.getPositions());
  const IndexSets *heads = scope.setsOrNull(op.getHeads());
  const IndexSets *tokens = scope.setsOrNull(op.getTokens());
  const double scale = op.getScale().convertToDouble();

  Matrix result(query.rows, query.columns);
  std::vector<double> weights;
  std::vector<int64_t> attended;
  for (int64_t t = 0; t < query.rows; ++t) {
    const int64_t last = positions.values[t];
    if (failed(checkPosition(op, last, cache.capacity)))
      return failure();
    attended.clear();
    for (int64_t s = 0; s <= last; ++s)
      if (!tokens || s == last || contains(tokens->rows[t], s))
        attended.push_back(s);
    for (int64_t h = 0; h < cache.heads; ++h) {
      if (heads && !contains(heads->rows[t], h))
        continue;
      weights.clear();
      double largest = -HUGE_VAL, sum = 0;
      for (int64_t s : attended) {
        double score = 0;
        for (int64_t j = 0; j < cache.headDim; ++j)
          score += query.at(t, h * cache.headDim + j) *
                   cache.keys[cache.offset(h, s) + j];
        weights.push_back(scale * score);
        largest = std::max(largest, weights.back());
      }
      for (double &w : weights) {
        w = std::exp(w - largest);
        sum += w;
      }
      for (size_t n = 0; n < attended.size(); ++n)
        for (int64_t j = 0; j < cache.headDim; ++j)
          result.at(t, h * cache.headDim + j) +=
              weights[n] / sum * cache.values[cache.offset(h, attended[n]) + j];
    }
  }
  return Data(std::move(result));
}
