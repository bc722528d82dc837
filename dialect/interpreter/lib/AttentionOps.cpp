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

/// The sequence of row t: one for all rows, or one a row.
FailureOr<int64_t> sequenceOf(Operation *op, const Ids *sequences, size_t t,
                              const KvCache &cache) {
  if (!sequences)
    return 0;
  const int64_t sequence = sequences->values.size() == 1 ? sequences->values[0]
                                                         : sequences->values[t];
  if (sequence >= 0 && sequence < cache.sequences)
    return sequence;
  return op->emitOpError() << "is of sequence " << sequence
                           << " of a cache that holds " << cache.sequences;
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
  const Ids *sequences = scope.idsOrNull(op.getSequences());
  Type element = cast<KvCacheType>(op.getCache().getType()).getElementType();
  for (int64_t t = 0; t < keys.rows; ++t) {
    const int64_t position = positions.values[t];
    FailureOr<int64_t> sequence = sequenceOf(op, sequences, t, cache);
    if (failed(checkPosition(op, position, cache.capacity)) || failed(sequence))
      return failure();
    for (int64_t h = 0; h < cache.heads; ++h)
      for (int64_t j = 0; j < cache.headDim; ++j) {
        const int64_t to = cache.offset(*sequence, h, position) + j;
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
  const Ids *sequences = scope.idsOrNull(op.getSequences());
  const IndexSets *heads = scope.setsOrNull(op.getHeads());
  const IndexSets *tokens = scope.setsOrNull(op.getTokens());
  const double scale = op.getScale().convertToDouble();

  Matrix result(query.rows, query.columns);
  std::vector<double> weights;
  std::vector<int64_t> attended;
  for (int64_t t = 0; t < query.rows; ++t) {
    const int64_t last = positions.values[t];
    FailureOr<int64_t> sequence = sequenceOf(op, sequences, t, cache);
    if (failed(checkPosition(op, last, cache.capacity)) || failed(sequence))
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
                   cache.keys[cache.offset(*sequence, h, s) + j];
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
              weights[n] / sum *
              cache.values[cache.offset(*sequence, h, attended[n]) + j];
    }
  }
  return Data(std::move(result));
}
