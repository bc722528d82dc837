//===- ColumnProduct.cpp - Sums of weight rows, a block of columns at a time =//
//
// The sums of a block lie in the first-level cache; several rows are added to
// each register of them before it is stored again. Every column adds its terms
// in ascending order, one fused multiply-add each, whether rows are all taken
// or come from a list and however they fall into groups, so both give equal
// bits.
//
//===----------------------------------------------------------------------===//

#include "Frame.h"

#include "foresight/abi/Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace foresight;

namespace {

using Values = CodeBuilder::Values;

constexpr int64_t kCacheLine = 64;

/// Adds rows `i` .. `i + count` of what is to be added to columns
/// [column, column + width) of the sums.
class ColumnEmitter {
public:
  ColumnEmitter(Frame &frame)
      : frame(frame), c(frame.c), op(frame.plan.column),
        element(
            cast<RankedTensorType>(op.getWeight().getType()).getElementType()),
        weight(frame.memoryOf(op.getWeight())),
        sums(frame.scratchAt(frame.plan.sums)) {}

  void emitUnit(Value unit);

private:
  void emitGroup(Value i, int64_t count, Value column, Value width,
                 bool prefetch);
  Value term(Value i);
  Value rowIndex(Value i);
  Value pieceOf(Value row, Value column) {
    return c.at(c.at(weight, c.mul(row, weightRowBytes(op.getWeight()))),
                c.mul(column, elementBytes(element)));
  }

  Frame &frame;
  CodeBuilder &c;
  ColumnLinearOp op;
  Type element;
  Value weight, sums;
};

Value ColumnEmitter::rowIndex(Value i) {
  if (!op.getSkipZeros())
    return i;
  return c.toI64(
      c.load(c.b.getI32Type(),
             c.at(frame.scratchAt(frame.plan.listRows), c.mul(i, 4))));
}

Value ColumnEmitter::term(Value i) {
  Value values = op.getSkipZeros() ? frame.scratchAt(frame.plan.listValues)
                                   : frame.rowOf(op.getX());
  return c.load(c.f32Type(), c.at(values, c.mul(i, 4)));
}

void ColumnEmitter::emitGroup(Value i, int64_t count, Value column, Value width,
                              bool prefetch) {
  int64_t bytes = elementBytes(element);
  Values rows, terms, ahead;
  for (int64_t r = 0; r < count; ++r) {
    Value index = c.add(i, r);
    rows.push_back(pieceOf(rowIndex(index), column));
    terms.push_back(c.splat(term(index), c.lanes));
    if (prefetch)
      ahead.push_back(pieceOf(rowIndex(c.add(index, count)), column));
  }
  for (Value row : ahead)
    c.loop(c.i64(0), c.mul(width, bytes), kCacheLine,
           [&](Value b) { c.prefetch(c.at(row, b)); });
  c.loop(c.i64(0), width, FORESIGHT_ROW_PAD, [&](Value k) {
    Value offset = c.mul(k, bytes);
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

void ColumnEmitter::emitUnit(Value unit) {
  int64_t perUnit = frame.plan.columnsPerUnit;
  int64_t columns = padRow(columnsOf(op.getResult()));
  Value column = c.mul(unit, perUnit);
  Value width = c.i64(perUnit);
  if (columns % perUnit != 0)
    width = c.min(width, c.sub(c.i64(columns), column));

  Value count = c.i64(columnsOf(op.getX()));
  if (op.getSkipZeros()) {
    count = c.load(c.b.getI64Type(), frame.scratchAt(frame.plan.listCount));
    Value pieces =
        arith::DivUIOp::create(c.b, c.loc, width, c.i64(FORESIGHT_ROW_PAD));
    c.store(arith::TruncIOp::create(c.b, c.loc, c.b.getI32Type(),
                                    c.mul(count, pieces)),
            c.at(frame.argument(frame.plan.countsArgument()), c.mul(unit, 4)));
  }
  c.zeroFill(sums, 4 * perUnit);
  Value grouped =
      c.mul(arith::DivUIOp::create(c.b, c.loc, count, c.i64(kColumnRows)),
            kColumnRows);
  c.loop(c.i64(0), grouped, kColumnRows, [&](Value i) {
    emitGroup(i, kColumnRows, column, width, /*prefetch=*/true);
  });
  c.loop(grouped, count, 1,
         [&](Value i) { emitGroup(i, 1, column, width, /*prefetch=*/false); });
  c.loop(c.i64(0), width, c.lanes, [&](Value k) {
    emitStores(frame, op, c.load(c.vec(c.lanes), c.at(sums, c.mul(k, 4))),
               c.add(column, k));
  });
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
  Value listed = c.loop(
      c.i64(0), c.i64(rows), c.lanes, ValueRange{c.i64(0)},
      [&](Value k, ValueRange carried) {
        Value v = c.load(c.vec(c.lanes), c.at(x, c.mul(k, 4)));
        Value differs =
            arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::UNE, v,
                                  c.constant(v.getType(), 0));
        if (rows % c.lanes != 0)
          differs = arith::AndIOp::create(c.b, c.loc, differs,
                                          c.lanesBelow(k, rows, c.lanes));
        Value mask = arith::ExtUIOp::create(
            c.b, c.loc, i32, c.bitcast(differs, c.b.getIntegerType(c.lanes)));
        return Values{
            c.forEachBit(mask, carried[0], [&](Value bit, Value count) {
              Value row = c.add(k, bit);
              Value entry = c.mul(count, 4);
              c.store(arith::TruncIOp::create(c.b, c.loc, i32, row),
                      c.at(listRows, entry));
              c.store(c.load(c.f32Type(), c.at(x, c.mul(row, 4))),
                      c.at(listValues, entry));
              return c.add(count, 1);
            })};
      })[0];
  c.store(listed, frame.scratchAt(frame.plan.listCount));
  // What is prefetched behind the end is row 0.
  c.zeroFill(c.at(listRows, c.mul(listed, 4)), 4 * kColumnRows * 2);
}
