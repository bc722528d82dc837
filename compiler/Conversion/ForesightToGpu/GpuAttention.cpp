//===- GpuAttention.cpp - A head over its history -------------------------===//
//
// A block is a head of a token. Lanes form groups that hold one cache row at 16
// bytes a lane; a group takes every so many history tokens, keys and values
// together, and keeps a running maximum, sum and weighted values, which are
// joined in a fixed order at the end: one pass, one barrier. The kernel in
// front wrote the keys and values. What decodes is in GpuDecodeAttention.cpp.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// History tokens of a group that are under way at once.
constexpr int64_t kLoads = 4;
/// Below every score; finite, so that differences are numbers.
constexpr double kLowest = -1e30;

class AttentionEmitter {
public:
  explicit AttentionEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), op(frame.plan.attention),
        cache(cast<KvCacheType>(op.getCache().getType())),
        element(cache.getElementType()), per(elementsOf16(element)),
        padded((cache.getHeadDim() + 15) / 16 * 16), parts(padded / per),
        width(llvm::PowerOf2Ceil(parts)), groups(c.threads / width),
        rowBytes(padded * elementBytes(element)) {}

  void emit();

private:
  /// What a group knows of the history it has seen.
  struct State {
    Value best, sum;
    Values values;
    Values flat() const {
      Values all{best, sum};
      all.append(values);
      return all;
    }
    static State from(ValueRange all) {
      return {all[0], all[1], Values(all.drop_front(2))};
    }
  };
  struct Rows {
    Values keys, values, isIn;
  };

  Rows loadRows(Value first);
  Values ownElements(Value row);
  Value score(ArrayRef<Value> key);
  State add(const State &state, ArrayRef<Value> scores,
            ArrayRef<Values> values);
  State join(const State &a, const State &b);
  void finish(State state);
  Value isAnd(Value a, Value b) {
    return arith::AndIOp::create(c.b, c.loc, a, b);
  }

  GpuFrame &frame;
  GpuCode &c;
  AttentionOp op;
  KvCacheType cache;
  Type element;
  int64_t per, padded, parts, width, groups, rowBytes;
  Value head, position, keys, values, group, part, safePart, length;
  Values query;
};

/// A lane's words of the group's rows from history token `first` on. A row that
/// is not in the history is read as zeros: what lies there may be anything.
AttentionEmitter::Rows AttentionEmitter::loadRows(Value first) {
  Rows rows;
  Value zero = c.constant(c.vec(4, c.b.getI32Type()), 0);
  for (int64_t i = 0; i < kLoads; ++i) {
    Value s = c.add(first, i * groups);
    Value isIn = c.lessThan(s, length);
    rows.isIn.push_back(isIn);
    auto load = [&](Value base) {
      return c.ifElse(
          isIn,
          [&] {
            return c.load16(element, c.at(base, c.add(c.mul(s, rowBytes),
                                                      c.mul(safePart, 16))));
          },
          zero);
    };
    rows.keys.push_back(load(keys));
    rows.values.push_back(load(values));
  }
  return rows;
}

/// This lane's elements of the head in a row of an argument; zero past the head
/// dimension.
Values AttentionEmitter::ownElements(Value row) {
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

Value AttentionEmitter::score(ArrayRef<Value> key) {
  Value sum = c.f32(0);
  for (int64_t e = 0; e < per; ++e)
    sum = c.fma(query[e], key[e], sum);
  return c.fmul(c.sumOver(sum, 1, width),
                c.f32(op.getScale().convertToDouble()));
}

AttentionEmitter::State AttentionEmitter::add(const State &state,
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

AttentionEmitter::State AttentionEmitter::join(const State &a, const State &b) {
  State both = a;
  both.best = c.fmax(a.best, b.best);
  Value ofA = c.exp(c.fsub(a.best, both.best));
  Value ofB = c.exp(c.fsub(b.best, both.best));
  both.sum = c.fma(a.sum, ofA, c.fmul(b.sum, ofB));
  for (int64_t e = 0; e < per; ++e)
    both.values[e] = c.fma(a.values[e], ofA, c.fmul(b.values[e], ofB));
  return both;
}

/// Groups of a warp by shuffles, then the warps by whoever writes the result.
void AttentionEmitter::finish(State state) {
  for (int64_t mask = width; mask < kWarp; mask *= 2) {
    State other = state;
    other.best = c.shuffleXor(state.best, mask);
    other.sum = c.shuffleXor(state.sum, mask);
    for (Value &v : other.values)
      v = c.shuffleXor(v, mask);
    state = join(state, other);
  }
  // A warp's part: best, sum, then its values.
  int64_t warpBytes = 4 * (padded + 4);
  Value shared = c.at(frame.shared, frame.plan.rowAt);
  auto partOf = [&](Value warp, int64_t bytes) {
    return c.at(shared, c.add(c.mul(warp, warpBytes), bytes));
  };
  Value writes =
      isAnd(c.lessThan(c.lane, c.i64(width)), c.lessThan(part, c.i64(parts)));
  c.ifThen(writes, [&] {
    c.store(state.best, partOf(c.warp, 0));
    c.store(state.sum, partOf(c.warp, 4));
    for (int64_t e = 0; e < per; ++e)
      c.store(state.values[e],
              c.at(partOf(c.warp, 16), c.mul(c.add(c.mul(part, per), e), 4)));
  });
  c.barrier();
  int64_t headDim = cache.getHeadDim(), heads = cache.getHeads();
  int64_t columns = gpuColumns(op.getResult());
  for (auto [value, row] :
       frame.resultsOf([&](Value v) { return v == op.getResult(); })) {
    Value pointer = row;
    Type stored = gpuElement(value);
    int64_t bytes = elementBytes(stored);
    c.loop(c.thread, c.i64(headDim), c.threads, [&](Value k) {
      Value best = c.f32(kLowest);
      Values bests;
      for (int64_t w = 0; w < c.warps(); ++w) {
        bests.push_back(c.load(c.f32Type(), partOf(c.i64(w), 0)));
        best = c.fmax(bests.back(), best);
      }
      Value sum = c.f32(0), total = c.f32(0);
      for (int64_t w = 0; w < c.warps(); ++w) {
        Value weight = c.exp(c.fsub(bests[w], best));
        total = c.fma(c.load(c.f32Type(), partOf(c.i64(w), 4)), weight, total);
        Value v = c.load(c.f32Type(), c.at(partOf(c.i64(w), 16), c.mul(k, 4)));
        sum = c.fma(v, weight, sum);
      }
      Value column = c.add(c.mul(head, headDim), k);
      c.storeNarrow(stored, c.fdiv(sum, total),
                    c.at(pointer, c.mul(column, bytes)));
    });
    if (columns == padRow(columns))
      continue;
    Value behind = c.add(c.thread, columns);
    Value isPadding = isAnd(c.isEqual(head, heads - 1),
                            c.lessThan(behind, c.i64(padRow(columns))));
    c.ifThen(isPadding, [&] {
      c.storeNarrow(stored, c.f32(0), c.at(pointer, c.mul(behind, bytes)));
    });
  }
}

void AttentionEmitter::emit() {
  int64_t heads = cache.getHeads();
  head = c.rem(c.block, heads);
  frame.token = c.div(c.block, heads);
  group = c.div(c.thread, width);
  part = c.rem(c.thread, width);
  safePart = c.min(part, c.i64(parts - 1));
  c.waitForInputs();
  c.letDependentsStart();
  position =
      c.toI64(c.load(c.b.getI32Type(), c.at(frame.memoryOf(op.getPositions()),
                                            c.mul(frame.token, 4))));
  length = c.add(position, 1);
  int64_t headBytes = cache.getCapacity() * rowBytes;
  Value memory = frame.memoryOf(op.getCache());
  keys = c.at(memory, c.mul(head, headBytes));
  values = c.at(memory, c.mul(c.add(head, heads), headBytes));
  Rows rows = loadRows(group);

  query = ownElements(op.getQuery());
  State state{c.f32(kLowest), c.f32(0), Values(per, c.f32(0))};
  // Trip counts are the same for all threads: shuffles need whole warps.
  int64_t step = kLoads * groups;
  Values carried = state.flat();
  for (const Values &part : {rows.keys, rows.values, rows.isIn})
    carried.append(part);
  Values out = c.loop(
      c.i64(0), length, step, carried, [&](Value first, ValueRange args) {
        int64_t known = 2 + per;
        State state = State::from(args.take_front(known));
        ValueRange loaded = args.drop_front(known);
        Values scores;
        SmallVector<Values> rows;
        for (int64_t i = 0; i < kLoads; ++i) {
          auto elements = [&](Value words) {
            Value wide = c.widen(words, element);
            Values list;
            for (int64_t e = 0; e < per; ++e)
              list.push_back(c.extract(wide, e));
            return list;
          };
          Value s = score(elements(loaded[i]));
          scores.push_back(c.select(loaded[2 * kLoads + i], s, c.f32(kLowest)));
          rows.push_back(elements(loaded[kLoads + i]));
        }
        // Under way while the sums are made.
        Rows next = loadRows(c.add(c.add(first, step), group));
        Values result = add(state, scores, rows).flat();
        for (const Values &part : {next.keys, next.values, next.isIn})
          result.append(part);
        return result;
      });
  finish(State::from(ValueRange(out).take_front(2 + per)));
}

} // namespace

void foresight::emitGpuAttention(GpuFrame &frame) {
  AttentionEmitter(frame).emit();
}
