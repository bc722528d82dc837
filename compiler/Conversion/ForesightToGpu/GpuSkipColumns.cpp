//===- GpuSkipColumns.cpp - Sums of the weight rows that add something ----===//
//
// Blocks, groups and the order of their sums are those of the dense product, in
// GpuColumnProduct.cpp: row r belongs to group r % groups, and a term that is
// left out would have added zero. Each group first lists its rows whose input
// is not zero, then walks only those.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"
#include "GpuWarp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

constexpr int64_t kColumns = 32;
/// Rows of a lane that are under way at once, and inputs of one.
constexpr int64_t kLoads = 8, kInputs = 8;

class SkipColumnsEmitter {
public:
  explicit SkipColumnsEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), op(frame.plan.column),
        element(gpuElement(op.getWeight())), per(elementsOf16(element)),
        lanesPerRow(kColumns / per), groups(c.threads / lanesPerRow),
        rows(gpuColumns(op.getX())), rowBytes(gpuRowBytes(op.getWeight())) {}

  void emit();

private:
  Value listRows();
  Values loadRows(Value from, Value count);
  Values walk(Value count);
  void finish(ArrayRef<Value> sums);
  Value isNotZero(Value x) {
    // A NaN is not zero.
    return arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::UNE, x,
                                 c.f32(0));
  }
  Value listAt(Value index) {
    return c.at(list, c.mul(c.add(c.mul(index, groups), group), 2));
  }

  GpuFrame &frame;
  GpuCode &c;
  ColumnLinearOp op;
  Type element;
  int64_t per, lanesPerRow, groups, rows, rowBytes;
  Value x, parts, counts, list, group, part;
};

/// The lanes of a group look at its rows in turn. An entry is r / groups.
Value SkipColumnsEmitter::listRows() {
  Type i16 = c.b.getI16Type();
  Value firstLane = c.sub(c.lane, part);
  Value one = c.i32(1);
  Value below =
      c.sub(arith::ShLIOp::create(c.b, c.loc, one, narrow(c, part)), one);
  int64_t turns = (rows + groups - 1) / groups, step = lanesPerRow * kInputs;
  Values counted = c.loop(
      c.i64(0), c.i64(turns), step, Values{c.i64(0), c.i32(0)},
      [&](Value from, ValueRange carried) {
        Value count = carried[0], ofWarp = carried[1];
        Values indices, inputs;
        for (int64_t i = 0; i < kInputs; ++i) {
          Value index = c.add(c.add(from, part), i * lanesPerRow);
          Value row = c.add(c.mul(index, groups), group);
          Value input = c.load(c.f32Type(),
                               c.at(x, c.mul(c.min(row, c.i64(rows - 1)), 4)));
          indices.push_back(index);
          inputs.push_back(
              c.select(c.lessThan(row, c.i64(rows)), input, c.f32(0)));
        }
        for (int64_t i = 0; i < kInputs; ++i) {
          Value isListed = isNotZero(inputs[i]);
          Value all = ballot(c, isListed);
          Value mine = bitAnd(
              c, arith::ShRUIOp::create(c.b, c.loc, all, narrow(c, firstLane)),
              (1 << lanesPerRow) - 1);
          Value before =
              popCount(c, arith::AndIOp::create(c.b, c.loc, mine, below));
          Value place = c.add(count, c.toI64(before));
          c.ifThen(isListed, [&] {
            c.store(arith::TruncIOp::create(c.b, c.loc, i16, indices[i]),
                    listAt(place));
          });
          count = c.add(count, c.toI64(popCount(c, mine)));
          ofWarp = c.add(ofWarp, popCount(c, all));
        }
        return Values{count, ofWarp};
      });
  c.ifThen(c.isEqual(c.lane, 0),
           [&] { c.store(counted[1], c.at(counts, c.mul(c.warp, 4))); });
  syncWarp(c);
  return counted[0];
}

/// Pieces of the listed rows from `from` on, then their inputs; zeros, and
/// nothing is read, if there is no such row.
Values SkipColumnsEmitter::loadRows(Value from, Value count) {
  Values nothing(kLoads, c.constant(c.vec(4, c.b.getI32Type()), 0));
  nothing.append(kLoads, c.f32(0));
  auto load = [&] {
    Value base = c.at(frame.memoryOf(op.getWeight()),
                      c.add(c.mul(c.block, kColumns * elementBytes(element)),
                            c.mul(part, 16)));
    Value last = c.sub(count, c.i64(1));
    Values loaded, inputs;
    for (int64_t i = 0; i < kLoads; ++i) {
      Value index = c.add(from, i);
      Value entry = c.load(c.b.getI16Type(), listAt(c.min(index, last)));
      Value row = c.add(
          c.mul(arith::ExtUIOp::create(c.b, c.loc, c.b.getI64Type(), entry),
                groups),
          group);
      loaded.push_back(c.load16(element, c.at(base, c.mul(row, rowBytes))));
      Value input = c.load(c.f32Type(), c.at(x, c.mul(row, 4)));
      inputs.push_back(c.select(c.lessThan(index, count), input, c.f32(0)));
    }
    loaded.append(inputs);
    return loaded;
  };
  auto any = scf::IfOp::create(
      c.b, c.loc, c.lessThan(from, count),
      [&](OpBuilder &, Location) { scf::YieldOp::create(c.b, c.loc, load()); },
      [&](OpBuilder &, Location) {
        scf::YieldOp::create(c.b, c.loc, nothing);
      });
  return Values(any.getResults());
}

/// What is loaded goes round the loop: inside one turn the assembler would wait
/// for each row before it asks for the next.
Values SkipColumnsEmitter::walk(Value count) {
  Values init(per, c.f32(0));
  init.append(loadRows(c.i64(0), count));
  Values out = c.loop(
      c.i64(0), count, kLoads, init, [&](Value from, ValueRange carried) {
        Values sums(carried.take_front(per));
        Values loaded(carried.drop_front(per).take_front(kLoads));
        Values inputs(carried.take_back(kLoads));
        Values next = loadRows(c.add(from, kLoads), count);
        for (int64_t i = 0; i < kLoads; ++i) {
          Value w = c.widen(loaded[i], element);
          for (int64_t e = 0; e < per; ++e)
            sums[e] = c.fma(inputs[i], c.extract(w, e), sums[e]);
        }
        sums.append(next);
        return sums;
      });
  out.truncate(per);
  return out;
}

/// As for the dense product: lanes of a warp that hold the same columns, then
/// the warps.
void SkipColumnsEmitter::finish(ArrayRef<Value> sums) {
  for (int64_t e = 0; e < per; ++e) {
    Value sum = c.sumOver(sums[e], lanesPerRow, kWarp);
    c.ifThen(c.lessThan(c.lane, c.i64(lanesPerRow)), [&] {
      Value place = c.add(c.add(c.mul(c.warp, kColumns), c.mul(part, per)), e);
      c.store(sum, c.at(parts, c.mul(place, 4)));
    });
  }
  c.barrier();
  int64_t columns = gpuColumns(op.getResult());
  c.ifThen(c.lessThan(c.thread, c.i64(kColumns)), [&] {
    Value sum = c.f32(0);
    for (int64_t w = 0; w < c.warps(); ++w)
      sum = c.fadd(
          sum, c.load(c.f32Type(),
                      c.at(parts, c.mul(c.add(c.thread, w * kColumns), 4))));
    Value column = c.add(c.mul(c.block, kColumns), c.thread);
    for (auto [value, row] : frame.resultsOf(
             [&](Value v) { return frame.plan.productOf.contains(v); })) {
      Value result = emitGpuEpilogue(frame, value, op, sum, column);
      if (columns != padRow(columns))
        result = c.select(c.lessThan(column, c.i64(columns)), result, c.f32(0));
      c.store(result, c.at(row, c.mul(column, 4)));
    }
  });
  c.ifThen(c.isEqual(c.thread, 0), [&] {
    Value count = c.i32(0);
    for (int64_t w = 0; w < c.warps(); ++w)
      count = c.add(count, c.load(c.b.getI32Type(), c.at(counts, 4 * w)));
    Value memory = frame.parameters[frame.parameters.size() - 2];
    c.store(count, c.at(memory, c.mul(c.block, 4)));
  });
}

void SkipColumnsEmitter::emit() {
  group = c.div(c.thread, lanesPerRow);
  part = c.rem(c.thread, lanesPerRow);
  parts = c.at(frame.shared, frame.plan.rowAt);
  counts = c.at(parts, 4 * kColumns * c.warps());
  list = c.at(counts, kReduceBytes);
  c.waitForInputs();
  c.letDependentsStart();
  x = frame.rowOf(op.getX());
  finish(walk(listRows()));
}

} // namespace

void foresight::emitSkipColumns(GpuFrame &frame) {
  SkipColumnsEmitter(frame).emit();
}
