//===- ColumnProduct.cpp - Sums of weight rows ----------------------------===//
//
// A unit adds up one segment of the rows, whole rows, so that memory is read as
// it lies: a block of columns would take a piece of every row, and what
// hardware fetches ahead of each piece is lost (half of the bandwidth at 512
// bytes). Sums of segments go to memory that workers share. Whoever finishes
// the last unit adds them up in order and runs the epilogue.
//
// Every column of a segment adds its terms in ascending order, one fused
// multiply-add each, whether rows are all taken or come from a list and however
// they fall into groups, so both give equal bits.
//
//===----------------------------------------------------------------------===//

#include "Frame.h"

#include "foresight/abi/Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace foresight;

namespace {

using Values = CodeBuilder::Values;

constexpr int64_t kCacheLine = 64;

class ColumnEmitter {
public:
  ColumnEmitter(Frame &frame)
      : frame(frame), c(frame.c), op(frame.plan.column),
        element(
            cast<RankedTensorType>(op.getWeight().getType()).getElementType()),
        weight(frame.memoryOf(op.getWeight())),
        shared(frame.argument(frame.plan.sharedArgument())),
        columns(padRow(columnsOf(op.getResult()))) {}

  void emitUnit(Value unit);

private:
  void emitGroup(Value i, int64_t count, Value sums);
  void emitTotal();
  Value term(Value i);
  Value rowAt(Value i);
  Value sumsOf(Value unit) {
    return c.at(c.at(shared, kCacheLine), c.mul(unit, 4 * columns));
  }

  Frame &frame;
  CodeBuilder &c;
  ColumnLinearOp op;
  Type element;
  /// `shared`: a count of finished units, then a row of sums for each.
  Value weight, shared;
  int64_t columns;
};

/// The row that the i-th term multiplies.
Value ColumnEmitter::rowAt(Value i) {
  if (op.getSkipZeros())
    i = c.toI64(
        c.load(c.b.getI32Type(),
               c.at(frame.scratchAt(frame.plan.listRows), c.mul(i, 4))));
  return c.at(weight, c.mul(i, weightRowBytes(op.getWeight())));
}

Value ColumnEmitter::term(Value i) {
  Value values = op.getSkipZeros() ? frame.scratchAt(frame.plan.listValues)
                                   : frame.rowOf(op.getX());
  return c.load(c.f32Type(), c.at(values, c.mul(i, 4)));
}

/// Adds `count` terms from the i-th on, and prefetches as many behind them.
void ColumnEmitter::emitGroup(Value i, int64_t count, Value sums) {
  int64_t bytes = elementBytes(element);
  Values rows, terms, ahead;
  int64_t distance = prefetchDistance(count * weightRowBytes(op.getWeight()));
  for (int64_t r = 0; r < count; ++r) {
    Value index = c.add(i, r);
    rows.push_back(rowAt(index));
    terms.push_back(c.splat(term(index), c.lanes));
    if (count == 1)
      continue;
    // Listed rows are where the list says, others follow each other.
    ahead.push_back(op.getSkipZeros() ? rowAt(c.add(index, count))
                                      : c.at(rows[r], distance));
  }
  c.loop(c.i64(0), c.i64(columns), FORESIGHT_ROW_PAD, [&](Value k) {
    Value offset = c.mul(k, bytes);
    for (Value row : ahead)
      c.prefetch(c.at(row, offset), FORESIGHT_ROW_PAD * bytes);
    for (int64_t j = 0; j < FORESIGHT_ROW_PAD; j += c.lanes) {
      Value place = c.at(c.at(sums, c.mul(k, 4)), 4 * j);
      Value sum = c.load(c.vec(c.lanes), place);
      for (auto [row, x] : llvm::zip(rows, terms))
        sum = c.fma(
            x,
            c.loadWidened(element, c.lanes, c.at(c.at(row, offset), bytes * j)),
            sum);
      c.store(sum, place);
    }
  });
}

/// Adds the sums of all units and stores what follows.
void ColumnEmitter::emitTotal() {
  c.loop(c.i64(0), c.i64(columns), c.lanes, [&](Value k) {
    Value total;
    for (int64_t unit = 0; unit < frame.plan.info.units; ++unit) {
      Value sum =
          c.load(c.vec(c.lanes), c.at(sumsOf(c.i64(unit)), c.mul(k, 4)));
      total = total ? c.fadd(total, sum) : sum;
    }
    emitStores(frame, op, total, k);
  });
}

void ColumnEmitter::emitUnit(Value unit) {
  int64_t units = frame.plan.info.units;
  Value first = c.mul(unit, frame.plan.rowsPerUnit);
  Value last =
      c.min(c.add(first, frame.plan.rowsPerUnit), c.i64(columnsOf(op.getX())));
  if (op.getSkipZeros()) {
    Value starts = c.at(frame.scratchAt(frame.plan.listStarts), c.mul(unit, 4));
    Type i32 = c.b.getI32Type();
    Value from = c.load(i32, starts), to = c.load(i32, c.at(starts, 4));
    c.store(c.sub(to, from),
            c.at(frame.argument(frame.plan.countsArgument()), c.mul(unit, 4)));
    first = c.toI64(from);
    last = c.toI64(to);
  }
  Value sums = sumsOf(unit);
  c.zeroFill(sums, 4 * columns);
  // A pointer for each row ahead leaves registers for four rows.
  int64_t group = op.getSkipZeros() ? kColumnRows : 2 * kColumnRows;
  Value groups =
      arith::DivUIOp::create(c.b, c.loc, c.sub(last, first), c.i64(group));
  Value grouped = c.add(first, c.mul(groups, group));
  c.loop(first, grouped, group, [&](Value i) { emitGroup(i, group, sums); });
  c.loop(grouped, last, 1, [&](Value i) { emitGroup(i, 1, sums); });

  // Every call finishes each unit once, so the count needs no reset. Acquire
  // and release: the last one sees the sums of all.
  Value before =
      LLVM::AtomicRMWOp::create(c.b, c.loc, LLVM::AtomicBinOp::add, shared,
                                c.i64(1), LLVM::AtomicOrdering::acq_rel);
  Value rest =
      arith::RemUIOp::create(c.b, c.loc, c.add(before, 1), c.i64(units));
  Value isLast = arith::CmpIOp::create(c.b, c.loc, arith::CmpIPredicate::eq,
                                       rest, c.i64(0));
  c.ifThen(isLast, [&] { emitTotal(); });
}

} // namespace

void foresight::emitColumnProduct(Frame &frame, Value begin, Value end) {
  ColumnEmitter emitter(frame);
  frame.c.loop(begin, end, 1, [&](Value unit) { emitter.emitUnit(unit); });
}

/// Lists rows whose term is not zero, with their terms. NaN counts as not zero.
void foresight::emitListNonZero(Frame &frame) {
  CodeBuilder &c = frame.c;
  ColumnLinearOp op = frame.plan.column;
  int64_t rows = columnsOf(op.getX());
  Value x = frame.rowOf(op.getX());
  Value listRows = frame.scratchAt(frame.plan.listRows);
  Value listValues = frame.scratchAt(frame.plan.listValues);
  Type i32 = c.b.getI32Type();
  Value listStarts = frame.scratchAt(frame.plan.listStarts);
  int64_t perUnit = frame.plan.rowsPerUnit;
  auto narrow = [&](Value i) {
    return arith::TruncIOp::create(c.b, c.loc, i32, i);
  };
  Value none = c.i64(0);
  c.store(narrow(none), listStarts);
  Value listed = c.loop(
      none, c.i64(frame.plan.info.units), 1, ValueRange{none},
      [&](Value unit, ValueRange before) {
        Value first = c.mul(unit, perUnit);
        Value last = c.min(c.add(first, perUnit), c.i64(rows));
        Value count = c.loop(
            first, last, c.lanes, before, [&](Value k, ValueRange carried) {
              Value v = c.load(c.vec(c.lanes), c.at(x, c.mul(k, 4)));
              Value differs =
                  arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::UNE,
                                        v, c.constant(v.getType(), 0));
              if (rows % c.lanes != 0)
                differs = arith::AndIOp::create(c.b, c.loc, differs,
                                                c.lanesBelow(k, rows, c.lanes));
              Value mask = arith::ExtUIOp::create(
                  c.b, c.loc, i32,
                  c.bitcast(differs, c.b.getIntegerType(c.lanes)));
              return Values{
                  c.forEachBit(mask, carried[0], [&](Value bit, Value count) {
                    Value row = c.add(k, bit);
                    Value entry = c.mul(count, 4);
                    c.store(narrow(row), c.at(listRows, entry));
                    c.store(c.load(c.f32Type(), c.at(x, c.mul(row, 4))),
                            c.at(listValues, entry));
                    return c.add(count, 1);
                  })};
            })[0];
        c.store(narrow(count), c.at(c.at(listStarts, 4), c.mul(unit, 4)));
        return Values{count};
      })[0];
  // What is prefetched behind the end is row 0.
  c.zeroFill(c.at(listRows, c.mul(listed, 4)), 4 * kColumnRows);
}
