//===- GpuAttention.cpp - A head over its history -------------------------===//
//
// A block is a head of a token. Lanes form groups that hold one cache row at 16
// bytes a lane; scores go to shared memory, softmax runs over them, then each
// group adds up the values of its rows, and the groups' sums are added in a
// fixed order.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// History tokens of a group that are under way at once.
constexpr int64_t kLoads = 4;

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
  void append();
  Value cacheRow(Value memory, Value s) {
    return c.at(memory, c.add(c.mul(s, rowBytes), c.mul(safePart, 16)));
  }
  Value element4(Value row, int64_t i);

  GpuFrame &frame;
  GpuCode &c;
  AttentionOp op;
  KvCacheType cache;
  Type element;
  int64_t per, padded, parts, width, groups, rowBytes;
  Value head, position, keys, values, group, part, safePart, holds;
};

/// This token's key and value of the head to their place.
void AttentionEmitter::append() {
  KvAppendOp append = frame.plan.append;
  int64_t headDim = cache.getHeadDim();
  std::pair<Value, Value> pairs[] = {{append.getKeys(), keys},
                                     {append.getValues(), values}};
  for (auto [row, memory] : pairs) {
    Value source = c.at(frame.rowOf(row), c.mul(head, 4 * headDim));
    Value target = c.at(memory, c.mul(position, rowBytes));
    c.loop(c.thread, c.i64(headDim), c.threads, [&](Value k) {
      Value x = c.load(c.f32Type(), c.at(source, c.mul(k, 4)));
      c.storeNarrow(element, x, c.at(target, c.mul(k, elementBytes(element))));
    });
  }
  c.barrier();
}

void AttentionEmitter::emit() {
  int64_t heads = cache.getHeads(), headDim = cache.getHeadDim();
  int64_t headBytes = cache.getCapacity() * rowBytes;
  head = c.rem(c.block, heads);
  frame.token = c.div(c.block, heads);
  group = c.div(c.thread, width);
  part = c.rem(c.thread, width);
  holds = c.lessThan(part, c.i64(parts));
  safePart = c.min(part, c.i64(parts - 1));
  c.waitForInputs();
  c.letDependentsStart();

  position =
      c.toI64(c.load(c.b.getI32Type(), c.at(frame.memoryOf(op.getPositions()),
                                            c.mul(frame.token, 4))));
  Value memory = frame.memoryOf(op.getCache());
  keys = c.at(memory, c.mul(head, headBytes));
  values = c.at(memory, c.mul(c.add(head, heads), headBytes));
  if (frame.plan.append)
    append();

  // This lane's elements of the query; zero past the head dimension.
  Value query = c.at(frame.rowOf(op.getQuery()), c.mul(head, 4 * headDim));
  Values q;
  for (int64_t e = 0; e < per; ++e) {
    Value k = c.add(c.mul(part, per), e);
    Value x = c.load(c.f32Type(),
                     c.at(query, c.mul(c.min(k, c.i64(headDim - 1)), 4)));
    q.push_back(c.select(c.lessThan(k, c.i64(headDim)), x, c.f32(0)));
  }

  Value length = c.add(position, 1);
  Value last = position;
  Value scores = c.at(frame.shared, frame.plan.rowAt);
  Value scale = c.f32(op.getScale().convertToDouble());
  auto loadRows = [&](Value base, Value first) {
    Values rows;
    for (int64_t i = 0; i < kLoads; ++i)
      rows.push_back(c.loadAligned(
          c.vec(4, c.b.getI32Type()),
          cacheRow(base, c.min(c.add(first, i * groups), last)), 16));
    return rows;
  };
  // Trip counts are the same for all threads: shuffles need whole warps.
  int64_t step = kLoads * groups;
  Value best = c.loop(
      c.i64(0), length, step, ValueRange{c.f32(-INFINITY)},
      [&](Value first, ValueRange carried) {
        Value best = carried[0];
        Value mine = c.add(first, group);
        Values rows = loadRows(keys, mine);
        for (int64_t i = 0; i < kLoads; ++i) {
          Value k = c.widen(rows[i], element);
          Value sum = c.f32(0);
          for (int64_t e = 0; e < per; ++e)
            sum = c.fma(q[e], c.extract(k, e), sum);
          sum = c.fmul(c.sumOver(sum, 1, width), scale);
          Value s = c.add(mine, i * groups);
          Value isIn = c.lessThan(s, length);
          c.ifThen(isIn, [&] { c.store(sum, c.at(scores, c.mul(s, 4))); });
          best = c.select(isIn, c.fmax(sum, best), best);
        }
        return Values{best};
      })[0];
  best = c.blockMax(best, frame.shared);
  c.barrier();

  Value total = c.loop(c.thread, length, c.threads, ValueRange{c.f32(0)},
                       [&](Value s, ValueRange carried) {
                         Value place = c.at(scores, c.mul(s, 4));
                         Value p =
                             c.exp(c.fsub(c.load(c.f32Type(), place), best));
                         c.store(p, place);
                         return Values{c.fadd(carried[0], p)};
                       })[0];
  total = c.blockSum(total, frame.shared);
  c.barrier();

  Values sums = c.loop(
      c.i64(0), length, step, Values(per, c.f32(0)),
      [&](Value first, ValueRange carried) {
        Values sums(carried);
        Value mine = c.add(first, group);
        Values rows = loadRows(values, mine);
        for (int64_t i = 0; i < kLoads; ++i) {
          Value s = c.add(mine, i * groups);
          Value isIn = c.lessThan(s, length);
          Value p = c.load(c.f32Type(), c.at(scores, c.mul(c.min(s, last), 4)));
          p = c.select(isIn, p, c.f32(0));
          Value v = c.widen(rows[i], element);
          for (int64_t e = 0; e < per; ++e)
            sums[e] = c.fma(p, c.extract(v, e), sums[e]);
        }
        return sums;
      });
  // Everyone has read the scores; the groups' sums take their place.
  c.barrier();
  for (int64_t e = 0; e < per; ++e) {
    Value sum = c.sumOver(sums[e], width, kWarp);
    Value isFirst = c.lessThan(c.lane, c.i64(width));
    c.ifThen(arith::AndIOp::create(c.b, c.loc, isFirst, holds), [&] {
      Value place = c.add(c.add(c.mul(c.warp, padded), c.mul(part, per)), e);
      c.store(sum, c.at(scores, c.mul(place, 4)));
    });
  }
  c.barrier();
  Value reciprocal = c.fdiv(c.f32(1), total);
  int64_t columns = gpuColumns(op.getResult());
  for (auto [value, row] :
       frame.resultsOf([&](Value v) { return v == op.getResult(); })) {
    Value pointer = row;
    c.loop(c.thread, c.i64(headDim), c.threads, [&](Value k) {
      Value sum = c.f32(0);
      for (int64_t w = 0; w < c.warps(); ++w)
        sum = c.fadd(sum, c.load(c.f32Type(),
                                 c.at(scores, c.mul(c.add(k, w * padded), 4))));
      Value column = c.add(c.mul(head, headDim), k);
      c.store(c.fmul(sum, reciprocal), c.at(pointer, c.mul(column, 4)));
    });
    if (columns == padRow(columns))
      continue;
    Value behind = c.add(c.thread, columns);
    Value isPadding =
        arith::AndIOp::create(c.b, c.loc, c.isEqual(head, heads - 1),
                              c.lessThan(behind, c.i64(padRow(columns))));
    c.ifThen(isPadding,
             [&] { c.store(c.f32(0), c.at(pointer, c.mul(behind, 4))); });
  }
}

} // namespace

void foresight::emitGpuAttention(GpuFrame &frame) {
  AttentionEmitter(frame).emit();
}
