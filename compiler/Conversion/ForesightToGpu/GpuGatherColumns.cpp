//===- GpuGatherColumns.cpp - Sums of the rows of a known set -------------===//
//
// A block owns some columns and walks the members' rows, which go round-robin
// to groups of lanes. Where the set is known early the first rows are under way
// before the kernel waits for what they are multiplied by; all members' rows
// are read, be their inputs zero or not.
//
//===----------------------------------------------------------------------===//

#include "GpuSets.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// Rows of a lane that are under way.
constexpr int64_t kRows = 7;

class GatherColumnsEmitter {
public:
  explicit GatherColumnsEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), op(frame.plan.column),
        element(gpuElement(op.getWeight())), per(elementsOf16(element)),
        columns(frame.plan.columnsPerBlock), lanesPerRow(columns / per),
        groups(c.threads / lanesPerRow), rowBytes(gpuRowBytes(op.getWeight())),
        members(frame, op.getRows()) {}

  void emit();

private:
  Value load(Value index);
  Values walk(Values loaded);
  void finish(ArrayRef<Value> sums);

  GpuFrame &frame;
  GpuCode &c;
  ColumnLinearOp op;
  Type element;
  int64_t per, columns, lanesPerRow, groups, rowBytes;
  GpuMembers members;
  Value x, base, group, part;
};

/// This lane's piece of a member's row; zero if there is no such member.
Value GatherColumnsEmitter::load(Value index) {
  return c.ifElse(
      c.lessThan(index, members.count),
      [&] {
        return c.load16(element,
                        c.at(base, c.mul(members.at(index), rowBytes)));
      },
      c.constant(c.vec(4, c.b.getI32Type()), 0));
}

Values GatherColumnsEmitter::walk(Values loaded) {
  Values init(per, c.f32(0));
  init.append(loaded);
  Values out =
      c.loop(group, members.count, kRows * groups, init,
             [&](Value from, ValueRange carried) {
               Values sums(carried.take_front(per)),
                   rows(carried.drop_front(per));
               Values inputs;
               for (int64_t i = 0; i < kRows; ++i) {
                 Value index = c.add(from, i * groups);
                 inputs.push_back(c.ifElse(
                     c.lessThan(index, members.count),
                     [&] {
                       return c.load(c.f32Type(),
                                     c.at(x, c.mul(members.at(index), 4)));
                     },
                     c.f32(0)));
               }
               for (int64_t i = 0; i < kRows; ++i) {
                 Value w = c.widen(rows[i], element);
                 for (int64_t e = 0; e < per; ++e)
                   sums[e] = c.fma(inputs[i], c.extract(w, e), sums[e]);
                 rows[i] = load(c.add(from, (i + kRows) * groups));
               }
               sums.append(rows);
               return sums;
             });
  out.truncate(per);
  return out;
}

/// Lanes of a warp that hold the same columns, then the warps.
void GatherColumnsEmitter::finish(ArrayRef<Value> sums) {
  Value parts = c.at(frame.shared, frame.plan.partsAt);
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
    Value column = c.add(c.mul(c.block, columns), c.thread);
    for (auto [value, row] : frame.resultsOf(
             [&](Value v) { return frame.plan.productOf.contains(v); })) {
      Value result = emitGpuEpilogue(frame, value, op, sum, column);
      if (all != padRow(all))
        result = c.select(c.lessThan(column, c.i64(all)), result, c.f32(0));
      c.store(result, c.at(row, c.mul(column, 4)));
    }
  });
}

void GatherColumnsEmitter::emit() {
  group = c.div(c.thread, lanesPerRow);
  part = c.rem(c.thread, lanesPerRow);
  base = c.at(
      frame.memoryOf(op.getWeight()),
      c.add(c.mul(c.block, columns * elementBytes(element)), c.mul(part, 16)));
  auto start = [&] {
    members.read();
    Values loaded;
    for (int64_t i = 0; i < kRows; ++i)
      loaded.push_back(load(c.add(group, i * groups)));
    return loaded;
  };
  Values loaded;
  if (frame.plan.isSetEarly)
    loaded = start();
  c.waitForInputs();
  c.letDependentsStart();
  if (!frame.plan.isSetEarly)
    loaded = start();
  x = frame.rowOf(op.getX());
  finish(walk(std::move(loaded)));
  c.ifThen(c.isEqual(c.add(c.block, c.thread), 0),
           [&] { members.storeCount(); });
}

} // namespace

void foresight::emitGatherColumns(GpuFrame &frame) {
  GatherColumnsEmitter(frame).emit();
}
