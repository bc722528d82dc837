//===- GpuRowProduct.cpp - Products with rows of a weight matrix ----------===//
//
// A block owns neighbouring weight rows, and its warps take them in turn. A
// warp copies weights to a ring of its own in shared memory, without registers
// and without barriers: a lane reads what it copied itself. The ring is filled
// before the kernel waits for the one in front, and stays full while sums are
// made. Sums wait in shared memory until the block's last row is done; then a
// thread finishes a row, so that biases and residuals cost one access for all
// rows.
//
//===----------------------------------------------------------------------===//

#include "GpuInputPlanes.h"
#include "GpuWarp.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

class RowProductEmitter {
public:
  explicit RowProductEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), plan(frame.plan), ring(plan.ring),
        element(gpuElement(product(0).getWeight())),
        vectors(padRow(gpuColumns(product(0).getX())) / elementsOf16(element)),
        placed(ring.turns * ring.loads * kWarp), planes(frame, element, placed),
        rowBytes(gpuRowBytes(product(0).getWeight())),
        slotBytes(plan.rowsPerUnit * ring.loads * kWarp * 16) {}

  void emit();

private:
  /// What a warp reads at once: some loads of each row of a unit.
  struct Item {
    Value unit, turn;
  };

  LinearOp product(int64_t i) { return plan.products[i].op; }
  int64_t units() {
    return plan.products.back().firstUnit + plan.products.back().units;
  }
  void findUnits();
  Item next(const Item &item);
  Value firstVector(Value turn);
  void request(const Item &item, Value slot);
  void stageX(ArrayRef<Value> normVectors,
              llvm::function_ref<void()> whileLoading);
  void sumItem(const Item &item, Value slot, SmallVectorImpl<Value> &sums);
  void keepSums(Value unit, ArrayRef<Value> sums);
  /// Where a row's result goes, and whether it is the product's.
  struct Place {
    Value column, isMine;
  };
  Place placeOf(const GpuProduct &p, Value index);
  void finishRow(Value index, ArrayRef<GpuLoaded> following);
  void finishRows(ArrayRef<GpuLoaded> following);

  GpuFrame &frame;
  GpuCode &c;
  const GpuPlan &plan;
  const GpuRing &ring;
  Type element;
  /// 16-byte vectors of a row, and those that the warps' loads reach.
  int64_t vectors, placed;
  GpuInputPlanes planes;
  int64_t rowBytes, slotBytes;
  /// The block's units, and the warp's ring.
  Value first, end, slots;
};

/// Blocks differ by one unit at most.
void RowProductEmitter::findUnits() {
  first = c.div(c.mul(c.block, units()), c.blocks);
  end = c.div(c.mul(c.add(c.block, 1), units()), c.blocks);
  slots = c.at(c.at(frame.shared, plan.ring.ringAt),
               c.mul(c.warp, ring.depth * slotBytes));
}

RowProductEmitter::Item RowProductEmitter::next(const Item &item) {
  if (ring.turns == 1)
    return {c.add(item.unit, c.warps()), item.turn};
  Value turn = c.add(item.turn, 1);
  Value isEnd = c.isEqual(turn, ring.turns);
  return {c.add(item.unit, c.select(isEnd, c.i64(c.warps()), c.i64(0))),
          c.select(isEnd, c.i64(0), turn)};
}

Value RowProductEmitter::firstVector(Value turn) {
  return c.add(c.mul(turn, ring.loads * kWarp), c.lane);
}

/// Asks for the weights of an item; past the block's rows there are none.
void RowProductEmitter::request(const Item &item, Value slot) {
  c.ifThen(c.lessThan(item.unit, end), [&] {
    auto [base, row, last] = frame.rowsOfUnit(item.unit);
    Value vector = firstVector(item.turn);
    Value to = c.at(slot, c.mul(c.lane, 16));
    for (int64_t r = 0; r < plan.rowsPerUnit; ++r) {
      Value place = plan.rowsPerUnit == 1 ? row : c.min(c.add(row, r), last);
      Value pointer = c.at(base, c.mul(place, rowBytes));
      for (int64_t j = 0; j < ring.loads; ++j) {
        Value v = c.add(vector, j * kWarp);
        if (placed != vectors)
          v = c.min(v, c.i64(vectors - 1));
        copyAsync(c, c.at(to, (r * ring.loads + j) * kWarp * 16),
                  c.at(pointer, c.mul(v, 16)), 16);
      }
    }
  });
  endGroup(c);
}

void RowProductEmitter::stageX(ArrayRef<Value> normVectors,
                               llvm::function_ref<void()> whileLoading) {
  Value memory = c.at(frame.shared, plan.rowAt);
  planes.stage(product(0).getX(), normVectors, whileLoading);
  // Loads behind the row read its last vector again, times zero.
  for (int64_t plane = 0; plane < planes.count && placed != vectors; ++plane)
    c.loop(c.add(c.thread, vectors), c.i64(placed), c.threads, [&](Value v) {
      c.storeAligned(c.constant(c.vec(4), 0),
                     c.at(memory, c.mul(c.add(v, plane * placed), 16)), 16);
    });
  c.barrier();
}

/// Adds an item to two sums of each row of the unit.
void RowProductEmitter::sumItem(const Item &item, Value slot,
                                SmallVectorImpl<Value> &sums) {
  Value x =
      c.at(c.at(frame.shared, plan.rowAt), c.mul(firstVector(item.turn), 16));
  Value from = c.at(slot, c.mul(c.lane, 16));
  Type words = c.vec(4, c.b.getI32Type());
  for (int64_t j = 0; j < ring.loads; ++j) {
    Values parts;
    for (int64_t p = 0; p < planes.count; ++p)
      parts.push_back(
          c.loadAligned(c.vec(4), c.at(x, (j * kWarp + p * placed) * 16), 16));
    for (int64_t r = 0; r < plan.rowsPerUnit; ++r) {
      Value stored = c.loadAligned(
          words, c.at(from, (r * ring.loads + j) * kWarp * 16), 16);
      Value w = c.widen(stored, element);
      Value &sum = sums[2 * r + j % 2];
      for (int64_t e = 0; e < 4 * planes.count; ++e)
        sum = c.fma(c.extract(w, e), c.extract(parts[e / 4], e % 4), sum);
    }
  }
}

void RowProductEmitter::keepSums(Value unit, ArrayRef<Value> sums) {
  Values totals;
  for (int64_t r = 0; r < plan.rowsPerUnit; ++r)
    totals.push_back(c.warpSum(c.fadd(sums[2 * r], sums[2 * r + 1])));
  Value place = c.mul(c.sub(unit, first), plan.rowsPerUnit);
  Value memory = c.at(c.at(frame.shared, ring.sumsAt), c.mul(place, 4));
  c.ifThen(c.isEqual(c.lane, 0), [&] {
    for (auto [r, total] : llvm::enumerate(totals))
      c.store(total, c.at(memory, int64_t(r) * 4));
  });
}

/// Row `index` of the block, if it is one of the product's.
RowProductEmitter::Place RowProductEmitter::placeOf(const GpuProduct &p,
                                                    Value index) {
  Value rows = c.mul(c.sub(end, first), plan.rowsPerUnit);
  Value row = c.add(c.mul(first, plan.rowsPerUnit), index);
  Value column = c.sub(row, c.i64(p.firstUnit * plan.rowsPerUnit));
  LinearOp op = p.op;
  Value isMine =
      c.both(c.lessThan(index, rows),
             c.both(c.lessThan(c.i64(-1), column),
                    c.lessThan(column, c.i64(gpuColumns(op.getResult())))));
  return {column, isMine};
}

/// A thread finishes a row: what follows its sum.
void RowProductEmitter::finishRow(Value index, ArrayRef<GpuLoaded> following) {
  Value memory = c.at(frame.shared, ring.sumsAt);
  Value sum = c.load(c.f32Type(), c.at(memory, c.mul(index, 4)));
  for (auto [i, p] : llvm::enumerate(plan.products)) {
    LinearOp op = p.op;
    auto [column, isMine] = placeOf(p, index);
    GpuLoaded loaded = following.empty() ? GpuLoaded() : following[i];
    c.ifThen(isMine, [&] {
      for (auto [value, to] : frame.resultsOf(op))
        c.store(emitGpuEpilogue(frame, value, op, sum, column, loaded),
                c.at(to, c.mul(column, 4)));
    });
  }
}

void RowProductEmitter::finishRows(ArrayRef<GpuLoaded> following) {
  c.barrier();
  finishRow(c.thread, following);
  Value rows = c.mul(c.sub(end, first), plan.rowsPerUnit);
  c.loop(c.add(c.thread, c.threads), rows, c.threads,
         [&](Value index) { finishRow(index, {}); });
  for (const GpuProduct &p : plan.products) {
    Value last = c.i64(p.firstUnit + p.units - 1);
    frame.zeroBehind(p.op, c.both(c.lessThan(last, end),
                                  c.lessThan(c.sub(first, c.i64(1)), last)));
  }
}

void RowProductEmitter::emit() {
  findUnits();
  Item item{c.add(first, c.warp), c.i64(0)}, ahead = item;
  auto fill = [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      request(ahead, c.at(slots, i * slotBytes));
      ahead = next(ahead);
    }
  };
  // Whoever reads or writes now waits behind what has been asked for. Behind
  // attention there is time for one after the other; elsewhere x, which comes
  // soon, goes in front of the ring's second half.
  int64_t before = plan.startsEarly ? ring.depth : ceilDiv(ring.depth, 2);
  for (int64_t i = 0; i < before; ++i) {
    if (plan.startsEarly && i > 0)
      waitForGroups(c, 0);
    fill(i, i + 1);
  }
  SmallVector<Value> loaded = loadNormVectors(frame, product(0).getX()),
                     vectors;
  if (loaded.empty())
    vectors.append(normVectors(product(0).getX()));
  for (const GpuProduct &p : plan.products)
    vectors.push_back(LinearOp(p.op).getBias());
  prefetchVectors(frame, vectors);
  c.waitForInputs();
  c.letDependentsStart();
  stageX(loaded, [&] { fill(before, ring.depth); });
  // Read while sums are made: nothing is left to wait for behind them.
  SmallVector<GpuLoaded> following;
  for (const GpuProduct &p : plan.products) {
    auto [column, isMine] = placeOf(p, c.thread);
    following.push_back(loadEpilogue(frame, p.op, column, isMine));
  }

  int64_t warps = c.warps();
  Value count = c.mul(
      c.max(c.i64(0), c.div(c.add(c.sub(end, item.unit), warps - 1), warps)),
      ring.turns);
  int64_t sumCount = 2 * plan.rowsPerUnit;
  Values carried{item.unit, item.turn, ahead.unit, ahead.turn, c.i64(0)};
  carried.append(sumCount, c.f32(0));
  c.loop(c.i64(0), count, 1, carried, [&](Value, ValueRange args) {
    Item now{args[0], args[1]}, ahead{args[2], args[3]};
    Value slot = c.at(slots, args[4]);
    Values sums(args.drop_front(5));
    waitForGroups(c, ring.depth - 1);
    sumItem(now, slot, sums);
    request(ahead, slot);
    Values zeros(sumCount, c.f32(0));
    if (ring.turns == 1) {
      keepSums(now.unit, sums);
      sums = zeros;
    } else {
      Value isEnd = c.isEqual(now.turn, ring.turns - 1);
      c.ifThen(isEnd, [&] { keepSums(now.unit, sums); });
      for (auto [sum, zero] : llvm::zip(sums, zeros))
        sum = c.select(isEnd, zero, sum);
    }
    Item after = next(now), afterAhead = next(ahead);
    Values yielded{after.unit, after.turn, afterAhead.unit, afterAhead.turn,
                   nextSlot(c, args[4], slotBytes, ring.depth)};
    yielded.append(sums);
    return yielded;
  });
  finishRows(following);
}

} // namespace

void foresight::emitRowProduct(GpuFrame &frame) {
  RowProductEmitter(frame).emit();
}
