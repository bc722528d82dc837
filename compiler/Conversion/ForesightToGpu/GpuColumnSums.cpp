//===- GpuColumnSums.cpp - Sums of columns, joined and finished -----------===//

#include "GpuColumnSums.h"

using namespace mlir;
using namespace foresight;

GpuColumnSums::GpuColumnSums(GpuFrame &frame)
    : element(gpuElement(ColumnLinearOp(frame.plan.column).getWeight())),
      per(elementsOf16(element)), frame(frame), c(frame.c),
      op(frame.plan.column), columns(frame.plan.columnsPerBlock) {
  lanesPerRow = columns / per;
  groups = c.threads / lanesPerRow;
  rowBytes = gpuRowBytes(op.getWeight());
  group = c.div(c.thread, lanesPerRow);
  part = c.rem(c.thread, lanesPerRow);
  base = c.at(
      frame.memoryOf(op.getWeight()),
      c.add(c.mul(c.block, columns * elementBytes(element)), c.mul(part, 16)));
  parts = c.at(frame.shared, frame.plan.rowAt);
  column = c.add(c.mul(c.block, columns), c.thread);
  prefetchVectors(frame, {op.getBias()});
}

void GpuColumnSums::readFollowing() {
  following =
      loadEpilogue(frame, op, column, c.lessThan(c.thread, c.i64(columns)));
}

void GpuColumnSums::add(Values &sums, Value loaded, Value input) {
  Value w = c.widen(loaded, element);
  for (int64_t e = 0; e < per; ++e)
    sums[e] = c.fma(input, c.extract(w, e), sums[e]);
}

/// Lanes of a warp that hold the same columns, then the warps.
void GpuColumnSums::finish(ArrayRef<Value> sums) {
  for (int64_t e = 0; e < per; ++e) {
    Value sum = c.sumOver(sums[e], lanesPerRow, kWarp);
    c.ifThen(c.lessThan(c.lane, c.i64(lanesPerRow)), [&] {
      Value place = c.add(c.add(c.mul(c.warp, columns), c.mul(part, per)), e);
      c.store(sum, c.at(parts, c.mul(place, 4)));
    });
  }
  c.barrier();
  int64_t all = gpuColumns(op.getResult());
  c.ifThen(c.lessThan(c.thread, c.i64(columns)), [&] {
    Value sum = c.f32(0);
    for (int64_t w = 0; w < c.warps(); ++w)
      sum = c.fadd(sum,
                   c.load(c.f32Type(),
                          c.at(parts, c.mul(c.add(c.thread, w * columns), 4))));
    for (auto [value, row] : frame.resultsOf(op)) {
      Value result = emitGpuEpilogue(frame, value, op, sum, column, following);
      if (all != padRow(all))
        result = c.select(c.lessThan(column, c.i64(all)), result, c.f32(0));
      c.store(result, c.at(row, c.mul(column, 4)));
    }
  });
}
