//===- GpuDecodeAttention.cpp - A new token's attention -------------------===//
//
// The history of a head is split over blocks, as many as its length asks for.
// Lanes form groups that hold one cache row at 16 bytes a lane; a group takes
// every so many history tokens, keys and values together, and keeps a running
// maximum, sum and weighted values. Rows are copied to a ring in shared memory;
// it is filled before the kernel waits for the one in front, since all rows but
// the token's own were written by earlier tokens. The token's own key and value
// come from the arguments.
//
// Groups are joined in a fixed order. Where there are several blocks, each
// leaves its part in GPU memory, and the last one to do so joins the parts in
// their order, so that it does not matter which one is last.
//
// Of a batch each row is a sequence of its own, with blocks of its own.
//
//===----------------------------------------------------------------------===//

#include "GpuHistory.h"
#include "GpuWarp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;

namespace {

constexpr unsigned kGlobalSpace = 1;
constexpr llvm::StringLiteral kDeviceScope = "device";

class DecodeAttentionEmitter : HistoryEmitter {
public:
  explicit DecodeAttentionEmitter(GpuFrame &frame)
      : HistoryEmitter(frame), split(frame.plan.split),
        batchRows(frame.plan.batchRows),
        slotBytes(2 * split.tokens * c.threads * 16) {}

  void emit();

private:
  void findTokens();
  void request(Value step, Value slot);
  Values wordsOf(Value slot, int64_t index);
  State addOwn(const State &state);
  void append(Value row, Value memory);
  Value globalMemory(StringRef what, int64_t bytes);
  void finish();
  void fence() {
    LLVM::FenceOp::create(c.b, c.loc, LLVM::AtomicOrdering::acq_rel,
                          kDeviceScope);
  }

  const GpuSplit &split;
  /// Of a batch; 0: one token.
  int64_t batchRows;
  int64_t slotBytes;
  Value position, ring, warpParts;
  /// This block's history, the blocks that have some, and which one this is.
  Value from, to, active, index;
  /// Where the head's blocks leave their parts, and count themselves.
  Value ofHead, counter;
};

/// Blocks share the history evenly, in whole steps of a block.
void DecodeAttentionEmitter::findTokens() {
  int64_t step = groups * split.tokens;
  Value even = c.div(c.add(position, split.blocks - 1), split.blocks);
  Value tokens = c.max(c.mul(c.div(c.add(even, step - 1), step), step),
                       c.i64(split.least));
  Value full = c.div(c.add(position, c.sub(tokens, c.i64(1))), tokens);
  active = c.max(full, c.i64(1));
  from = c.mul(index, tokens);
  to = c.min(position, c.add(from, tokens));
}

/// The group's rows of a step. One that is past the end reads the last, and
/// does not count.
void DecodeAttentionEmitter::request(Value step, Value slot) {
  Value first = c.add(from, c.mul(step, groups * split.tokens));
  c.ifThen(c.lessThan(first, to), [&] {
    Value to16 = c.at(slot, c.mul(c.thread, 16));
    for (int64_t i = 0; i < split.tokens; ++i) {
      Value s =
          c.min(c.add(c.add(first, group), i * groups), c.sub(to, c.i64(1)));
      Value offset = c.add(c.mul(s, rowBytes), c.mul(safePart, 16));
      copyAsync(c, c.at(to16, 2 * i * c.threads * 16), c.at(keys, offset), 16);
      copyAsync(c, c.at(to16, (2 * i + 1) * c.threads * 16),
                c.at(values, offset), 16);
    }
  });
  endGroup(c);
}

/// The elements of this lane's vector `index` of a slot.
HistoryEmitter::Values DecodeAttentionEmitter::wordsOf(Value slot,
                                                       int64_t index) {
  Value place = c.at(slot, c.add(c.mul(c.thread, 16), index * c.threads * 16));
  return elementsOf(c.loadAligned(c.vec(4, c.b.getI32Type()), place, 16));
}

/// The token itself, as the cache will hold it: all groups compute it, the
/// first one of the first block counts.
HistoryEmitter::State DecodeAttentionEmitter::addOwn(const State &state) {
  KvAppendOp own = frame.plan.append;
  auto rounded = [&](Value row) {
    Values elements = ownElements(row);
    if (element.isF32())
      return elements;
    for (Value &x : elements) {
      Value narrow = arith::TruncFOp::create(c.b, c.loc, element, x);
      x = arith::ExtFOp::create(c.b, c.loc, c.f32Type(), narrow);
    }
    return elements;
  };
  State with =
      add(state, score(rounded(own.getKeys())), rounded(own.getValues()));
  Value counts = c.both(c.isEqual(group, 0), c.isEqual(index, 0));
  with.best = c.select(counts, with.best, state.best);
  with.sum = c.select(counts, with.sum, state.sum);
  for (auto [mine, none] : llvm::zip(with.values, state.values))
    mine = c.select(counts, mine, none);
  return with;
}

/// This token's part of the head to its place in the cache.
void DecodeAttentionEmitter::append(Value row, Value memory) {
  int64_t headDim = cache.getHeadDim();
  Type stored = gpuElement(row);
  int64_t bytes = elementBytes(stored);
  Value source = c.at(frame.rowOf(row), c.mul(head, bytes * headDim));
  Value target = c.at(memory, c.mul(position, rowBytes));
  c.loop(c.thread, c.i64(headDim), c.threads, [&](Value k) {
    Value x = c.loadWidened(stored, 0, c.at(source, c.mul(k, bytes)));
    c.storeNarrow(element, x, c.at(target, c.mul(k, elementBytes(element))));
  });
}

/// Memory of this kernel alone, zero when the code is loaded.
Value DecodeAttentionEmitter::globalMemory(StringRef what, int64_t bytes) {
  auto module =
      c.b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  KernelOp kernel = frame.plan.kernel;
  std::string name = gpuEntryName(kernel.getSymName()) + "_" + what.str();
  auto type = LLVM::LLVMArrayType::get(c.b.getI8Type(), bytes);
  {
    OpBuilder::InsertionGuard guard(c.b);
    c.b.setInsertionPointToStart(module.getBody());
    auto global = LLVM::GlobalOp::create(
        c.b, c.loc, type, /*isConstant=*/false, LLVM::Linkage::Internal, name,
        Attribute(), /*alignment=*/16, kGlobalSpace);
    Block *block = c.b.createBlock(&global.getInitializerRegion());
    c.b.setInsertionPointToStart(block);
    LLVM::ReturnOp::create(c.b, c.loc,
                           LLVM::ZeroOp::create(c.b, c.loc, type).getResult());
  }
  Value address = LLVM::AddressOfOp::create(
      c.b, c.loc, LLVM::LLVMPointerType::get(c.b.getContext(), kGlobalSpace),
      name);
  return LLVM::AddrSpaceCastOp::create(c.b, c.loc, c.pointerType(), address);
}

void DecodeAttentionEmitter::finish() {
  int64_t headDim = cache.getHeadDim(), heads = cache.getHeads();
  auto forElements = [&](llvm::function_ref<void(Value)> body) {
    c.loop(c.thread, c.i64(headDim), c.threads, body);
  };
  auto ofWarps = [&](Value k) {
    return joinParts(warpParts, c.warps(), nullptr, k);
  };
  frame.zeroBehind(op, c.both(c.isEqual(head, heads - 1), c.isEqual(index, 0)));
  auto alone = [&] {
    forElements([&](Value k) {
      Part all = ofWarps(k);
      storeResult(k, c.fdiv(all.value, all.sum));
    });
  };
  if (split.blocks == 1)
    return alone();
  c.ifThen(c.isEqual(active, 1), alone);
  c.ifThen(c.lessThan(c.i64(1), active), [&] {
    Value mine = c.at(ofHead, c.mul(index, partBytes));
    forElements([&](Value k) {
      Part all = ofWarps(k);
      c.store(all.value, c.at(c.at(mine, 16), c.mul(k, 4)));
      c.ifThen(c.isEqual(k, 0), [&] {
        c.store(all.best, mine);
        c.store(all.sum, c.at(mine, 4));
      });
    });
    fence();
    c.barrier();
    c.ifThen(c.isEqual(c.thread, 0), [&] {
      Value global = LLVM::AddrSpaceCastOp::create(
          c.b, c.loc,
          LLVM::LLVMPointerType::get(c.b.getContext(), kGlobalSpace), counter);
      Value before = LLVM::AtomicRMWOp::create(
          c.b, c.loc, LLVM::AtomicBinOp::add, global, c.i32(1),
          LLVM::AtomicOrdering::monotonic, kDeviceScope);
      c.store(before, frame.shared);
    });
    c.barrier();
    Value before = c.toI64(c.load(c.b.getI32Type(), frame.shared));
    c.ifThen(c.isEqual(c.sub(active, before), 1), [&] {
      fence();
      forElements([&](Value k) {
        Part all = joinParts(ofHead, split.blocks, active, k);
        storeResult(k, c.fdiv(all.value, all.sum));
      });
      c.ifThen(c.isEqual(c.thread, 0), [&] { c.store(c.i32(0), counter); });
    });
  });
}

void DecodeAttentionEmitter::emit() {
  int64_t heads = cache.getHeads();
  // The kernel behind may fill its own shared memory now: it waits for this
  // one, and this one for the one in front.
  c.letDependentsStart();
  head = c.rem(c.block, heads);
  index = c.div(c.block, heads);
  if (batchRows > 0) {
    frame.token = c.div(index, split.blocks);
    index = c.rem(index, split.blocks);
  }
  findLanes();
  position = frame.intOf(op.getPositions());
  findTokens();
  findCache();
  warpParts = c.at(frame.shared, frame.plan.rowAt);
  ring = c.at(frame.shared, split.ringAt);
  if (split.blocks > 1) {
    int64_t all = heads * std::max<int64_t>(batchRows, 1);
    Value place = batchRows > 0 ? c.add(c.mul(frame.token, heads), head) : head;
    ofHead = c.at(globalMemory("parts", all * split.blocks * partBytes),
                  c.mul(place, split.blocks * partBytes));
    counter = c.at(globalMemory("arrived", all * 4), c.mul(place, 4));
  }

  Value hasWork = c.lessThan(index, active);
  // Rows of a batch that nobody asked for.
  if (batchRows > 0)
    hasWork = c.both(hasWork, c.lessThan(frame.token, frame.tokens()));
  c.ifThen(hasWork, [&] {
    for (int64_t i = 0; i < split.depth; ++i)
      request(c.i64(i), c.at(ring, i * slotBytes));
    c.waitForInputs();
    query = ownElements(op.getQuery());
    State state = addOwn(nothing());
    c.ifThen(c.isEqual(index, 0), [&] {
      KvAppendOp own = frame.plan.append;
      append(own.getKeys(), keys);
      append(own.getValues(), values);
    });

    // Trip counts are the same for all threads: shuffles need whole warps.
    int64_t step = groups * split.tokens;
    Value steps =
        c.div(c.add(c.max(c.sub(to, from), c.i64(0)), step - 1), step);
    Values carried{c.i64(0)};
    carried.append(state.flat());
    Values out =
        c.loop(c.i64(0), steps, 1, carried, [&](Value turn, ValueRange args) {
          Value slot = c.at(ring, args[0]);
          State state = State::from(args.drop_front(1));
          waitForGroups(c, split.depth - 1);
          Value first = c.add(c.add(from, group), c.mul(turn, step));
          Values scores;
          SmallVector<Values> rows;
          for (int64_t i = 0; i < split.tokens; ++i) {
            Value s = score(wordsOf(slot, 2 * i));
            Value isIn = c.lessThan(c.add(first, i * groups), to);
            scores.push_back(c.select(isIn, s, c.f32(kLowest)));
            rows.push_back(wordsOf(slot, 2 * i + 1));
          }
          State next = add(state, scores, rows);
          request(c.add(turn, split.depth), slot);
          Values yielded{nextSlot(c, args[0], slotBytes, split.depth)};
          yielded.append(next.flat());
          return yielded;
        });
    leaveWarpPart(State::from(ValueRange(out).drop_front(1)), warpParts);
    finish();
  });
}

} // namespace

void foresight::emitGpuDecodeAttention(GpuFrame &frame) {
  DecodeAttentionEmitter(frame).emit();
}
