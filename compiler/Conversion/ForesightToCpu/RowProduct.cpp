//===- RowProduct.cpp - Products with rows of a weight matrix -------------===//
//
// Four weight rows at a time share the loads of x. A row has two accumulators,
// fed in turn by vectors of its elements, and one order of adding them up; a
// dense row, a selected row and a row computed again to fill a group of four go
// through the same code, so that they give the same bits.
//
// The four rows of a dense product are a quarter of a claim apart: four long
// streams, which hardware fetches ahead by itself. Four neighbours are streams
// of one row each that start again and again; with prefetches they were read at
// 0.7 (rows of 1.5 KB) to 0.9 (4 KB) of that rate, without at half.
//
//===----------------------------------------------------------------------===//

#include "Frame.h"
#include "LowBit.h"

#include "foresight/abi/Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace foresight;

namespace {

using Values = CodeBuilder::Values;

constexpr int64_t kGroup = 4;
constexpr int64_t kCacheLine = 64;

/// A weight matrix as the loops see it.
struct Matrix {
  Matrix(Frame &frame, Value weight)
      : memory(frame.memoryOf(weight)),
        element(cast<RankedTensorType>(weight.getType()).getElementType()),
        rows(cast<RankedTensorType>(weight.getType()).getDimSize(0)),
        columns(padRow(columnsOf(weight))), rowBytes(weightRowBytes(weight)) {}

  Value row(CodeBuilder &c, Value i) {
    return c.at(memory, c.mul(i, rowBytes));
  }

  Value memory;
  Type element;
  int64_t rows, columns, rowBytes;
};

/// The products of x with four rows. `ahead` are rows to prefetch meanwhile.
Value emitDot4(CodeBuilder &c, const Matrix &m, ArrayRef<Value> rows, Value x,
               ArrayRef<Value> ahead) {
  constexpr int64_t kWays = 2;
  // A longer step spills: eight sums and what is in flight fill 16 registers.
  const int64_t step = kWays * c.lanes;
  int64_t bytes = elementBytes(m.element);
  Values sums(kGroup * kWays, c.constant(c.vec(c.lanes), 0));
  sums = c.loop(
      c.i64(0), c.i64(m.columns), step, sums, [&](Value k, ValueRange carried) {
        Values next(carried.begin(), carried.end());
        Value offset = c.mul(k, bytes);
        for (Value row : ahead)
          c.prefetch(c.at(row, offset), step * bytes);
        for (int64_t j = 0; j < step; j += c.lanes) {
          Value xs = c.load(c.vec(c.lanes), c.at(c.at(x, c.mul(k, 4)), 4 * j));
          for (int64_t r = 0; r < kGroup; ++r) {
            Value w = c.loadWidened(m.element, c.lanes,
                                    c.at(c.at(rows[r], offset), bytes * j));
            Value &sum = next[r * kWays + j / c.lanes % kWays];
            sum = c.fma(w, xs, sum);
          }
        }
        return next;
      });
  Values rowSums;
  for (int64_t r = 0; r < kGroup; ++r)
    rowSums.push_back(c.fadd(sums[r * kWays], sums[r * kWays + 1]));
  return c.sumLanes4(rowSums);
}

/// Zeroes the padding behind the columns that whole registers wrote.
void emitTail(Frame &frame, Operation *product, Value isLast) {
  CodeBuilder &c = frame.c;
  int64_t columns = columnsOf(product->getResult(0));
  int64_t written = (columns + c.lanes - 1) / c.lanes * c.lanes;
  if (written == padRow(columns))
    return;
  c.ifThen(isLast, [&] {
    for (auto [value, row] : frame.resultsOfProduct(product))
      c.zeroFill(c.at(row, 4 * written), 4 * (padRow(columns) - written));
  });
}

Value lessThan(CodeBuilder &c, Value a, Value b) {
  return arith::CmpIOp::create(c.b, c.loc, arith::CmpIPredicate::slt, a, b);
}

Value isAtLeast(CodeBuilder &c, Value a, Value b) {
  return arith::CmpIOp::create(c.b, c.loc, arith::CmpIPredicate::sge, a, b);
}

/// The groups of one `linear` that lie in [begin, end).
void emitDense(Frame &frame, const ProductRange &range, Value begin,
               Value end) {
  CodeBuilder &c = frame.c;
  LinearOp op = range.op;
  Matrix m(frame, op.getWeight());
  Value x = frame.rowOf(op.getX());
  Value first = c.max(c.sub(begin, c.i64(range.firstUnit)), c.i64(0));
  Value last = c.min(c.sub(end, c.i64(range.firstUnit)), c.i64(range.units));
  Value lower = c.mul(first, kRowsPerUnit);
  Value upper = c.min(c.mul(last, kRowsPerUnit), c.i64(m.rows));
  Value sums = frame.scratchAt(frame.plan.sums);
  c.loop(lower, upper, frame.plan.streamRows, [&](Value from) {
    Value count = c.min(c.sub(upper, from), c.i64(frame.plan.streamRows));
    Value quarter =
        arith::CeilDivUIOp::create(c.b, c.loc, count, c.i64(kGroup));
    Value lastRow = c.sub(c.add(from, count), c.i64(1));
    c.loop(c.i64(0), quarter, 1, [&](Value i) {
      Values rows, places;
      for (int64_t r = 0; r < kGroup; ++r) {
        Value place = c.add(i, c.mul(quarter, r));
        places.push_back(c.at(sums, c.mul(place, 4)));
        rows.push_back(m.row(c, c.min(c.add(from, place), lastRow)));
      }
      Value four = emitDot4(c, m, rows, x, {});
      for (auto [r, place] : llvm::enumerate(places))
        c.store(c.extract(four, r), place);
    });
    c.loop(c.i64(0), count, c.lanes, [&](Value i) {
      emitStores(frame, op, c.load(c.vec(c.lanes), c.at(sums, c.mul(i, 4))),
                 c.add(from, i));
    });
  });
  Value hasWork = lessThan(c, first, last);
  Value isLast = arith::AndIOp::create(c.b, c.loc, hasWork,
                                       isAtLeast(c, last, c.i64(range.units)));
  emitTail(frame, op, isLast);
}

/// Rows of the prologue that are results: unit 0 copies them.
void emitYieldedRows(Frame &frame, Value begin) {
  CodeBuilder &c = frame.c;
  for (Operation *op : frame.plan.prologue) {
    Value row = op->getResult(0);
    if (!isa<RankedTensorType>(row.getType()))
      continue;
    SmallVector<Value> results = frame.resultsOf(row);
    if (results.empty())
      continue;
    Value isFirst = arith::CmpIOp::create(c.b, c.loc, arith::CmpIPredicate::eq,
                                          begin, c.i64(0));
    c.ifThen(isFirst, [&] {
      Value source = frame.rowOf(row);
      c.loop(c.i64(0), c.i64(padRow(columnsOf(row))), c.lanes, [&](Value k) {
        Value offset = c.mul(k, 4);
        Value x = c.load(c.vec(c.lanes), c.at(source, offset));
        for (Value result : results)
          c.store(x, c.at(result, offset));
      });
    });
  }
}

} // namespace

void foresight::emitRowProducts(Frame &frame, Value begin, Value end) {
  emitYieldedRows(frame, begin);
  for (const ProductRange &range : frame.plan.products)
    emitDense(frame, range, begin, end);
}

/// Scores `units` units from `begin` on, remembers which neurons are kept, then
/// multiplies their rows. The first ones are prefetched as soon as they are
/// known, the next ones while those before them are multiplied: all at once
/// would be more than can be under way.
static void emitScored(Frame &frame, Value begin, Value units) {
  CodeBuilder &c = frame.c;
  const SparseOps &ops = frame.plan.sparse;
  GatherLinearOp op = ops.product;
  Matrix m(frame, op.getWeight());

  SmallVector<std::pair<Value, Value>> results = frame.resultsOfProduct(op);
  Value kept = frame.scratchAt(ops.kept), dots = frame.scratchAt(ops.dots);
  Value counts = frame.argument(frame.plan.countsArgument());
  auto entry = [&](Value i) { return c.at(kept, c.mul(i, 4)); };
  emitUnitDots(frame, ops, c.mul(begin, kNeuronsPerUnit), units);
  Value listed = c.loop(
      c.i64(0), units, 1, ValueRange{c.i64(0)},
      [&](Value i, ValueRange carried) {
        Value unit = c.add(begin, i);
        Value first = c.mul(unit, kNeuronsPerUnit);
        Value mask = emitTest(frame, ops, first,
                              c.at(dots, c.mul(i, 4 * kNeuronsPerUnit)));
        for (auto [value, row] : results)
          c.zeroFill(c.at(row, c.mul(first, 4)), 4 * kNeuronsPerUnit);
        c.store(math::CtPopOp::create(c.b, c.loc, mask),
                c.at(counts, c.mul(unit, 4)));
        Value next =
            c.forEachBit(mask, carried[0], [&](Value bit, Value count) {
              Value neuron = c.add(first, bit);
              c.store(
                  arith::TruncIOp::create(c.b, c.loc, c.b.getI32Type(), neuron),
                  entry(count));
              c.ifThen(lessThan(c, count, c.i64(kGroup)), [&] {
                Value row = m.row(c, neuron);
                c.loop(c.i64(0), c.i64(m.rowBytes), kCacheLine,
                       [&](Value b) { c.prefetch(c.at(row, b), kCacheLine); });
              });
              return c.add(count, 1);
            });
        return Values{next};
      })[0];

  Value none = c.i64(0);
  c.ifThen(lessThan(c, none, listed), [&] {
    Value last = c.sub(listed, c.i64(1));
    c.loop(none, listed, kGroup, [&](Value i) {
      // A last group that is not full computes its last row again.
      Values neurons, rows, ahead;
      auto keptAt = [&](Value index) {
        return c.toI64(c.load(c.b.getI32Type(), entry(c.min(index, last))));
      };
      for (int64_t r = 0; r < kGroup; ++r) {
        neurons.push_back(keptAt(c.add(i, r)));
        rows.push_back(m.row(c, neurons[r]));
        ahead.push_back(m.row(c, keptAt(c.add(i, kGroup + r))));
      }
      Value sums = emitDot4(c, m, rows, frame.rowOf(op.getX()), ahead);
      for (int64_t r = 0; r < kGroup; ++r)
        for (auto [value, row] : results)
          c.store(
              emitEpilogue(frame, value, op, c.extract(sums, r), neurons[r]),
              c.at(row, c.mul(neurons[r], 4)));
    });
  });
}

void foresight::emitSparseProduct(Frame &frame, Value begin, Value end) {
  CodeBuilder &c = frame.c;
  emitYieldedRows(frame, begin);
  int64_t most = frame.plan.info.grain;
  c.loop(begin, end, most, [&](Value from) {
    emitScored(frame, from, c.min(c.sub(end, from), c.i64(most)));
  });
}
