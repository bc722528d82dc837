//===- GpuHistory.cpp - Groups of lanes over a head's history -------------===//

#include "GpuHistory.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace foresight;

HistoryEmitter::HistoryEmitter(GpuFrame &frame)
    : frame(frame), c(frame.c), op(frame.plan.attention),
      cache(cast<KvCacheType>(op.getCache().getType())),
      element(cache.getElementType()), per(elementsOf16(element)),
      padded((cache.getHeadDim() + 15) / 16 * 16), parts(padded / per),
      width(llvm::PowerOf2Ceil(parts)), groups(c.threads / width),
      rowBytes(padded * elementBytes(element)), partBytes(4 * (padded + 4)) {}

void HistoryEmitter::findLanes() {
  group = c.div(c.thread, width);
  part = c.rem(c.thread, width);
  safePart = c.min(part, c.i64(parts - 1));
}

void HistoryEmitter::findCache() {
  int64_t headBytes = cache.getCapacity() * rowBytes;
  Value memory = frame.cacheOf(op.getCache(), op.getSequences());
  keys = c.at(memory, c.mul(head, headBytes));
  values = c.at(memory, c.mul(c.add(head, cache.getHeads()), headBytes));
}

HistoryEmitter::Values HistoryEmitter::elementsOf(Value words) {
  Value wide = c.widen(words, element);
  Values list;
  for (int64_t e = 0; e < per; ++e)
    list.push_back(c.extract(wide, e));
  return list;
}

HistoryEmitter::Values HistoryEmitter::ownElements(Value row) {
  int64_t headDim = cache.getHeadDim();
  Type stored = gpuElement(row);
  int64_t bytes = elementBytes(stored);
  Value base = c.at(frame.rowOf(row), c.mul(head, bytes * headDim));
  Values elements;
  for (int64_t e = 0; e < per; ++e) {
    Value k = c.add(c.mul(part, per), e);
    Value x = c.loadWidened(
        stored, 0, c.at(base, c.mul(c.min(k, c.i64(headDim - 1)), bytes)));
    elements.push_back(c.select(c.lessThan(k, c.i64(headDim)), x, c.f32(0)));
  }
  return elements;
}

Value HistoryEmitter::score(ArrayRef<Value> key) {
  Value sum = c.f32(0);
  for (int64_t e = 0; e < per; ++e)
    sum = c.fma(query[e], key[e], sum);
  return c.fmul(c.sumOver(sum, 1, width),
                c.f32(op.getScale().convertToDouble()));
}

HistoryEmitter::State HistoryEmitter::add(const State &state,
                                          ArrayRef<Value> scores,
                                          ArrayRef<Values> rows) {
  State next = state;
  for (Value s : scores)
    next.best = c.fmax(s, next.best);
  Value shrink = c.exp(c.fsub(state.best, next.best));
  next.sum = c.fmul(state.sum, shrink);
  for (Value &v : next.values)
    v = c.fmul(v, shrink);
  for (auto [s, row] : llvm::zip(scores, rows)) {
    Value p = c.exp(c.fsub(s, next.best));
    next.sum = c.fadd(next.sum, p);
    for (int64_t e = 0; e < per; ++e)
      next.values[e] = c.fma(p, row[e], next.values[e]);
  }
  return next;
}

HistoryEmitter::State HistoryEmitter::join(const State &a, const State &b) {
  State both = a;
  both.best = c.fmax(a.best, b.best);
  Value ofA = c.exp(c.fsub(a.best, both.best));
  Value ofB = c.exp(c.fsub(b.best, both.best));
  both.sum = c.fma(a.sum, ofA, c.fmul(b.sum, ofB));
  for (int64_t e = 0; e < per; ++e)
    both.values[e] = c.fma(a.values[e], ofA, c.fmul(b.values[e], ofB));
  return both;
}

void HistoryEmitter::leaveWarpPart(State state, Value memory) {
  for (int64_t mask = width; mask < kWarp; mask *= 2) {
    State other = state;
    other.best = c.shuffleXor(state.best, mask);
    other.sum = c.shuffleXor(state.sum, mask);
    for (Value &v : other.values)
      v = c.shuffleXor(v, mask);
    state = join(state, other);
  }
  memory = c.at(memory, c.mul(c.warp, partBytes));
  Value writes =
      c.both(c.lessThan(c.lane, c.i64(width)), c.lessThan(part, c.i64(parts)));
  c.ifThen(writes, [&] {
    c.store(state.best, memory);
    c.store(state.sum, c.at(memory, 4));
    for (int64_t e = 0; e < per; ++e)
      c.store(state.values[e],
              c.at(c.at(memory, 16), c.mul(c.add(c.mul(part, per), e), 4)));
  });
  c.barrier();
}

HistoryEmitter::Part HistoryEmitter::joinParts(Value memory, int64_t count,
                                               Value known, Value k) {
  SmallVector<Part> all;
  Part joined{c.f32(kLowest), c.f32(0), c.f32(0)};
  for (int64_t i = 0; i < count; ++i) {
    Value at =
        c.at(memory,
             c.mul(known ? c.min(c.i64(i), c.sub(known, c.i64(1))) : c.i64(i),
                   partBytes));
    auto load = [&](Value pointer) { return c.load(c.f32Type(), pointer); };
    Part one{load(at), load(c.at(at, 4)),
             load(c.at(c.at(at, 16), c.mul(k, 4)))};
    if (known)
      one.best =
          c.select(c.lessThan(c.i64(i), known), one.best, c.f32(kLowest));
    joined.best = c.fmax(one.best, joined.best);
    all.push_back(one);
  }
  for (auto [i, one] : llvm::enumerate(all)) {
    Value weight = c.exp(c.fsub(one.best, joined.best));
    joined.sum = c.fma(one.sum, weight, joined.sum);
    joined.value = c.fma(one.value, weight, joined.value);
  }
  return joined;
}

void HistoryEmitter::storeResult(Value k, Value x) {
  Value column = c.add(c.mul(head, cache.getHeadDim()), k);
  for (auto [value, row] : frame.resultsOf(op)) {
    Type stored = gpuElement(value);
    c.storeNarrow(stored, x, c.at(row, c.mul(column, elementBytes(stored))));
  }
}
