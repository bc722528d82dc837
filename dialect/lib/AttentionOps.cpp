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

} // namespace

LogicalResult KvAppendOp::verify() {
  auto cache = cast<KvCacheType>(getCache().getType());
  if (failed(
          sameCount(*this, features("keys", getKeys()), headFeatures(cache))))
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
