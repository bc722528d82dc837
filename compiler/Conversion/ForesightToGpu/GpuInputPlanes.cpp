//===- GpuInputPlanes.cpp - What rows of weights multiply -----------------===//

#include "GpuInputPlanes.h"

using namespace mlir;
using namespace foresight;

Value GpuInputPlanes::memory() { return c.at(frame.shared, frame.plan.rowAt); }

Value GpuInputPlanes::at(Value k) {
  Value chunk = c.div(k, 4);
  Value v = c.div(chunk, count), plane = c.rem(chunk, count);
  Value place = c.add(c.mul(plane, length), v);
  return c.at(memory(), c.mul(place, 16));
}

void GpuInputPlanes::stage(Value row, ArrayRef<Value> normVectors,
                           llvm::function_ref<void()> whileLoading) {
  emitRow(
      frame, row, [&](Value k, Value x) { c.storeAligned(x, at(k), 16); },
      normVectors, whileLoading);
}

Value GpuInputPlanes::load(Value v, int64_t plane, bool isWithin) {
  Value safe = isWithin ? v : c.min(v, c.i64(length - 1));
  Value place = c.mul(c.add(safe, plane * length), 16);
  Value x = c.loadAligned(c.vec(4), c.at(memory(), place), 16);
  if (isWithin)
    return x;
  return c.select(c.splat(c.lessThan(v, c.i64(length)), 4), x,
                  c.constant(c.vec(4), 0));
}
