//===- GpuColumnProduct.cpp - Sums of weight rows -------------------------===//
//
// A block owns some columns and walks all weight rows: 64 or 128 bytes of each
// with 16-bit weights. Rows go round-robin to groups of lanes, and the groups'
// sums are added in a fixed order at the end: no atomics, the same bits every
// time.
//
//===----------------------------------------------------------------------===//

#include "GpuColumnSums.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// Rows of a lane that are under way at once.
constexpr int64_t kLoads = 8;

class ColumnProductEmitter {
public:
  explicit ColumnProductEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), op(frame.plan.column), columns(frame),
        rows(gpuColumns(op.getX())) {}

  void emit();

private:
  Value rowOf(Value first, int64_t i) {
    return c.add(first, i * columns.groups);
  }
  Values loadRows(Value first);

  GpuFrame &frame;
  GpuCode &c;
  ColumnLinearOp op;
  GpuColumnSums columns;
  int64_t rows;
};

Values ColumnProductEmitter::loadRows(Value first) {
  Values loaded;
  for (int64_t i = 0; i < kLoads; ++i) {
    Value row = c.min(rowOf(first, i), c.i64(rows - 1));
    loaded.push_back(c.load16(
        columns.element, c.at(columns.base, c.mul(row, columns.rowBytes))));
  }
  return loaded;
}

void ColumnProductEmitter::emit() {
  Values current = loadRows(columns.group);
  c.waitForInputs();
  c.letDependentsStart();
  columns.readFollowing();
  Value x = frame.rowOf(op.getX());

  int64_t per = columns.per;
  Values init(per, c.f32(0));
  init.append(current);
  int64_t step = kLoads * columns.groups;
  Values out =
      c.loop(columns.group, c.i64(rows), step, init,
             [&](Value first, ValueRange carried) {
               Values sums(carried.take_front(per));
               Values now(carried.drop_front(per));
               Values activations;
               for (int64_t i = 0; i < kLoads; ++i) {
                 Value row = rowOf(first, i);
                 Value a =
                     c.load(c.f32Type(),
                            c.at(x, c.mul(c.min(row, c.i64(rows - 1)), 4)));
                 activations.push_back(
                     c.select(c.lessThan(row, c.i64(rows)), a, c.f32(0)));
               }
               // The last turn loads its last row again: a few lines, all in
               // cache.
               Values next = loadRows(c.add(first, step));
               for (int64_t i = 0; i < kLoads; ++i)
                 columns.add(sums, now[i], activations[i]);
               sums.append(next);
               return sums;
             });
  columns.finish(ArrayRef<Value>(out).take_front(per));
}

} // namespace

void foresight::emitColumnProduct(GpuFrame &frame) {
  ColumnProductEmitter(frame).emit();
}
