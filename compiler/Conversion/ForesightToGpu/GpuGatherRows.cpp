//===- GpuGatherRows.cpp - Products with the rows of a known set ----------===//
//
// Two warps take a row, each one of the two sums of which a dense product makes
// its result (GpuRowProduct.cpp), so that members get the same bits. Where the
// set is known early, all loads that registers hold are under way before the
// kernel waits for its input; a row's registers ask for the next one as soon as
// they were multiplied.
//
//===----------------------------------------------------------------------===//

#include "GpuInputPlanes.h"
#include "GpuSets.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

class GatherRowsEmitter {
public:
  explicit GatherRowsEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), plan(frame.plan),
        op(frame.plan.sparse.product), element(gpuElement(op.getWeight())),
        vectors(padRow(gpuColumns(op.getX())) / elementsOf16(element)),
        planes(frame, element, vectors), rowBytes(gpuRowBytes(op.getWeight())),
        turns((plan.loadsPerRow + perTurn() - 1) / perTurn()),
        rows(plan.rowsUnderWay), groups(c.warps() / plan.warpsPerRow),
        members(frame, op.getRows(), plan.launch.blocks),
        weight(frame.memoryOf(op.getWeight())) {}

  void emit();

private:
  int64_t perTurn() const { return plan.loadsOfLane * plan.warpsPerRow; }
  Value vectorAt(int64_t turn, int64_t i);
  Values load(Value index, int64_t turn);
  Value multiply(ArrayRef<Value> loaded, int64_t turn, Value sum);
  Value isNoMember(Value column);
  void clearOthers();
  Value bias(Value index);
  void finish(Value from, Value parity, ArrayRef<Value> sums,
              ArrayRef<Value> biases);
  void walk(ArrayRef<Value> now);

  GpuFrame &frame;
  GpuCode &c;
  const GpuPlan &plan;
  GatherLinearOp op;
  Type element;
  int64_t vectors;
  GpuInputPlanes planes;
  int64_t rowBytes, turns, rows, groups;
  GpuMembers members;
  Value weight, part, first, column, isOther;
};

/// The vector of a row that is load `i` of this lane.
Value GatherRowsEmitter::vectorAt(int64_t turn, int64_t i) {
  Value load = c.add(part, turn * perTurn() + i * plan.warpsPerRow);
  return c.add(c.lane, c.mul(load, kWarp));
}

/// This warp's part of a turn of a member's row; zeros, and nothing is read,
/// where there is no such member.
Values GatherRowsEmitter::load(Value index, int64_t turn) {
  auto some = [&] {
    Value row = c.at(weight, c.mul(members.at(index), rowBytes));
    Values loaded;
    for (int64_t i = 0; i < plan.loadsOfLane; ++i) {
      Value v = c.min(vectorAt(turn, i), c.i64(vectors - 1));
      loaded.push_back(c.load16(element, c.at(row, c.mul(v, 16))));
    }
    return loaded;
  };
  Values none(plan.loadsOfLane, c.constant(c.vec(4, c.b.getI32Type()), 0));
  return c.ifElse(c.lessThan(index, members.count), some, none);
}

/// A member's bias; zero if there is none.
Value GatherRowsEmitter::bias(Value index) {
  if (!op.getBias())
    return c.f32(0);
  return c.ifElse(
      c.lessThan(index, members.count),
      [&] {
        return c.load(c.f32Type(), c.at(frame.memoryOf(op.getBias()),
                                        c.mul(members.at(index), 4)));
      },
      c.f32(0));
}

Value GatherRowsEmitter::multiply(ArrayRef<Value> loaded, int64_t turn,
                                  Value sum) {
  for (int64_t i = 0; i < plan.loadsOfLane; ++i) {
    Value v = vectorAt(turn, i);
    // The last load of the last warp may lie behind the row.
    bool isWhole =
        (turn * perTurn() + (i + 1) * plan.warpsPerRow) * kWarp <= vectors;
    Value w = c.widen(loaded[i], element);
    for (int64_t p = 0; p < planes.count; ++p) {
      Value x = planes.load(v, p, isWhole);
      for (int64_t e = 0; e < 4; ++e)
        sum = c.fma(c.extract(w, 4 * p + e), c.extract(x, e), sum);
    }
  }
  return sum;
}

/// Whether `column` of the result is no member's, or lies behind the row.
Value GatherRowsEmitter::isNoMember(Value column) {
  int64_t columns = gpuColumns(op.getResult());
  Value inside = c.lessThan(column, c.i64(columns));
  Value member = members.contains(c.min(column, c.i64(columns - 1)));
  Value isMember = c.both(inside, member);
  Value isOther = c.isEqual(c.select(isMember, c.i32(1), c.i32(0)), 0);
  return c.both(c.lessThan(column, c.i64(padRow(columns))), isOther);
}

/// A thread's first column was looked up before the wait, and is mostly all.
void GatherRowsEmitter::clearOthers() {
  int64_t columns = padRow(gpuColumns(op.getResult()));
  int64_t all = plan.launch.blocks * c.threads;
  auto clear = [&](Value column, Value condition) {
    c.ifThen(condition, [&] {
      for (auto [value, row] : frame.resultsOf(op))
        c.store(c.f32(0), c.at(row, c.mul(column, 4)));
    });
  };
  clear(column, isOther);
  if (columns > all)
    c.loop(c.add(column, all), c.i64(columns), all,
           [&](Value other) { clear(other, isNoMember(other)); });
}

/// The warps of each row put their lanes' sums side by side; one of them adds
/// them up. Two batches take turns with the memory: one barrier is enough.
void GatherRowsEmitter::finish(Value from, Value parity, ArrayRef<Value> sums,
                               ArrayRef<Value> biases) {
  int64_t ofWarp = rows * kWarp * 4;
  Value parts =
      c.at(c.at(frame.shared, plan.partsAt), c.mul(parity, c.warps() * ofWarp));
  Value mine = c.at(parts, c.add(c.mul(c.warp, ofWarp), c.mul(c.lane, 4)));
  for (int64_t r = 0; r < rows; ++r)
    c.store(sums[r], c.at(mine, r * kWarp * 4));
  c.barrier();
  // A row's warps share its group's rows.
  for (int64_t r = 0; r < rows; ++r) {
    Value isMine = c.isEqual(part, r % plan.warpsPerRow);
    Value index = c.add(from, r * groups);
    Value isMember = c.lessThan(index, members.count);
    c.ifThen(c.both(isMine, isMember), [&] {
      Value base = c.at(parts, c.add(c.mul(c.sub(c.warp, part), ofWarp),
                                     c.add(c.mul(c.lane, 4), r * kWarp * 4)));
      Value sum = c.load(c.f32Type(), base);
      for (int64_t w = 1; w < plan.warpsPerRow; ++w)
        sum = c.fadd(sum, c.load(c.f32Type(), c.at(base, w * ofWarp)));
      sum = c.warpSum(sum);
      Value neuron = members.at(index);
      if (op.getBias())
        sum = c.fadd(sum, biases[r]);
      sum = emitGpuActivation(c, op.getActivation(), sum);
      c.ifThen(c.isEqual(c.lane, 0), [&] {
        for (auto [value, row] : frame.resultsOf(op))
          c.store(sum, c.at(row, c.mul(neuron, 4)));
      });
    });
  }
}

void GatherRowsEmitter::walk(ArrayRef<Value> now) {
  // All warps of the grid take as many batches: they meet at barriers.
  int64_t batch = groups * rows;
  Values init{c.i64(0)};
  llvm::append_range(init, now);
  auto loop = scf::ForOp::create(c.b, c.loc, c.i64(0), members.count,
                                 c.i64(batch), init);
  OpBuilder::InsertionGuard guard(c.b);
  c.b.setInsertionPointToStart(loop.getBody());
  Value parity = loop.getRegionIterArgs()[0];
  Values biases(loop.getRegionIterArgs().slice(1, rows));
  Values loaded(loop.getRegionIterArgs().drop_front(1 + rows));
  Value mine = c.add(loop.getInductionVar(), first);
  Values sums;
  for (int64_t r = 0; r < rows; ++r) {
    Value index = c.add(mine, r * groups);
    Value sum = c.f32(0);
    auto registers = MutableArrayRef<Value>(loaded).slice(r * plan.loadsOfLane,
                                                          plan.loadsOfLane);
    for (int64_t turn = 0; turn < turns; ++turn) {
      sum = multiply(registers, turn, sum);
      Values next = turn + 1 < turns ? load(index, turn + 1)
                                     : load(c.add(index, batch), 0);
      llvm::copy(next, registers.begin());
    }
    sums.push_back(sum);
  }
  finish(mine, parity, sums, biases);
  Values yielded{c.sub(c.i64(1), parity)};
  for (int64_t r = 0; r < rows; ++r)
    yielded.push_back(bias(c.add(mine, batch + r * groups)));
  yielded.append(loaded);
  scf::YieldOp::create(c.b, c.loc, yielded);
}

void GatherRowsEmitter::emit() {
  part = c.rem(c.warp, plan.warpsPerRow);
  first = c.div(c.warp, plan.warpsPerRow);
  auto start = [&] {
    members.read();
    Values loaded;
    for (int64_t r = 0; r < rows; ++r)
      loaded.append(load(c.add(first, r * groups), 0));
    for (int64_t r = rows; r-- > 0;)
      loaded.insert(loaded.begin(), bias(c.add(first, r * groups)));
    isOther = isNoMember(column);
    return loaded;
  };
  column = c.add(c.mul(c.block, c.threads), c.thread);
  Values loaded;
  if (plan.isSetEarly)
    loaded = start();
  prefetchVectors(frame, normVectors(op.getX()));
  c.waitForInputs();
  c.letDependentsStart();
  if (!plan.isSetEarly)
    loaded = start();
  clearOthers();
  planes.stage(op.getX());
  c.barrier();
  walk(loaded);
  c.ifThen(c.isEqual(c.add(c.block, c.thread), 0),
           [&] { members.storeCount(); });
}

} // namespace

void foresight::emitGatherRows(GpuFrame &frame) {
  GatherRowsEmitter(frame).emit();
}
