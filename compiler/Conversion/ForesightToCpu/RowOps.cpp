//===- RowOps.cpp - Ops on whole rows -------------------------------------===//
//
// Prologues of products, and the whole of a kernel that has no product. A row
// is a few KB and stays in the first-level cache, so ops are not fused: each
// reads rows and writes one.
//
//===----------------------------------------------------------------------===//

#include "Frame.h"

#include "foresight/lowbit/Layout.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace foresight;

namespace {

using Values = CodeBuilder::Values;

/// Calls `body(offset in elements, valid)` for each vector of a row: `valid` is
/// null for whole vectors and a mask for the last one of an odd row.
void forEachVector(CodeBuilder &c, int64_t columns,
                   llvm::function_ref<void(Value, Value)> body) {
  int64_t whole = columns / c.lanes * c.lanes;
  if (whole > 0)
    c.loop(c.i64(0), c.i64(whole), c.lanes, [&](Value k) { body(k, Value()); });
  if (whole < columns) {
    Value k = c.i64(whole);
    body(k, c.lanesBelow(k, columns, c.lanes));
  }
}

/// Sums `term(x, valid)` over a row with four accumulators.
Value sumRow(CodeBuilder &c, int64_t columns,
             llvm::function_ref<Value(Value, Value, Value)> term) {
  constexpr int64_t kWays = 4;
  VectorType type = c.vec(c.lanes);
  int64_t step = kWays * c.lanes, whole = columns / step * step;
  Values sums(kWays, c.constant(type, 0));
  if (whole > 0)
    sums = c.loop(
        c.i64(0), c.i64(whole), step, sums, [&](Value k, ValueRange carried) {
          Values next;
          for (int64_t i = 0; i < kWays; ++i)
            next.push_back(term(c.add(k, i * c.lanes), Value(), carried[i]));
          return next;
        });
  for (int64_t k = whole, i = 0; k < columns; k += c.lanes, ++i) {
    Value at = c.i64(k);
    Value valid =
        k + c.lanes > columns ? c.lanesBelow(at, columns, c.lanes) : Value();
    sums[i] = term(at, valid, sums[i]);
  }
  return c.sumLanes(c.fadd(c.fadd(sums[0], sums[1]), c.fadd(sums[2], sums[3])));
}

Value element(CodeBuilder &c, Value row, Value k) {
  return c.load(c.vec(c.lanes), c.at(row, c.mul(k, 4)));
}

Value masked(CodeBuilder &c, Value valid, Value value) {
  return valid ? c.select(valid, value, c.constant(value.getType(), 0)) : value;
}

/// Two passes for the variance, around the mean that is subtracted: the
/// certificate of a low-bit copy relies on |result| <= sqrt(columns).
void emitLayerNorm(Frame &frame, LayerNormOp op, Value out) {
  CodeBuilder &c = frame.c;
  int64_t columns = columnsOf(op.getX());
  Value x = frame.rowOf(op.getX());
  Value count = c.f32(static_cast<double>(columns));
  Value mean =
      c.fdiv(sumRow(c, columns,
                    [&](Value k, Value valid, Value sum) {
                      return c.fadd(sum, masked(c, valid, element(c, x, k)));
                    }),
             count);
  Value means = c.splat(mean, c.lanes);
  Value square = sumRow(c, columns, [&](Value k, Value valid, Value sum) {
    Value d = masked(c, valid, c.fsub(element(c, x, k), means));
    return c.fma(d, d, sum);
  });
  Value epsilon = c.f32(op.getEpsilon().convertToDouble());
  Value deviation =
      math::SqrtOp::create(c.b, c.loc, c.fadd(c.fdiv(square, count), epsilon));
  Value scale = c.splat(c.fdiv(c.f32(1), deviation), c.lanes);
  forEachVector(c, columns, [&](Value k, Value valid) {
    Value y = c.fmul(c.fsub(element(c, x, k), means), scale);
    if (op.getGamma())
      y = c.fmul(y, element(c, frame.memoryOf(op.getGamma()), k));
    if (op.getBeta())
      y = c.fadd(y, element(c, frame.memoryOf(op.getBeta()), k));
    c.store(masked(c, valid, y), c.at(out, c.mul(k, 4)));
  });
}

void emitGatherRows(Frame &frame, GatherRowsOp op, Value out) {
  CodeBuilder &c = frame.c;
  auto table = cast<RankedTensorType>(op.getTable().getType());
  int64_t bytes = elementBytes(table.getElementType());
  Value id = c.toI64(c.load(c.b.getI32Type(), c.at(frame.memoryOf(op.getIds()),
                                                   c.mul(frame.token, 4))));
  Value row =
      c.at(frame.memoryOf(op.getTable()),
           c.mul(c.add(id, op.getOffset()), weightRowBytes(op.getTable())));
  forEachVector(c, columnsOf(op.getResult()), [&](Value k, Value valid) {
    Value x = c.loadWidened(table.getElementType(), c.lanes,
                            c.at(row, c.mul(k, bytes)));
    c.store(masked(c, valid, x), c.at(out, c.mul(k, 4)));
  });
}

void emitElementwise(Frame &frame, Operation *op, Value out,
                     llvm::function_ref<Value(ArrayRef<Value>)> compute) {
  CodeBuilder &c = frame.c;
  SmallVector<Value> rows;
  for (Value operand : op->getOperands())
    rows.push_back(frame.rowOf(operand));
  forEachVector(c, columnsOf(op->getResult(0)), [&](Value k, Value valid) {
    SmallVector<Value> x;
    for (Value row : rows)
      x.push_back(element(c, row, k));
    c.store(masked(c, valid, compute(x)), c.at(out, c.mul(k, 4)));
  });
}

/// Zeroes what lies behind the last vector that an emitter wrote.
void emitPadding(Frame &frame, Value row, Value out) {
  CodeBuilder &c = frame.c;
  int64_t columns = columnsOf(row);
  int64_t written = (columns + c.lanes - 1) / c.lanes * c.lanes;
  int64_t end = frame.plan.rowSlots.contains(row) ? lowbit::padColumns(columns)
                                                  : padRow(columns);
  if (written < end)
    c.zeroFill(c.at(out, 4 * written), 4 * (end - written));
}

} // namespace

void foresight::emitRowOp(Frame &frame, Operation *op) {
  CodeBuilder &c = frame.c;
  if (isa<LastRowOp>(op))
    return; // a view
  if (auto append = dyn_cast<KvAppendOp>(op)) {
    auto cache = cast<KvCacheType>(append.getCache().getType());
    c.loop(c.i64(0), c.i64(cache.getHeads()), 1,
           [&](Value head) { emitAppendHead(frame, append, head); });
    return;
  }
  Value result = op->getResult(0);
  Value out = frame.rowOf(result);
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](LayerNormOp norm) { emitLayerNorm(frame, norm, out); })
      .Case([&](GatherRowsOp gather) { emitGatherRows(frame, gather, out); })
      .Case([&](AddOp) {
        emitElementwise(frame, op, out,
                        [&](ArrayRef<Value> x) { return c.fadd(x[0], x[1]); });
      })
      .Case([&](ActivationOp activation) {
        emitElementwise(frame, op, out, [&](ArrayRef<Value> x) {
          return emitActivation(c, activation.getActivation(), x[0]);
        });
      });
  emitPadding(frame, result, out);
}
