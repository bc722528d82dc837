//===- Attention.cpp - A head over its history ----------------------------===//
//
// Scores of the whole history go to scratch, softmax runs over them, then the
// values are added up in order of position. A head's keys are one stream, its
// values another. Elements of a row past the head dimension are written as
// zeros, so that rows are read in whole registers; what no token has written
// yet is never read.
//
//===----------------------------------------------------------------------===//

#include "Frame.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;
using namespace foresight;

namespace {

using Values = CodeBuilder::Values;

constexpr int64_t kGroup = 4;
/// Registers of results that are summed in one pass over the history.
constexpr int64_t kValueRegisters = 8;

/// Element `frame.token` of int32 that lie densely; of one, that one.
Value intOf(Frame &frame, Value ints) {
  CodeBuilder &c = frame.c;
  Value memory = frame.memoryOf(ints);
  if (cast<RankedTensorType>(ints.getType()).getDimSize(0) != 1)
    memory = c.at(memory, c.mul(frame.token, 4));
  return c.toI64(c.load(c.b.getI32Type(), memory));
}

/// Where a head's rows of a cache lie, of the sequence of `frame.token`.
struct CacheView {
  CacheView(Frame &frame, Value cache, Value sequences)
      : type(cast<KvCacheType>(cache.getType())), memory(frame.memoryOf(cache)),
        padded((type.getHeadDim() + 15) / 16 * 16),
        rowBytes(padded * elementBytes(type.getElementType())) {
    CodeBuilder &c = frame.c;
    if (sequences)
      memory = c.at(memory,
                    c.mul(intOf(frame, sequences),
                          2 * type.getHeads() * type.getCapacity() * rowBytes));
  }

  Value keys(CodeBuilder &c, Value head) {
    return c.at(memory, c.mul(head, type.getCapacity() * rowBytes));
  }
  Value values(CodeBuilder &c, Value head) {
    return keys(c, c.add(head, type.getHeads()));
  }

  KvCacheType type;
  Value memory;
  int64_t padded, rowBytes;
};

/// Copies `count` f32 that may end anywhere: whole registers, then one by one.
/// Narrows to `element`, and writes zeros up to `padded`.
void copyHead(CodeBuilder &c, Value from, Value to, Type element, int64_t count,
              int64_t padded) {
  int64_t bytes = elementBytes(element), k = 0;
  for (; k + c.lanes <= count; k += c.lanes)
    c.storeNarrowed(element, c.load(c.vec(c.lanes), c.at(from, 4 * k)),
                    c.at(to, bytes * k));
  for (; k < padded; k += 4) {
    Value part = c.constant(c.vec(4), 0);
    if (k + 4 <= count)
      part = c.load(c.vec(4), c.at(from, 4 * k));
    else
      for (int64_t i = k; i < count; ++i) {
        SmallVector<int64_t> place{0, 1, 2, 3};
        place[i - k] = 4;
        part = c.shuffle(
            part, c.splat(c.load(c.f32Type(), c.at(from, 4 * i)), 4), place);
      }
    c.storeNarrowed(element, part, c.at(to, bytes * k));
  }
}

/// Scores of `count` history tokens from `s` on, as scalars.
Values emitScoresOf(Frame &frame, CacheView &view, Value keys, Value query,
                    Value s, int64_t count, Value scale) {
  CodeBuilder &c = frame.c;
  Type element = view.type.getElementType();
  int64_t bytes = elementBytes(element);
  Values sums;
  for (int64_t r = 0; r < count; ++r) {
    Value row = c.at(keys, c.mul(c.add(s, r), view.rowBytes));
    Value sum = c.constant(c.vec(c.lanes), 0);
    for (int64_t k = 0; k < view.padded; k += c.lanes)
      sum = c.fma(c.load(c.vec(c.lanes), c.at(query, 4 * k)),
                  c.loadWidened(element, c.lanes, c.at(row, bytes * k)), sum);
    sums.push_back(sum);
  }
  while (sums.size() < kGroup)
    sums.push_back(sums.back());
  Value four = c.fmul(c.sumLanes4(sums), c.splat(scale, kGroup));
  Values scalars;
  for (int64_t r = 0; r < count; ++r)
    scalars.push_back(c.extract(four, r));
  return scalars;
}

/// Softmax of scores[0, count) in place, without the division; returns the sum.
Value emitSoftmax(CodeBuilder &c, Value scores, Value count, Value largest) {
  // Up to a whole register, the rest is -inf, which becomes 0.
  Value infinity =
      c.constant(c.vec(c.lanes), -std::numeric_limits<double>::infinity());
  c.store(infinity, c.at(scores, c.mul(count, 4)));
  Value offset = c.splat(largest, c.lanes);
  Value sums = c.loop(
      c.i64(0), count, c.lanes, ValueRange{c.constant(c.vec(c.lanes), 0)},
      [&](Value s, ValueRange carried) {
        Value place = c.at(scores, c.mul(s, 4));
        Value p = math::ExpOp::create(
            c.b, c.loc, c.fsub(c.load(c.vec(c.lanes), place), offset));
        c.store(p, place);
        return Values{c.fadd(carried[0], p)};
      })[0];
  return c.sumLanes(sums);
}

void emitHead(Frame &frame, AttentionOp op, Value head, Value out) {
  CodeBuilder &c = frame.c;
  CacheView view(frame, op.getCache(), op.getSequences());
  int64_t headDim = view.type.getHeadDim();
  Type element = view.type.getElementType();
  int64_t bytes = elementBytes(element);
  Value column = c.mul(head, headDim);
  Value query = frame.scratchAt(frame.plan.query);
  Value scores = frame.scratchAt(frame.plan.scores);
  copyHead(c, c.at(frame.rowOf(op.getQuery()), c.mul(column, 4)), query,
           c.f32Type(), headDim, view.padded);

  Value count = c.add(intOf(frame, op.getPositions()), 1);
  Value scale = c.f32(op.getScale().convertToDouble());
  Value keys = view.keys(c, head);
  Value least = c.f32(-std::numeric_limits<double>::infinity());
  auto emitGroup = [&](Value s, int64_t n, Value largest) {
    Values four = emitScoresOf(frame, view, keys, query, s, n, scale);
    for (auto [r, score] : llvm::enumerate(four)) {
      c.store(score, c.at(scores, c.mul(c.add(s, r), 4)));
      largest = c.fmax(score, largest);
    }
    return Values{largest};
  };
  Value grouped =
      c.mul(arith::DivUIOp::create(c.b, c.loc, count, c.i64(kGroup)), kGroup);
  Value largest = c.loop(c.i64(0), grouped, kGroup, ValueRange{least},
                         [&](Value s, ValueRange carried) {
                           return emitGroup(s, kGroup, carried[0]);
                         })[0];
  largest = c.loop(grouped, count, 1, ValueRange{largest},
                   [&](Value s, ValueRange carried) {
                     return emitGroup(s, 1, carried[0]);
                   })[0];
  Value sum = emitSoftmax(c, scores, count, largest);
  Value share = c.fdiv(c.f32(1), sum);

  Value values = view.values(c, head);
  Value to = c.at(out, c.mul(column, 4));
  int64_t step = kValueRegisters * c.lanes;
  for (int64_t first = 0; first < view.padded; first += step) {
    int64_t registers =
        std::min(kValueRegisters, (view.padded - first) / c.lanes);
    Values sums(registers, c.constant(c.vec(c.lanes), 0));
    sums = c.loop(c.i64(0), count, 1, sums, [&](Value s, ValueRange carried) {
      Value row = c.at(c.at(values, c.mul(s, view.rowBytes)), first * bytes);
      Value p =
          c.splat(c.load(c.f32Type(), c.at(scores, c.mul(s, 4))), c.lanes);
      Values next;
      for (auto [i, carry] : llvm::enumerate(carried))
        next.push_back(
            c.fma(p,
                  c.loadWidened(element, c.lanes,
                                c.at(row, bytes * int64_t(i) * c.lanes)),
                  carry));
      return next;
    });
    for (auto [i, carry] : llvm::enumerate(sums)) {
      int64_t k = first + i * c.lanes;
      Value result = c.fmul(carry, c.splat(share, c.lanes));
      // The next head's columns follow: no register may reach into them.
      if (k + c.lanes <= headDim)
        c.store(result, c.at(to, 4 * k));
      else
        for (int64_t lane = 0; k + lane < headDim; ++lane)
          c.store(c.extract(result, lane), c.at(to, 4 * (k + lane)));
    }
  }
}

} // namespace

void foresight::emitAppendHead(Frame &frame, KvAppendOp op, Value head) {
  CodeBuilder &c = frame.c;
  CacheView view(frame, op.getCache(), op.getSequences());
  int64_t headDim = view.type.getHeadDim();
  Value column = c.mul(head, 4 * headDim);
  Value offset = c.mul(intOf(frame, op.getPositions()), view.rowBytes);
  copyHead(c, c.at(frame.rowOf(op.getKeys()), column),
           c.at(view.keys(c, head), offset), view.type.getElementType(),
           headDim, view.padded);
  copyHead(c, c.at(frame.rowOf(op.getValues()), column),
           c.at(view.values(c, head), offset), view.type.getElementType(),
           headDim, view.padded);
}

void foresight::emitAttention(Frame &frame, Value begin, Value end) {
  CodeBuilder &c = frame.c;
  AttentionOp op = frame.plan.attention;
  int64_t heads = cast<KvCacheType>(op.getCache().getType()).getHeads();
  int64_t columns = columnsOf(op.getResult());
  c.loop(begin, end, 1, [&](Value unit) {
    Value head = unit;
    if (frame.plan.info.perToken) {
      frame.token = arith::DivUIOp::create(c.b, c.loc, unit, c.i64(heads));
      head = c.sub(unit, c.mul(frame.token, heads));
    }
    if (frame.plan.append)
      emitAppendHead(frame, frame.plan.append, head);
    Value out = frame.resultsOf(op.getResult()).front();
    emitHead(frame, op, head, out);
    if (columns == padRow(columns))
      return;
    Value isLast = arith::CmpIOp::create(c.b, c.loc, arith::CmpIPredicate::eq,
                                         head, c.i64(heads - 1));
    c.ifThen(isLast, [&] {
      c.zeroFill(c.at(out, 4 * columns), 4 * (padRow(columns) - columns));
    });
  });
}
