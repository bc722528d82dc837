//===- ColumnProduct.cpp - Sums of weight rows ----------------------------===//
//
// A unit adds up one segment of the rows, whole rows, so that memory is read as
// it lies: a block of columns would take a piece of every row, and what
// hardware fetches ahead of each piece is lost (half of the bandwidth at 512
// bytes). A segment is four streams of rows, a quarter of it each, which a
// worker reads side by side, a row of each at a time: hardware follows a stream
// from row to row. All go to one row of sums, which stays in the first-level
// cache; it is in memory that workers share. Whoever finishes the second of two
// neighbours adds up both, then of two pairs and so on; whoever has the sums of
// all runs the epilogue.
//
// Every column of a segment adds its terms in one order, the first rows of the
// four streams, then the second ones and so on, one fused multiply-add each,
// whether rows are all taken or come from a list and however they fall into
// groups, so both give equal bits.
//
//===----------------------------------------------------------------------===//

#include "Frame.h"

#include "foresight/abi/Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <numeric>

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

  void emitUnits(Value begin, Value end);

private:
  /// Rows that are added to sums at a time, and rows to prefetch meanwhile.
  struct Group {
    Values rows, terms, ahead;
  };

  void emitUnit(Value unit);
  void emitPrefetch(Value unit);
  void addTerm(Group &group, Value i);
  Group listedFrom(Value i, int64_t count);
  void emitGroup(const Group &group, Value sums);
  void emitListed(Value unit);
  void emitAll(Value unit);
  void emitTotal(Value unit, int64_t width);
  Value term(Value i);
  Value rowAt(Value i);
  /// Where a unit's part of the list starts.
  Value startOf(Value unit) {
    Value starts = frame.scratchAt(frame.plan.listStarts);
    return c.toI64(c.load(c.b.getI32Type(), c.at(starts, c.mul(unit, 4))));
  }
  Value sumsOf(Value unit) {
    return c.at(c.at(shared, kCacheLine), c.mul(unit, 4 * columns));
  }

  Frame &frame;
  CodeBuilder &c;
  ColumnLinearOp op;
  Type element;
  /// `shared`: counts, then a row of sums for each unit.
  Value weight, shared;
  /// Index of the last listed row of the claim.
  Value lastListed;
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

void ColumnEmitter::addTerm(Group &group, Value i) {
  group.rows.push_back(rowAt(i));
  group.terms.push_back(c.splat(term(i), c.lanes));
}

/// `count` listed terms from the i-th on. Their rows are anywhere, so they are
/// prefetched a group ahead; others are streams that hardware follows.
ColumnEmitter::Group ColumnEmitter::listedFrom(Value i, int64_t count) {
  Group group;
  for (int64_t r = 0; r < count; ++r) {
    addTerm(group, c.add(i, r));
    group.ahead.push_back(rowAt(c.min(c.add(i, kColumnRows + r), lastListed)));
  }
  return group;
}

void ColumnEmitter::emitGroup(const Group &group, Value sums) {
  int64_t bytes = elementBytes(element);
  c.loop(c.i64(0), c.i64(columns), FORESIGHT_ROW_PAD, [&](Value k) {
    Value offset = c.mul(k, bytes);
    for (Value row : group.ahead)
      c.prefetch(c.at(row, offset), FORESIGHT_ROW_PAD * bytes);
    for (int64_t j = 0; j < FORESIGHT_ROW_PAD; j += c.lanes) {
      Value place = c.at(c.at(sums, c.mul(k, 4)), 4 * j);
      Value sum = c.load(c.vec(c.lanes), place);
      for (auto [row, x] : llvm::zip(group.rows, group.terms)) {
        Value from = c.at(c.at(row, offset), bytes * j);
        sum = c.fma(x, c.loadWidened(element, c.lanes, from), sum);
      }
      c.store(sum, place);
    }
  });
}

/// Asks for the first listed rows from `unit` on.
void ColumnEmitter::emitPrefetch(Value unit) {
  Value first = startOf(unit);
  for (int64_t r = 0; r < kColumnRows; ++r) {
    Value row = rowAt(c.min(c.add(first, r), lastListed));
    c.loop(c.i64(0), c.i64(weightRowBytes(op.getWeight())), kCacheLine,
           [&](Value b) { c.prefetch(c.at(row, b), kCacheLine); });
  }
}

void ColumnEmitter::emitListed(Value unit) {
  Value from = startOf(unit), to = startOf(c.add(unit, 1));
  Value count = c.sub(to, from);
  c.store(arith::TruncIOp::create(c.b, c.loc, c.b.getI32Type(), count),
          c.at(frame.argument(frame.plan.countsArgument()), c.mul(unit, 4)));
  Value groups = arith::DivUIOp::create(c.b, c.loc, count, c.i64(kColumnRows));
  Value grouped = c.add(from, c.mul(groups, kColumnRows));
  Value sums = sumsOf(unit);
  c.loop(from, grouped, kColumnRows,
         [&](Value i) { emitGroup(listedFrom(i, kColumnRows), sums); });
  c.loop(grouped, to, 1, [&](Value i) { emitGroup(listedFrom(i, 1), sums); });
}

/// All rows of a unit. What the last stream lacks, the others add row by row.
void ColumnEmitter::emitAll(Value unit) {
  int64_t length = frame.plan.rowsPerStream;
  Value first = c.mul(unit, kColumnStreams * length);
  Value count = c.sub(c.i64(columnsOf(op.getX())), first);
  Value longest = c.min(count, c.i64(length));
  Value common = c.max(
      c.min(c.sub(count, c.i64((kColumnStreams - 1) * length)), c.i64(length)),
      c.i64(0));
  Value sums = sumsOf(unit);
  c.loop(c.i64(0), common, 1, [&](Value i) {
    Group group;
    for (int64_t s = 0; s < kColumnStreams; ++s)
      addTerm(group, c.add(c.add(first, i), s * length));
    emitGroup(group, sums);
  });
  c.loop(common, longest, 1, [&](Value i) {
    // The rows i, length + i ... that the unit has.
    c.loop(i, c.min(count, c.i64(kColumnStreams * length)), length,
           [&](Value row) {
             Group group;
             addTerm(group, c.add(first, row));
             emitGroup(group, sums);
           });
  });
}

/// The sums of the `width` units from `unit` on are complete. If those of the
/// neighbour are too, adds them up; without one, stores what follows. Both of a
/// pair count it in each call, and the second one, who finds an odd count,
/// adds: counts need no reset.
void ColumnEmitter::emitTotal(Value unit, int64_t width) {
  int64_t units = frame.plan.info.units;
  if (width >= units) {
    c.loop(c.i64(0), c.i64(columns), c.lanes, [&](Value k) {
      Value place = c.at(sumsOf(unit), c.mul(k, 4));
      emitStores(frame, op, c.load(c.vec(c.lanes), place), k);
    });
    return;
  }
  // The first unit of the right one names the pair. Units past the last have
  // nothing to add: the left one counts 0, in a count that is not theirs.
  Value right = arith::OrIOp::create(c.b, c.loc, unit, c.i64(width));
  Value left = c.sub(right, c.i64(width));
  Value isPair = arith::CmpIOp::create(c.b, c.loc, arith::CmpIPredicate::slt,
                                       right, c.i64(units));
  Value count = c.at(shared, c.mul(c.select(isPair, right, c.i64(0)), 4));
  // Acquire and release: the second one sees the sums of the first.
  Value before = LLVM::AtomicRMWOp::create(
      c.b, c.loc, LLVM::AtomicBinOp::add, count,
      c.select(isPair, c.i32(1), c.i32(0)), LLVM::AtomicOrdering::acq_rel);
  Value isSecond = arith::TruncIOp::create(c.b, c.loc, c.b.getI1Type(), before);
  c.ifThen(isSecond, [&] {
    Value to = sumsOf(left), from = sumsOf(right);
    c.loop(c.i64(0), c.i64(columns), c.lanes, [&](Value k) {
      Value place = c.at(to, c.mul(k, 4));
      Value sum = c.load(c.vec(c.lanes), place);
      Value other = c.load(c.vec(c.lanes), c.at(from, c.mul(k, 4)));
      c.store(c.fadd(sum, other), place);
    });
  });
  Value isComplete =
      c.select(isPair, isSecond,
               arith::ConstantOp::create(c.b, c.loc, c.b.getBoolAttr(true)));
  c.ifThen(isComplete, [&] { emitTotal(left, 2 * width); });
}

void ColumnEmitter::emitUnit(Value unit) {
  c.zeroFill(sumsOf(unit), 4 * columns);
  if (op.getSkipZeros())
    emitListed(unit);
  else
    emitAll(unit);
  emitTotal(unit, 1);
}

void ColumnEmitter::emitUnits(Value begin, Value end) {
  if (op.getSkipZeros()) {
    lastListed = c.max(c.sub(startOf(end), c.i64(1)), c.i64(0));
    emitPrefetch(begin);
  }
  c.loop(begin, end, 1, [&](Value unit) { emitUnit(unit); });
}

} // namespace

void foresight::emitColumnProduct(Frame &frame, Value begin, Value end) {
  ColumnEmitter(frame).emitUnits(begin, end);
}

/// The rows from the k-th on of each stream of a segment whose term is not
/// zero, as bits: bit n is for stream n % kColumnStreams.
static Value emitNonZeroMask(Frame &frame, Value first, Value k) {
  CodeBuilder &c = frame.c;
  ColumnLinearOp op = frame.plan.column;
  int64_t rows = columnsOf(op.getX()), length = frame.plan.rowsPerStream;
  Value x = frame.rowOf(op.getX());
  bool isFull = rows % (kColumnStreams * length) == 0;
  Values differ;
  for (int64_t s = 0; s < kColumnStreams; ++s) {
    Value row = c.add(c.add(first, k), s * length);
    Value from =
        isFull ? row : c.min(row, c.i64(padRow(rows) - kColumnMaskRows));
    Value v = c.load(c.vec(kColumnMaskRows), c.at(x, c.mul(from, 4)));
    Value differs = arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::UNE,
                                          v, c.constant(v.getType(), 0));
    if (!isFull)
      differs = arith::AndIOp::create(c.b, c.loc, differs,
                                      c.lanesBelow(row, rows, kColumnMaskRows));
    differ.push_back(differs);
  }
  SmallVector<int64_t> joined(2 * kColumnMaskRows), woven;
  std::iota(joined.begin(), joined.end(), 0);
  for (int64_t i = 0; i < kColumnMaskRows; ++i)
    for (int64_t s = 0; s < kColumnStreams; ++s)
      woven.push_back(s * kColumnMaskRows + i);
  static_assert(kColumnStreams == 4 && kColumnStreams * kColumnMaskRows == 32);
  Value bits = c.shuffle(c.shuffle(differ[0], differ[1], joined),
                         c.shuffle(differ[2], differ[3], joined), woven);
  return c.bitcast(bits, c.vec(1, c.b.getI32Type()));
}

/// Lists rows whose term is not zero, with their terms, in the order of their
/// sums. NaN counts as not zero.
void foresight::emitListNonZero(Frame &frame) {
  CodeBuilder &c = frame.c;
  ColumnLinearOp op = frame.plan.column;
  Value x = frame.rowOf(op.getX());
  Value listRows = frame.scratchAt(frame.plan.listRows);
  Value listValues = frame.scratchAt(frame.plan.listValues);
  Type i32 = c.b.getI32Type();
  Value listStarts = frame.scratchAt(frame.plan.listStarts);
  int64_t length = frame.plan.rowsPerStream;
  auto narrow = [&](Value i) {
    return arith::TruncIOp::create(c.b, c.loc, i32, i);
  };
  Value none = c.i64(0), streams = c.i64(kColumnStreams);
  c.store(narrow(none), listStarts);
  Value listed = c.loop(
      none, c.i64(frame.plan.info.units), 1, ValueRange{none},
      [&](Value unit, ValueRange before) {
        Value first = c.mul(unit, kColumnStreams * length);
        Value count = c.loop(
            none, c.i64(length), kColumnMaskRows, before,
            [&](Value k, ValueRange carried) {
              Value mask = c.extract(emitNonZeroMask(frame, first, k), 0);
              return Values{
                  c.forEachBit(mask, carried[0], [&](Value bit, Value count) {
                    Value i = arith::DivUIOp::create(c.b, c.loc, bit, streams);
                    Value s = arith::RemUIOp::create(c.b, c.loc, bit, streams);
                    Value row =
                        c.add(c.add(first, k), c.add(i, c.mul(s, length)));
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
  // What is prefetched of an empty list is row 0.
  c.zeroFill(c.at(listRows, c.mul(listed, 4)), 4);
}
