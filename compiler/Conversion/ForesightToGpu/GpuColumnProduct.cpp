//===- GpuColumnProduct.cpp - Sums of weight rows -------------------------===//
//
// A block owns 32 columns and walks all weight rows: 64 bytes of each with
// 16-bit weights. Rows go round-robin to groups of lanes, and the groups' sums
// are added in a fixed order at the end: no atomics, the same bits every time.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

constexpr int64_t kColumns = 32;
/// Rows of a lane that are under way at once.
constexpr int64_t kLoads = 8;

class ColumnProductEmitter {
public:
  explicit ColumnProductEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), op(frame.plan.column),
        element(gpuElement(op.getWeight())), per(elementsOf16(element)),
        lanesPerRow(kColumns / per), groups(c.threads / lanesPerRow),
        rows(gpuColumns(op.getX())), rowBytes(gpuRowBytes(op.getWeight())) {}

  void emit();

private:
  Value rowOf(Value first, int64_t i) { return c.add(first, i * groups); }
  Values loadRows(Value first);
  void finish(ArrayRef<Value> sums);

  GpuFrame &frame;
  GpuCode &c;
  ColumnLinearOp op;
  Type element;
  int64_t per, lanesPerRow, groups, rows, rowBytes;
  Value group, part;
};

Values ColumnProductEmitter::loadRows(Value first) {
  Values loaded;
  Value columns =
      c.add(c.mul(c.block, kColumns * elementBytes(element)), c.mul(part, 16));
  Value base = c.at(frame.memoryOf(op.getWeight()), columns);
  for (int64_t i = 0; i < kLoads; ++i) {
    Value row = c.min(rowOf(first, i), c.i64(rows - 1));
    loaded.push_back(c.load16(element, c.at(base, c.mul(row, rowBytes))));
  }
  return loaded;
}

/// Lanes of a warp that hold the same columns, then the warps.
void ColumnProductEmitter::finish(ArrayRef<Value> sums) {
  Value parts = c.at(frame.shared, frame.plan.rowAt);
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
}

void ColumnProductEmitter::emit() {
  group = c.div(c.thread, lanesPerRow);
  part = c.rem(c.thread, lanesPerRow);
  Values current = loadRows(group);
  c.waitForInputs();
  c.letDependentsStart();
  Value x = frame.rowOf(op.getX());

  Values init(per, c.f32(0));
  init.append(current);
  int64_t step = kLoads * groups;
  Values out = c.loop(
      group, c.i64(rows), step, init, [&](Value first, ValueRange carried) {
        Values sums(carried.take_front(per));
        Values now(carried.drop_front(per));
        Values activations;
        for (int64_t i = 0; i < kLoads; ++i) {
          Value row = rowOf(first, i);
          Value a = c.load(c.f32Type(),
                           c.at(x, c.mul(c.min(row, c.i64(rows - 1)), 4)));
          activations.push_back(
              c.select(c.lessThan(row, c.i64(rows)), a, c.f32(0)));
        }
        // The last turn loads its last row again: a few lines, all in cache.
        Values next = loadRows(c.add(first, step));
        for (int64_t i = 0; i < kLoads; ++i) {
          Value w = c.widen(now[i], element);
          for (int64_t e = 0; e < per; ++e)
            sums[e] = c.fma(activations[i], c.extract(w, e), sums[e]);
        }
        sums.append(next);
        return sums;
      });
  finish(ArrayRef<Value>(out).take_front(per));
}

} // namespace

void foresight::emitColumnProduct(GpuFrame &frame) {
  ColumnProductEmitter(frame).emit();
}
