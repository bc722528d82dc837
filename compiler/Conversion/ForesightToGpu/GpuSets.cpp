//===- GpuSets.cpp - Sets that go from kernel to kernel -------------------===//

#include "GpuSets.h"

#include "GpuScores.h"
#include "GpuWarp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

constexpr int64_t kBits = 32;

GpuMembers::GpuMembers(GpuFrame &frame, Value set, int64_t blocks)
    : frame(frame), c(frame.c),
      universe(cast<IndexSetType>(set.getType()).getUniverse()), blocks(blocks),
      words(frame.memoryOf(set)), list(c.at(frame.shared, frame.plan.listAt)) {}

Value GpuMembers::at(Value index) {
  Value entry = c.load(c.b.getI16Type(), c.at(list, c.mul(index, 2)));
  return arith::ExtUIOp::create(c.b, c.loc, c.b.getI64Type(), entry);
}

Value GpuMembers::contains(Value candidate) {
  Value word = wordAt(c.div(candidate, kBits));
  Value bit = arith::ShRUIOp::create(c.b, c.loc, word,
                                     narrow(c, c.rem(candidate, kBits)));
  return arith::TruncIOp::create(c.b, c.loc, c.b.getI1Type(), bit);
}

/// From the cache that all multiprocessors share: where the set is read without
/// waiting, nothing else says that a nearer one has no older word.
Value GpuMembers::wordAt(Value index) {
  return LLVM::LoadOp::create(
      c.b, c.loc, c.b.getI32Type(), c.at(words, c.mul(index, 4)),
      /*alignment=*/4, /*isVolatile=*/false, /*isNonTemporal=*/false,
      /*isInvariant=*/false, /*isInvariantGroup=*/false,
      LLVM::AtomicOrdering::monotonic, "device");
}

void GpuMembers::storeCount() { c.store(narrow(c, all), frame.counts()); }

/// A thread takes neighbouring words; what threads before it have found says
/// where its members go.
void GpuMembers::read() {
  int64_t total = (universe + kBits - 1) / kBits;
  int64_t each = (total + c.threads - 1) / c.threads;
  Value first = c.mul(c.thread, each);
  Values mine;
  Value found = c.i32(0);
  for (int64_t i = 0; i < each; ++i) {
    Value index = c.add(first, i);
    Value word = c.ifElse(
        c.lessThan(index, c.i64(total)), [&] { return wordAt(index); },
        c.i32(0));
    // The maker's last byte may have more bits than there are candidates.
    if (int64_t rest = universe % kBits)
      word = c.select(c.isEqual(index, total - 1),
                      bitAnd(c, word, (int64_t{1} << rest) - 1), word);
    mine.push_back(word);
    found = c.add(found, popCount(c, word));
  }
  Value upToMe = sumLanesBelow(c, found);
  Value ofWarps = frame.shared;
  c.ifThen(c.isEqual(c.lane, kWarp - 1),
           [&] { c.store(upToMe, c.at(ofWarps, c.mul(c.warp, 4))); });
  c.barrier();
  Value ofWarp = c.ifElse(
      c.lessThan(c.lane, c.i64(c.warps())),
      [&] { return c.load(c.b.getI32Type(), c.at(ofWarps, c.mul(c.lane, 4))); },
      c.i32(0));
  Value before = sumLanesOf(
      c, c.select(c.lessThan(c.lane, c.warp), ofWarp, c.i32(0)), kWarp);
  count = all = c.toI64(sumLanesOf(c, ofWarp, kWarp));
  if (blocks > 1)
    count = c.div(c.sub(c.add(all, blocks - 1), c.block), blocks);
  Value place = c.toI64(c.add(before, c.sub(upToMe, found)));
  for (int64_t i = 0; i < each; ++i)
    place = c.forEachBit(mine[i], place, [&](Value bit, Value at) {
      Value member = c.add(c.mul(c.add(first, i), kBits), bit);
      auto keep = [&] {
        c.store(arith::TruncIOp::create(c.b, c.loc, c.b.getI16Type(), member),
                c.at(list, c.mul(c.div(at, blocks), 2)));
      };
      if (blocks == 1)
        keep();
      else
        c.ifThen(c.isEqual(c.sub(c.rem(at, blocks), c.block), 0), keep);
      return c.add(at, 1);
    });
  c.barrier();
}

/// Units of a warp, one after the other: each is a byte, two or a word.
void foresight::emitScores(GpuFrame &frame) {
  GpuCode &c = frame.c;
  const GpuSparse &plan = frame.plan.sparse;
  KernelOp kernel = frame.plan.kernel;
  SelectCertifiedOp select = plan.select;
  Block &body = kernel.getBody().front();
  OperandRange results = body.getTerminator()->getOperands();
  int64_t index = llvm::find(results, select.getResult()) - results.begin();
  Value set = frame.parameters[body.getNumArguments() + index];

  if (frame.plan.startsDependentsFirst)
    c.letDependentsStart();
  GpuScores scores(frame);
  for (int64_t i = 0; i < plan.slots; ++i)
    scores.request(c.i64(i));
  c.waitForInputs();
  if (!frame.plan.startsDependentsFirst)
    c.letDependentsStart();
  scores.round([&](Value k) {
    return c.at(c.at(frame.shared, frame.plan.rowAt), c.mul(k, 4));
  });
  c.barrier();
  c.loop(c.i64(0), scores.turns(), 1, [&](Value turn) {
    Value unit = scores.unitOf(turn);
    c.ifThen(c.lessThan(unit, c.i64(plan.units)), [&] {
      GpuScores::Tested tested = scores.score(turn, unit);
      Value place = c.sub(tested.neuron, c.mul(unit, plan.neurons));
      Value one = c.i32(1);
      Value bit = arith::ShLIOp::create(c.b, c.loc, one, narrow(c, place));
      Value bits = orLanes(c, c.select(tested.isKept, bit, c.i32(0)));
      c.ifThen(c.isEqual(c.lane, 0), [&] {
        Type type = c.b.getIntegerType(plan.neurons);
        if (plan.neurons < kBits)
          bits = arith::TruncIOp::create(c.b, c.loc, type, bits);
        c.store(bits, c.at(set, c.mul(unit, plan.neurons / 8)));
      });
    });
  });
}
