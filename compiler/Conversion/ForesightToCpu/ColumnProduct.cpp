//===- ColumnProduct.cpp - Sums of weight rows ----------------------------===//
//
// A unit adds up one segment of the rows, whole rows, so that memory is read as
// it lies: a block of columns would take a piece of every row, and what
// hardware fetches ahead of each piece is lost (half of the bandwidth at 512
// bytes). A segment is a few streams of rows, which a worker reads side by
// side: one stream does not keep memory busy. Sums of streams are in the
// worker's scratch, those of segments in memory that workers share. Whoever
// finishes the last unit adds them up in order and runs the epilogue.
//
// Every column of a stream adds its terms in ascending order, one fused
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

  /// Asks for the first listed rows from `unit` on.
  void emitPrefetch(Value unit);

private:
  /// Rows that are added to one row of sums, and rows to prefetch meanwhile.
  struct Stream {
    Values rows, terms, ahead;
    Value sums;
  };

  Stream rowsFrom(Value i, int64_t count, Value sums);
  void emitGroup(ArrayRef<Stream> streams);
  void emitListed(Value unit);
  void emitAll(Value unit);
  void emitTotal();
  Value term(Value i);
  Value rowAt(Value i);
  Value startOf(Value stream) {
    Value starts = frame.scratchAt(frame.plan.listStarts);
    return c.toI64(c.load(c.b.getI32Type(), c.at(starts, c.mul(stream, 4))));
  }
  Value sumsOf(Value unit) {
    return c.at(c.at(shared, kCacheLine), c.mul(unit, 4 * columns));
  }
  Value sumsOfStream(Value stream) {
    return c.at(frame.scratchAt(frame.plan.streamSums),
                c.mul(stream, 4 * columns));
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

/// `count` terms from the i-th on. Listed rows are prefetched a group ahead;
/// others are streams that hardware follows.
ColumnEmitter::Stream ColumnEmitter::rowsFrom(Value i, int64_t count,
                                              Value sums) {
  Stream stream;
  stream.sums = sums;
  for (int64_t r = 0; r < count; ++r) {
    Value index = c.add(i, r);
    stream.rows.push_back(rowAt(index));
    stream.terms.push_back(c.splat(term(index), c.lanes));
    if (op.getSkipZeros())
      stream.ahead.push_back(rowAt(c.add(index, kColumnRows)));
  }
  return stream;
}

void ColumnEmitter::emitGroup(ArrayRef<Stream> streams) {
  int64_t bytes = elementBytes(element);
  c.loop(c.i64(0), c.i64(columns), FORESIGHT_ROW_PAD, [&](Value k) {
    Value offset = c.mul(k, bytes);
    for (const Stream &stream : streams)
      for (Value row : stream.ahead)
        c.prefetch(c.at(row, offset), FORESIGHT_ROW_PAD * bytes);
    for (int64_t j = 0; j < FORESIGHT_ROW_PAD; j += c.lanes)
      for (const Stream &stream : streams) {
        Value place = c.at(c.at(stream.sums, c.mul(k, 4)), 4 * j);
        Value sum = c.load(c.vec(c.lanes), place);
        for (auto [row, x] : llvm::zip(stream.rows, stream.terms)) {
          Value from = c.at(c.at(row, offset), bytes * j);
          sum = c.fma(x, c.loadWidened(element, c.lanes, from), sum);
        }
        c.store(sum, place);
      }
  });
}

void ColumnEmitter::emitPrefetch(Value unit) {
  Value first = startOf(c.mul(unit, frame.plan.streams));
  for (int64_t r = 0; r < kColumnRows; ++r) {
    Value row = rowAt(c.add(first, r));
    c.loop(c.i64(0), c.i64(weightRowBytes(op.getWeight())), kCacheLine,
           [&](Value b) { c.prefetch(c.at(row, b), kCacheLine); });
  }
}

/// The listed rows of a unit, stream after stream.
void ColumnEmitter::emitListed(Value unit) {
  Value first = c.mul(unit, frame.plan.streams);
  Value listed =
      c.sub(startOf(c.add(first, frame.plan.streams)), startOf(first));
  c.store(arith::TruncIOp::create(c.b, c.loc, c.b.getI32Type(), listed),
          c.at(frame.argument(frame.plan.countsArgument()), c.mul(unit, 4)));
  c.loop(c.i64(0), c.i64(frame.plan.streams), 1, [&](Value s) {
    Value from = startOf(c.add(first, s));
    Value to = startOf(c.add(c.add(first, s), 1));
    Value groups =
        arith::DivUIOp::create(c.b, c.loc, c.sub(to, from), c.i64(kColumnRows));
    Value grouped = c.add(from, c.mul(groups, kColumnRows));
    Value sums = sumsOfStream(s);
    c.loop(from, grouped, kColumnRows,
           [&](Value i) { emitGroup(rowsFrom(i, kColumnRows, sums)); });
    c.loop(grouped, to, 1, [&](Value i) { emitGroup(rowsFrom(i, 1, sums)); });
  });
}

/// All rows of a unit, its streams side by side; what the last one lacks, the
/// others add by themselves.
void ColumnEmitter::emitAll(Value unit) {
  int64_t streams = frame.plan.streams, length = frame.plan.rowsPerStream;
  int64_t atOnce = frame.plan.rowsAtOnce;
  Value first = c.mul(unit, streams * length);
  Value count = c.sub(c.i64(columnsOf(op.getX())), first);
  auto lengthOf = [&](Value s) {
    Value rest = c.sub(count, c.mul(s, length));
    return c.max(c.min(rest, c.i64(length)), c.i64(0));
  };
  Value common = lengthOf(c.i64(streams - 1));
  Value grouped =
      c.mul(arith::DivUIOp::create(c.b, c.loc, common, c.i64(atOnce)), atOnce);
  c.loop(c.i64(0), grouped, atOnce, [&](Value i) {
    SmallVector<Stream> group;
    for (int64_t s = 0; s < streams; ++s)
      group.push_back(rowsFrom(c.add(c.add(first, i), s * length), atOnce,
                               sumsOfStream(c.i64(s))));
    emitGroup(group);
  });
  c.loop(c.i64(0), c.i64(streams), 1, [&](Value s) {
    Value start = c.add(first, c.mul(s, length));
    c.loop(grouped, lengthOf(s), 1, [&](Value i) {
      emitGroup(rowsFrom(c.add(start, i), 1, sumsOfStream(s)));
    });
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
  c.zeroFill(sumsOfStream(c.i64(0)), 4 * columns * frame.plan.streams);
  if (op.getSkipZeros())
    emitListed(unit);
  else
    emitAll(unit);
  c.loop(c.i64(0), c.i64(columns), c.lanes, [&](Value k) {
    Value offset = c.mul(k, 4), sum;
    for (int64_t s = 0; s < frame.plan.streams; ++s) {
      Value part = c.load(c.vec(c.lanes), c.at(sumsOfStream(c.i64(s)), offset));
      sum = sum ? c.fadd(sum, part) : part;
    }
    c.store(sum, c.at(sumsOf(unit), offset));
  });

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
  if (frame.plan.info.hasCounts)
    emitter.emitPrefetch(begin);
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
  int64_t length = frame.plan.rowsPerStream;
  auto narrow = [&](Value i) {
    return arith::TruncIOp::create(c.b, c.loc, i32, i);
  };
  Value none = c.i64(0);
  c.store(narrow(none), listStarts);
  Value listed = c.loop(
      none, c.i64(frame.plan.info.units * frame.plan.streams), 1,
      ValueRange{none}, [&](Value stream, ValueRange before) {
        Value first = c.mul(stream, length);
        Value last = c.min(c.add(first, length), c.i64(rows));
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
        c.store(narrow(count), c.at(c.at(listStarts, 4), c.mul(stream, 4)));
        return Values{count};
      })[0];
  // What is prefetched behind the end is row 0.
  c.zeroFill(c.at(listRows, c.mul(listed, 4)), 4 * kColumnRows);
}
