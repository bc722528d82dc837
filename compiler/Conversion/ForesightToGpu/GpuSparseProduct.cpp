//===- GpuSparseProduct.cpp - Products with the rows that may matter ------===//
//
// Warps score neurons in turn and list those that are kept; then the block's
// warps share the list. A row that is kept is asked for at once, so that it has
// come near by the time it is multiplied. Its sums are those of the dense
// product, in GpuRowProduct.cpp: the same lanes, the same order.
//
//===----------------------------------------------------------------------===//

#include "GpuInputPlanes.h"
#include "GpuScores.h"
#include "GpuWarp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// 16-byte loads of a lane that are under way at once: an even number, so that
/// a row's two sums take turns as they do in a dense product. Rows of f32 have
/// more loads, and registers for fewer.
int64_t loadsAtOnce(Type element) { return element.isF32() ? 4 : 8; }
constexpr int64_t kCacheLine = 128;

class SparseProductEmitter {
public:
  explicit SparseProductEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), plan(frame.plan),
        op(frame.plan.sparse.product), element(gpuElement(op.getWeight())),
        vectors(padRow(gpuColumns(op.getX())) / elementsOf16(element)),
        planes(frame, element, vectors), rowBytes(gpuRowBytes(op.getWeight())),
        loads(std::min(plan.loadsPerRow, loadsAtOnce(element))),
        turns((plan.loadsPerRow + loads - 1) / loads), scores(frame),
        weight(frame.memoryOf(op.getWeight())),
        listed(c.at(frame.shared, plan.sparse.listAt)), list(c.at(listed, 16)) {
  }

  void emit();

private:
  void scoreTurn(Value turn);
  void askFor(Value unit, Value kept);
  Value neuronAt(Value index);
  Values loadTurn(Value first, Value count, int64_t turn);
  void multiply(Value count);
  void store(Value first, Value count, ArrayRef<Value> sums);

  GpuFrame &frame;
  GpuCode &c;
  const GpuPlan &plan;
  GatherLinearOp op;
  Type element;
  int64_t vectors;
  GpuInputPlanes planes;
  int64_t rowBytes, loads, turns;
  GpuScores scores;
  Value weight, listed, list;
};

/// The warp asks for the rows it keeps, a line a lane.
void SparseProductEmitter::askFor(Value unit, Value kept) {
  c.forEachBit(kept, c.i64(0), [&](Value bit, Value none) {
    Value row = c.at(weight, c.mul(scores.neuronOf(unit, bit), rowBytes));
    for (int64_t from = 0; from < rowBytes; from += kCacheLine * kWarp) {
      Value offset = c.add(c.mul(c.lane, kCacheLine), from);
      auto ask = [&] { prefetchLine(c, c.at(row, offset)); };
      if (from + kCacheLine * kWarp <= rowBytes)
        ask();
      else
        c.ifThen(c.lessThan(offset, c.i64(rowBytes)), ask);
    }
    return none;
  });
}

void SparseProductEmitter::scoreTurn(Value turn) {
  Value unit = scores.unitOf(turn);
  c.ifThen(c.lessThan(unit, c.i64(plan.sparse.units)), [&] {
    GpuScores::Tested tested = scores.score(turn, unit);
    c.ifThen(tested.isMine, [&] {
      for (auto [value, row] : frame.resultsOf(op))
        c.store(c.f32(0), c.at(row, c.mul(tested.neuron, 4)));
    });
    Value kept = ballot(c, tested.isKept);
    askFor(unit, kept);
    Value count = popCount(c, kept);
    Value base = c.ifElse(
        c.isEqual(c.lane, 0),
        [&] {
          c.store(count, c.at(frame.counts(), c.mul(unit, 4)));
          return atomicAdd(c, listed, count);
        },
        c.i32(0));
    // Lane 0 has it, all others have zero.
    base = sumLanesOf(c, base, kWarp);
    Value one = c.constant(c.b.getI32Type(), 1);
    Value below =
        c.sub(arith::ShLIOp::create(c.b, c.loc, one, narrow(c, c.lane)), one);
    Value before = popCount(c, arith::AndIOp::create(c.b, c.loc, kept, below));
    c.ifThen(tested.isKept, [&] {
      Value place = c.mul(c.toI64(c.add(base, before)), 4);
      c.store(narrow(c, tested.neuron), c.at(list, place));
    });
  });
}

Value SparseProductEmitter::neuronAt(Value index) {
  return c.toI64(c.load(c.b.getI32Type(), c.at(list, c.mul(index, 4))));
}

/// The loads of one turn: `loads` of each of some listed rows.
Values SparseProductEmitter::loadTurn(Value first, Value count, int64_t turn) {
  Values loaded;
  Value last = c.sub(count, c.i64(1));
  for (int64_t r = 0; r < plan.rowsPerUnit; ++r) {
    Value neuron = neuronAt(c.min(c.add(first, r), last));
    Value pointer = c.at(weight, c.mul(neuron, rowBytes));
    for (int64_t j = 0; j < loads; ++j) {
      int64_t load = turn * loads + j;
      Value v = c.add(c.lane, load * kWarp);
      if ((load + 1) * kWarp > vectors)
        v = c.min(v, c.i64(vectors - 1));
      loaded.push_back(c.load16(element, c.at(pointer, c.mul(v, 16))));
    }
  }
  return loaded;
}

/// Lane r finishes the r-th row.
void SparseProductEmitter::store(Value first, Value count,
                                 ArrayRef<Value> sums) {
  Value sum = sums[0];
  for (int64_t r = 1; r < plan.rowsPerUnit; ++r)
    sum = c.select(c.isEqual(c.lane, r), sums[r], sum);
  Value index = c.add(first, c.lane);
  Value isMine = c.both(c.lessThan(c.lane, c.i64(plan.rowsPerUnit)),
                        c.lessThan(index, count));
  c.ifThen(isMine, [&] {
    Value neuron = neuronAt(index);
    Value value = sum;
    if (op.getBias())
      value =
          c.fadd(value, c.load(c.f32Type(), c.at(frame.memoryOf(op.getBias()),
                                                 c.mul(neuron, 4))));
    value = emitGpuActivation(c, op.getActivation(), value);
    for (auto [result, row] : frame.resultsOf(op))
      c.store(value, c.at(row, c.mul(neuron, 4)));
  });
}

void SparseProductEmitter::multiply(Value count) {
  int64_t rows = plan.rowsPerUnit;
  auto loadIfAny = [&](Value first) {
    Values zeros(rows * loads, c.constant(c.vec(4, c.b.getI32Type()), 0));
    return c.ifElse(
        c.lessThan(first, count), [&] { return loadTurn(first, count, 0); },
        zeros);
  };
  Value first = c.mul(c.warp, rows);
  int64_t step = c.warps() * rows;
  c.loop(first, count, step, loadIfAny(first),
         [&](Value index, ValueRange carried) {
           Values now(carried.begin(), carried.end());
           SmallVector<Values> sums(rows, Values(2, c.f32(0)));
           for (int64_t turn = 0; turn < turns; ++turn) {
             Values coming = turn + 1 < turns ? loadTurn(index, count, turn + 1)
                                              : loadIfAny(c.add(index, step));
             for (int64_t j = 0; j < loads; ++j) {
               int64_t load = turn * loads + j;
               if (load >= plan.loadsPerRow)
                 break;
               Values x;
               for (int64_t p = 0; p < planes.count; ++p)
                 x.push_back(planes.load(c.add(c.lane, load * kWarp), p,
                                         (load + 1) * kWarp <= vectors));
               for (int64_t r = 0; r < rows; ++r) {
                 Value w = c.widen(now[r * loads + j], element);
                 Value &sum = sums[r][j % 2];
                 for (int64_t e = 0; e < 4 * planes.count; ++e)
                   sum =
                       c.fma(c.extract(w, e), c.extract(x[e / 4], e % 4), sum);
               }
             }
             now = coming;
           }
           Values totals;
           for (Values &sum : sums)
             totals.push_back(c.warpSum(c.fadd(sum[0], sum[1])));
           store(index, count, totals);
           return now;
         });
}

void SparseProductEmitter::emit() {
  for (int64_t item = 0; item < plan.sparse.slots; ++item)
    scores.request(c.i64(item));
  auto clearList = [&] {
    c.ifThen(c.isEqual(c.thread, 0), [&] { c.store(c.i32(0), listed); });
  };
  clearList();
  SmallVector<Value> vectors(normVectors(op.getX()));
  vectors.push_back(op.getBias());
  prefetchVectors(frame, vectors);
  c.waitForInputs();
  c.letDependentsStart();
  scores.round([&](Value k) { return planes.at(k); });
  frame.zeroBehind(op, c.isEqual(c.block, 0));
  c.barrier();

  Value all = scores.turns();
  c.loop(c.i64(0), all, kScoredTurns, [&](Value from) {
    Value to = c.min(c.add(from, kScoredTurns), all);
    c.loop(from, to, 1, [&](Value turn) { scoreTurn(turn); });
    c.barrier();
    multiply(c.toI64(c.load(c.b.getI32Type(), listed)));
    c.barrier();
    clearList();
    c.barrier();
  });
}

} // namespace

void foresight::emitSparseProduct(GpuFrame &frame) {
  SparseProductEmitter(frame).emit();
}
