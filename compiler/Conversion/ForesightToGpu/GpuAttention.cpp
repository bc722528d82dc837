//===- GpuAttention.cpp - A head over its history -------------------------===//
//
// A block is a head of a token. Lanes form groups that hold one cache row at 16
// bytes a lane; a group takes every so many history tokens, keys and values
// together, and keeps a running maximum, sum and weighted values, which are
// joined in a fixed order at the end: one pass, one barrier. The kernel in
// front wrote the keys and values. What decodes is in GpuDecodeAttention.cpp.
//
//===----------------------------------------------------------------------===//

#include "GpuHistory.h"

using namespace mlir;
using namespace foresight;

namespace {

/// History tokens of a group that are under way at once.
constexpr int64_t kLoads = 4;

class AttentionEmitter : HistoryEmitter {
public:
  explicit AttentionEmitter(GpuFrame &frame) : HistoryEmitter(frame) {}

  void emit();

private:
  struct Rows {
    Values keys, values, isIn;
  };

  Rows loadRows(Value first);
  void finish(State state);

  Value position, length;
};

/// A lane's words of the group's rows from history token `first` on. A row that
/// is not in the history is read as zeros: what lies there may be anything.
AttentionEmitter::Rows AttentionEmitter::loadRows(Value first) {
  Rows rows;
  Value zero = c.constant(c.vec(4, c.b.getI32Type()), 0);
  for (int64_t i = 0; i < kLoads; ++i) {
    Value s = c.add(first, i * groups);
    Value isIn = c.lessThan(s, length);
    rows.isIn.push_back(isIn);
    auto load = [&](Value base) {
      return c.ifElse(
          isIn,
          [&] {
            return c.load16(element, c.at(base, c.add(c.mul(s, rowBytes),
                                                      c.mul(safePart, 16))));
          },
          zero);
    };
    rows.keys.push_back(load(keys));
    rows.values.push_back(load(values));
  }
  return rows;
}

/// The warps' parts, by whoever writes the result.
void AttentionEmitter::finish(State state) {
  Value warpParts = c.at(frame.shared, frame.plan.rowAt);
  leaveWarpPart(std::move(state), warpParts);
  c.loop(c.thread, c.i64(cache.getHeadDim()), c.threads, [&](Value k) {
    Part all = joinParts(warpParts, c.warps(), /*known=*/nullptr, k);
    storeResult(k, c.fdiv(all.value, all.sum));
  });
  frame.zeroBehind(op, c.isEqual(head, cache.getHeads() - 1));
}

void AttentionEmitter::emit() {
  int64_t heads = cache.getHeads();
  head = c.rem(c.block, heads);
  frame.token = c.div(c.block, heads);
  findLanes();
  c.waitForInputs();
  c.letDependentsStart();
  position = frame.intOf(op.getPositions());
  length = c.add(position, 1);
  findCache();
  Rows rows = loadRows(group);

  query = ownElements(op.getQuery());
  State state = nothing();
  // Trip counts are the same for all threads: shuffles need whole warps.
  int64_t step = kLoads * groups;
  Values carried = state.flat();
  for (const Values &part : {rows.keys, rows.values, rows.isIn})
    carried.append(part);
  Values out = c.loop(
      c.i64(0), length, step, carried, [&](Value first, ValueRange args) {
        int64_t known = 2 + per;
        State state = State::from(args.take_front(known));
        ValueRange loaded = args.drop_front(known);
        Values scores;
        SmallVector<Values> rows;
        for (int64_t i = 0; i < kLoads; ++i) {
          Value s = score(elementsOf(loaded[i]));
          scores.push_back(c.select(loaded[2 * kLoads + i], s, c.f32(kLowest)));
          rows.push_back(elementsOf(loaded[kLoads + i]));
        }
        // Under way while the sums are made.
        Rows next = loadRows(c.add(c.add(first, step), group));
        Values result = add(state, scores, rows).flat();
        for (const Values &part : {next.keys, next.values, next.isIn})
          result.append(part);
        return result;
      });
  finish(State::from(ValueRange(out).take_front(2 + per)));
}

} // namespace

void foresight::emitGpuAttention(GpuFrame &frame) {
  AttentionEmitter(frame).emit();
}
