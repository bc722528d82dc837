//===- AttentionOps.cpp - Verifiers ---------------------------------------===//

#include "Verify.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::verify;

namespace {

/// Features of a row that holds one vector for each head of the cache.
Side headFeatures(KvCacheType cache) {
  return {"the cache", cache.getHeads() * cache.getHeadDim(),
          "elements in all heads"};
}

Side tokensOf(Value positions) {
  return {"positions", dim(positions, 0), "tokens"};
}

/// One sequence for all rows or one for each; none where there is but one.
LogicalResult sequencesFit(Operation *op, Value sequences, KvCacheType cache,
                           Value positions) {
  if (!sequences) {
    if (cache.getSequences() == 1)
      return success();
    return op->emitOpError()
           << "does not say which of the cache's " << cache.getSequences()
           << " sequences its rows belong to";
  }
  if (dim(sequences, 0) == 1)
    return success();
  return sameCount(op, {"sequences", dim(sequences, 0), "tokens"},
                   tokensOf(positions));
}

} // namespace

LogicalResult KvAppendOp::verify() {
  auto cache = cast<KvCacheType>(getCache().getType());
  if (failed(
          sameCount(*this, features("keys", getKeys()), headFeatures(cache))))
    return failure();
  if (failed(sequencesFit(*this, getSequences(), cache, getPositions())))
    return failure();
  return sameCount(*this, tokens("keys", getKeys()), tokensOf(getPositions()));
}

LogicalResult AttentionOp::verify() {
  auto cache = cast<KvCacheType>(getCache().getType());
  if (failed(sameShape(*this, "query", getQuery(), getResult())) ||
      failed(sameCount(*this, features("query", getQuery()),
                       headFeatures(cache))) ||
      failed(sameCount(*this, tokens("query", getQuery()),
                       tokensOf(getPositions()))) ||
      failed(sequencesFit(*this, getSequences(), cache, getPositions())) ||
      failed(setFits(*this, "the set of heads", getHeads(),
                     {"the cache", cache.getHeads(), "heads"})) ||
      failed(setFits(*this, "the set of tokens", getTokens(),
                     {"the cache", cache.getCapacity(), "tokens"})))
    return failure();
  if (!getScale().isFinite())
    return emitOpError() << "scale must be finite, found "
                         << getScale().convertToDouble();
  return success();
}
