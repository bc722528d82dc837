//===- GpuSkipColumns.cpp - Sums of the weight rows that add something ----===//
//
// Blocks, groups and the order of their sums are those of the dense product, in
// GpuColumnProduct.cpp: row r belongs to group r % groups, and a term that is
// left out would have added zero. Each group first lists its rows whose input
// is not zero, then walks only those.
//
//===----------------------------------------------------------------------===//

#include "GpuColumnSums.h"
#include "GpuWarp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// Rows of a lane that are under way at once, and bits of a word.
constexpr int64_t kLoads = 8, kBits = 32;

class SkipColumnsEmitter {
public:
  explicit SkipColumnsEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), op(frame.plan.column), columns(frame),
        lanesPerRow(columns.lanesPerRow), groups(columns.groups),
        rows(gpuColumns(op.getX())) {}

  void emit();

private:
  Value listRows();
  Values loadRows(Value from, Value count);
  Values walk(Value count);
  void storeCount();
  Value isNotZero(Value x) {
    // A NaN is not zero.
    return arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::UNE, x,
                                 c.f32(0));
  }
  Value listAt(Value index) {
    return c.at(list, c.mul(c.add(c.mul(index, groups), columns.group), 2));
  }

  GpuFrame &frame;
  GpuCode &c;
  ColumnLinearOp op;
  GpuColumnSums columns;
  int64_t lanesPerRow, groups, rows;
  Value x, counts, list;
};

/// The lanes of a group take neighbouring rows of it, a bit each; what lanes
/// before have found says where a lane's entries go. An entry is r / groups.
Value SkipColumnsEmitter::listRows() {
  int64_t each = ceilDiv(ceilDiv(rows, groups), lanesPerRow);
  Value first = c.mul(columns.part, each);
  Values words;
  Value found = c.i32(0);
  for (int64_t from = 0; from < each; from += kBits) {
    Values inputs;
    for (int64_t i = from; i < std::min(from + kBits, each); ++i) {
      Value row = c.add(c.mul(c.add(first, i), groups), columns.group);
      Value input =
          c.load(c.f32Type(), c.at(x, c.mul(c.min(row, c.i64(rows - 1)), 4)));
      inputs.push_back(c.select(c.lessThan(row, c.i64(rows)), input, c.f32(0)));
    }
    Value word = c.i32(0);
    for (auto [bit, input] : llvm::enumerate(inputs))
      word = bitOr(
          c, word,
          c.select(isNotZero(input), c.i32(int32_t(1u << bit)), c.i32(0)));
    words.push_back(word);
    found = c.add(found, popCount(c, word));
  }
  Value before = c.sub(sumLanesBelow(c, found), found);
  Value ofGroup =
      c.sub(before, lanesFrom(c, before, c.sub(c.lane, columns.part)));
  Value place = c.toI64(ofGroup);
  for (auto [w, word] : llvm::enumerate(words))
    place = c.forEachBit(word, place, [&](Value bit, Value at) {
      Value index = c.add(c.add(first, int64_t(w) * kBits), bit);
      c.store(arith::TruncIOp::create(c.b, c.loc, c.b.getI16Type(), index),
              listAt(at));
      return c.add(at, 1);
    });
  Value ofWarp = sumLanesOf(c, found, kWarp);
  c.ifThen(c.isEqual(c.lane, 0),
           [&] { c.store(ofWarp, c.at(counts, c.mul(c.warp, 4))); });
  syncWarp(c);
  return c.toI64(sumLanesOf(c, found, lanesPerRow));
}

/// Pieces of the listed rows from `from` on, then their inputs; zeros, and
/// nothing is read, if there is no such row.
Values SkipColumnsEmitter::loadRows(Value from, Value count) {
  Values nothing(kLoads, c.constant(c.vec(4, c.b.getI32Type()), 0));
  nothing.append(kLoads, c.f32(0));
  auto load = [&] {
    Value last = c.sub(count, c.i64(1));
    Values loaded, inputs;
    for (int64_t i = 0; i < kLoads; ++i) {
      Value index = c.add(from, i);
      Value entry = c.load(c.b.getI16Type(), listAt(c.min(index, last)));
      Value row = c.add(
          c.mul(arith::ExtUIOp::create(c.b, c.loc, c.b.getI64Type(), entry),
                groups),
          columns.group);
      loaded.push_back(c.load16(
          columns.element, c.at(columns.base, c.mul(row, columns.rowBytes))));
      Value input = c.load(c.f32Type(), c.at(x, c.mul(row, 4)));
      inputs.push_back(c.select(c.lessThan(index, count), input, c.f32(0)));
    }
    loaded.append(inputs);
    return loaded;
  };
  return c.ifElse(c.lessThan(from, count), load, nothing);
}

/// What is loaded goes round the loop: inside one turn the assembler would wait
/// for each row before it asks for the next.
Values SkipColumnsEmitter::walk(Value count) {
  int64_t per = columns.per;
  Values init(per, c.f32(0));
  init.append(loadRows(c.i64(0), count));
  Values out = c.loop(
      c.i64(0), count, kLoads, init, [&](Value from, ValueRange carried) {
        Values sums(carried.take_front(per));
        Values loaded(carried.drop_front(per).take_front(kLoads));
        Values inputs(carried.take_back(kLoads));
        Values next = loadRows(c.add(from, kLoads), count);
        for (int64_t i = 0; i < kLoads; ++i)
          columns.add(sums, loaded[i], inputs[i]);
        sums.append(next);
        return sums;
      });
  out.truncate(per);
  return out;
}

void SkipColumnsEmitter::storeCount() {
  c.ifThen(c.isEqual(c.thread, 0), [&] {
    Value count = c.i32(0);
    for (int64_t w = 0; w < c.warps(); ++w)
      count = c.add(count, c.load(c.b.getI32Type(), c.at(counts, 4 * w)));
    c.store(count, c.at(frame.counts(), c.mul(c.block, 4)));
  });
}

void SkipColumnsEmitter::emit() {
  list = c.at(frame.shared, frame.plan.listAt);
  counts = c.at(frame.shared, frame.plan.listAt - kReduceBytes);
  c.waitForInputs();
  c.letDependentsStart();
  columns.readFollowing();
  x = frame.rowOf(op.getX());
  columns.finish(walk(listRows()));
  storeCount();
}

} // namespace

void foresight::emitSkipColumns(GpuFrame &frame) {
  SkipColumnsEmitter(frame).emit();
}
