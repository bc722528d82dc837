//===- GpuGatherColumns.cpp - Sums of the rows of a known set -------------===//
//
// A block owns some columns and walks the members' rows, which go round-robin
// to groups of lanes. Where the set is known early the first rows are under way
// before the kernel waits for what they are multiplied by; all members' rows
// are read, be their inputs zero or not.
//
//===----------------------------------------------------------------------===//

#include "GpuColumnSums.h"
#include "GpuSets.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// Rows of a lane that are under way.
constexpr int64_t kRows = 7;

class GatherColumnsEmitter {
public:
  explicit GatherColumnsEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), op(frame.plan.column), columns(frame),
        per(columns.per), groups(columns.groups), members(frame, op.getRows()) {
  }

  void emit();

private:
  Value load(Value index);
  Values walk(ArrayRef<Value> loaded);

  GpuFrame &frame;
  GpuCode &c;
  ColumnLinearOp op;
  GpuColumnSums columns;
  int64_t per, groups;
  GpuMembers members;
  Value x;
};

/// This lane's piece of a member's row; zero if there is no such member.
Value GatherColumnsEmitter::load(Value index) {
  return c.ifElse(
      c.lessThan(index, members.count),
      [&] {
        Value row = c.mul(members.at(index), columns.rowBytes);
        return c.load16(columns.element, c.at(columns.base, row));
      },
      c.constant(c.vec(4, c.b.getI32Type()), 0));
}

Values GatherColumnsEmitter::walk(ArrayRef<Value> loaded) {
  Values init(per, c.f32(0));
  init.append(loaded.begin(), loaded.end());
  Values out =
      c.loop(columns.group, members.count, kRows * groups, init,
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
                 columns.add(sums, rows[i], inputs[i]);
                 rows[i] = load(c.add(from, (i + kRows) * groups));
               }
               sums.append(rows);
               return sums;
             });
  out.truncate(per);
  return out;
}

void GatherColumnsEmitter::emit() {
  auto start = [&] {
    members.read();
    Values loaded;
    for (int64_t i = 0; i < kRows; ++i)
      loaded.push_back(load(c.add(columns.group, i * groups)));
    return loaded;
  };
  Values loaded;
  if (frame.plan.isSetEarly)
    loaded = start();
  c.waitForInputs();
  c.letDependentsStart();
  if (!frame.plan.isSetEarly)
    loaded = start();
  columns.readFollowing();
  x = frame.rowOf(op.getX());
  columns.finish(walk(loaded));
  c.ifThen(c.isEqual(c.add(c.block, c.thread), 0),
           [&] { members.storeCount(); });
}

} // namespace

void foresight::emitGatherColumns(GpuFrame &frame) {
  GatherColumnsEmitter(frame).emit();
}
