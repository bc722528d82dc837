//===- GpuDrawToken.cpp - A token drawn from its distribution -------------===//
//
// What foresight/abi/Sampling.h defines, without sorting the vocabulary. All
// that drawing asks for is one thing, up to three times: in the order of
// logits, at which token does a sum pass a limit? With counts that is top-k,
// with weights it is top-p and the draw itself; the tokens before it need not
// be known, only their sum.
//
// Blocks add weights and counts of their logits up in bins of equal width in x
// (so that neighbours seldom meet in one), and the last one to come sees in
// which bin the sum passes the limit. It reads the logits again, keeps those of
// that bin in a list and ranks them by comparing each with each. A bin of more
// than the list holds is split by the digits of what orders its tokens, logit
// and id, ten bits at a time, until what is left fits: no logits are so alike
// that this fails.
//
// Sums are of integers: whichever block comes first, the bits are the same.
//
//===----------------------------------------------------------------------===//

#include "GpuPickEmitter.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;
using Predicate = arith::CmpIPredicate;

namespace {

constexpr int64_t kThreads = FORESIGHT_PICK_THREADS;
constexpr int64_t kBins = FORESIGHT_SEARCH_BINS;
/// Tokens whose weight is 0 are in the last bin, others never.
constexpr int64_t kLastBin = kBins - 1;
/// Tokens that are ranked by comparing each with each, and the digits that
/// split a larger bin: a thread has one.
constexpr int64_t kListed = 256, kDigits = kThreads, kDigitBits = 10;

// Shared memory, behind what one thread tells all: sums of warps; sums before
// each bin, and behind the last; then the list or the digits' sums.
constexpr int64_t kWarpsAt = 64;
constexpr int64_t kWeightsAt = kWarpsAt + 8 * kWarp;
constexpr int64_t kCountsAt = kWeightsAt + 8 * (kBins + 2);
constexpr int64_t kListAt = kCountsAt + 4 * (kBins + 4);
constexpr int64_t kDigitWeightsAt = kListAt;
constexpr int64_t kDigitCountsAt = kListAt + 8 * kDigits;
static_assert(kDigitCountsAt + 4 * kDigits <= FORESIGHT_PICK_SHARED);
static_assert(kListAt + 16 * kListed <= FORESIGHT_PICK_SHARED);

} // namespace

/// The bin of a power x of two, 0 or less.
Value PickEmitter::binOf(Value x) {
  constexpr double kWidth = (kLastBin - 1) / -FORESIGHT_LEAST_POWER;
  Value hasWeight = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, x,
                                          c.f32(FORESIGHT_LEAST_POWER));
  Value bin = arith::FPToUIOp::create(b, loc, b.getI32Type(),
                                      c.fmul(x, c.f32(-kWidth)));
  return wide(c.select(hasWeight, bin, c.i32(kLastBin)));
}

Value PickEmitter::weightOf(Value x) {
  constexpr float kTerms[] = FORESIGHT_POWER_TERMS;
  constexpr int64_t kExponentAt = 23;
  Value rounder = c.f32(FORESIGHT_ROUNDER);
  Value moved = c.fadd(x, rounder);
  Value fraction = c.fsub(x, c.fsub(moved, rounder));
  Type i32 = b.getI32Type();
  Value power = c.sub(c.bitcast(moved, i32),
                      c.i32(llvm::bit_cast<int32_t>(FORESIGHT_ROUNDER)));
  Value value = c.f32(kTerms[5]);
  for (int i = 4; i >= 0; --i)
    value = c.fadd(c.fmul(value, fraction), c.f32(kTerms[i]));
  value = c.fadd(c.fmul(value, fraction), c.f32(1));
  value =
      c.bitcast(c.add(c.bitcast(value, i32), moveBits(c, power, kExponentAt)),
                c.f32Type());
  Value weight = arith::FPToUIOp::create(
      b, loc, b.getI64Type(), c.fmul(value, c.f32(FORESIGHT_WEIGHT_ONE)));
  Value hasWeight = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, x,
                                          c.f32(FORESIGHT_LEAST_POWER));
  return c.select(hasWeight, weight, c.i64(0));
}

/// This block's part of the row into bins in shared memory, these into the
/// row's.
void PickEmitter::fillBins() {
  auto forOwnBins = [&](llvm::function_ref<void(Value)> body) {
    for (int64_t first = 0; first < kBins; first += kThreads)
      body(c.add(c.thread, first));
  };
  forOwnBins([&](Value bin) {
    c.store(c.i64(0), sumAt(kWeightsAt, bin, 8));
    c.store(c.i32(0), sumAt(kCountsAt, bin, 4));
  });
  c.barrier();
  forLogits(part, arguments[Parts], [&](Value logit, Value, Value exists) {
    Value x = c.fmul(c.fsub(logit, largest), scale);
    Value bin = binOf(x);
    c.ifThen(exists, [&] {
      atomicAdd(c, sumAt(kCountsAt, bin, 4), c.i32(1));
      c.ifThen(c.lessThan(bin, c.i64(kLastBin)),
               [&] { atomicAdd(c, sumAt(kWeightsAt, bin, 8), weightOf(x)); });
    });
  });
  c.barrier();
  forOwnBins([&](Value bin) {
    Value count = load32(sumAt(kCountsAt, bin, 4));
    c.ifThen(compare(Predicate::ne, count, c.i32(0)), [&] {
      atomic(LLVM::AtomicBinOp::add,
             c.at(own(offsetof(foresight_pick_state, counts)), c.mul(bin, 4)),
             count);
      atomic(LLVM::AtomicBinOp::add,
             c.at(own(offsetof(foresight_pick_state, weights)), c.mul(bin, 8)),
             load64(sumAt(kWeightsAt, bin, 8)));
    });
  });
}

/// The sum of what threads in front have, and of all. `own` is this thread's,
/// to be added up. Ends with a barrier that all threads have read `all` behind.
void PickEmitter::sumBefore(ArrayRef<Value> ownSums, Value &before,
                            Value &all) {
  Value mine = ownSums[0];
  for (Value x : ownSums.drop_front())
    mine = c.add(mine, x);
  Value sum = mine;
  for (int64_t by = 1; by < kWarp; by *= 2) {
    Value below = shuffle64(sum, [&](Value word) -> Value {
      return NVVM::ShflOp::create(b, loc, word.getType(), c.i32(-1), word,
                                  c.i32(by), c.i32(0), NVVM::ShflKind::up,
                                  UnitAttr());
    });
    Value hasBelow = compare(Predicate::sge, c.lane, c.i64(by));
    sum = c.add(sum, c.select(hasBelow, below, c.i64(0)));
  }
  c.ifThen(c.isEqual(c.lane, kWarp - 1),
           [&] { c.store(sum, sumAt(kWarpsAt, c.warp, 8)); });
  c.barrier();
  Value ofWarp = load64(sumAt(kWarpsAt, c.lane, 8));
  auto warpSum64 = [&](Value x) {
    for (int64_t mask = kWarp / 2; mask >= 1; mask /= 2)
      x = c.add(x, shuffle64(x, [&](Value word) {
                  return c.shuffleXor(word, mask);
                }));
    return x;
  };
  all = warpSum64(ofWarp);
  Value front =
      warpSum64(c.select(c.lessThan(c.lane, c.warp), ofWarp, c.i64(0)));
  before = c.add(front, c.sub(sum, mine));
  c.barrier();
}

/// The row's bins, which become zero again, to shared memory: in front of each
/// the sums of those before it.
void PickEmitter::scanBins() {
  constexpr int64_t kOwn = kBins / kThreads;
  Value first = c.mul(c.thread, kOwn);
  Value counts =
      c.at(own(offsetof(foresight_pick_state, counts)), c.mul(first, 4));
  Value weights =
      c.at(own(offsetof(foresight_pick_state, weights)), c.mul(first, 8));
  Values ownCounts, ownWeights;
  for (int64_t i = 0; i < kOwn; ++i) {
    ownCounts.push_back(wide(load32(c.at(counts, 4 * i))));
    ownWeights.push_back(load64(c.at(weights, 8 * i)));
    c.store(c.i32(0), c.at(counts, 4 * i));
    c.store(c.i64(0), c.at(weights, 8 * i));
  }
  Value before, all;
  auto leave = [&](ArrayRef<Value> sums,
                   llvm::function_ref<void(Value, Value)> store) {
    for (int64_t i = 0; i < kOwn; ++i) {
      store(before, c.add(first, i));
      before = c.add(before, sums[i]);
    }
    onThread0([&] { store(all, c.i64(kBins)); });
  };
  sumBefore(ownCounts, before, all);
  leave(ownCounts, [&](Value sum, Value bin) {
    c.store(narrow(c, sum), sumAt(kCountsAt, bin, 4));
  });
  sumBefore(ownWeights, before, all);
  leave(ownWeights,
        [&](Value sum, Value bin) { c.store(sum, sumAt(kWeightsAt, bin, 8)); });
  c.barrier();
}

/// Finds the first token whose sum with those before it is above `limit`, of
/// counts or of weights: found(4) gets that sum of weights, found(5) the id.
void PickEmitter::search(Value byCount, Value limit) {
  auto sumOf = [&](Value bin) {
    return c.select(byCount, wide(load32(sumAt(kCountsAt, bin, 4))),
                    load64(sumAt(kWeightsAt, bin, 8)));
  };
  for (int64_t first = 0; first < kBins; first += kThreads) {
    Value bin = c.add(c.thread, first);
    Value from = sumOf(bin);
    Value isHere =
        c.both(isAtMost(from, limit), isBelow(limit, sumOf(c.add(bin, 1))));
    c.ifThen(isHere, [&] {
      c.store(bin, found(1));
      c.store(c.sub(limit, from), found(2));
    });
  }
  c.barrier();
  Value bin = load64(found(1)), left = load64(found(2));
  auto countOf = [&](Value at) {
    return wide(load32(sumAt(kCountsAt, at, 4)));
  };
  Value next = c.add(bin, 1);
  Value many = c.sub(countOf(next), countOf(bin));
  Value weight = load64(sumAt(kWeightsAt, bin, 8));
  // All have that weight: who is kept of those that weigh nothing does not
  // matter.
  onThread0([&] { c.store(weight, found(4)); });
  c.barrier();

  c.ifThen(compare(Predicate::ne, bin, c.i64(kLastBin)), [&] {
    Value start[] = {c.i64(0), c.i64(-1), left, weight, many};
    Type i64 = b.getI64Type();
    SmallVector<Type> types(5, i64);
    auto split = scf::WhileOp::create(
        b, loc, types, start,
        [&](OpBuilder &, Location, ValueRange args) {
          Value isLong = isBelow(c.i64(kListed), args[4]);
          scf::ConditionOp::create(b, loc, isLong, args);
        },
        [&](OpBuilder &, Location, ValueRange args) {
          Value lo = args[0], hi = args[1];
          Value zeros =
              math::CountLeadingZerosOp::create(b, loc, c.sub(hi, lo));
          Value by = c.max(c.sub(c.i64(64 - kDigitBits), zeros), c.i64(0));
          c.store(c.i64(0), sumAt(kDigitWeightsAt, c.thread, 8));
          c.store(c.i32(0), sumAt(kDigitCountsAt, c.thread, 4));
          c.barrier();
          forLogits(
              c.i64(0), c.i64(1), [&](Value logit, Value id, Value exists) {
                Value x = c.fmul(c.fsub(logit, largest), scale);
                Value order = orderOf(logit, id);
                Value isIn = c.both(
                    c.both(exists, compare(Predicate::eq, binOf(x), bin)),
                    c.both(isAtMost(lo, order), isAtMost(order, hi)));
                c.ifThen(isIn, [&] {
                  Value digit = shifted(c.sub(hi, order), by);
                  atomicAdd(c, sumAt(kDigitCountsAt, digit, 4), c.i32(1));
                  atomicAdd(c, sumAt(kDigitWeightsAt, digit, 8), weightOf(x));
                });
              });
          c.barrier();
          Value ownCount = wide(load32(sumAt(kDigitCountsAt, c.thread, 4)));
          Value ownWeight = load64(sumAt(kDigitWeightsAt, c.thread, 8));
          Value counts, weights, unused;
          sumBefore(ownCount, counts, unused);
          sumBefore(ownWeight, weights, unused);
          Value from = c.select(byCount, counts, weights);
          Value to = c.add(from, c.select(byCount, ownCount, ownWeight));
          c.ifThen(c.both(isAtMost(from, args[2]), isBelow(args[2], to)), [&] {
            Value top = c.sub(hi, arith::ShLIOp::create(b, loc, c.thread, by));
            Value most =
                c.sub(arith::ShLIOp::create(b, loc, c.i64(1), by), c.i64(1));
            // The last digit may reach below what is searched.
            Value isWhole = isAtMost(most, c.sub(top, lo));
            c.store(c.select(isWhole, c.sub(top, most), lo), found(1));
            c.store(top, found(2));
            c.store(c.sub(args[2], from), found(3));
            c.store(c.add(args[3], weights), found(4));
            c.store(ownCount, found(5));
          });
          c.barrier();
          Values next;
          for (int64_t i = 1; i <= 5; ++i)
            next.push_back(load64(found(i)));
          c.barrier();
          scf::YieldOp::create(b, loc, next);
        });
    rank(byCount, split.getResult(2), split.getResult(3), bin,
         split.getResult(0), split.getResult(1));
  });
}

/// The tokens of a bin from `lo` to `hi`, few by now: each thread sees what
/// comes before its own.
void PickEmitter::rank(Value byCount, Value limit, Value weightBefore,
                       Value bin, Value lo, Value hi) {
  onThread0([&] { c.store(c.i32(0), found(6)); });
  c.barrier();
  forLogits(c.i64(0), c.i64(1), [&](Value logit, Value id, Value exists) {
    Value x = c.fmul(c.fsub(logit, largest), scale);
    Value order = orderOf(logit, id);
    Value isIn = c.both(c.both(exists, compare(Predicate::eq, binOf(x), bin)),
                        c.both(isAtMost(lo, order), isAtMost(order, hi)));
    c.ifThen(isIn, [&] {
      Value place = wide(atomicAdd(c, found(6), c.i32(1)));
      c.store(order, sumAt(kListAt, place, 16));
      c.store(weightOf(x), c.at(sumAt(kListAt, place, 16), 8));
    });
  });
  c.barrier();
  Value listed = wide(load32(found(6)));
  c.ifThen(c.lessThan(c.thread, listed), [&] {
    Value order = load64(sumAt(kListAt, c.thread, 16));
    Value weight = load64(c.at(sumAt(kListAt, c.thread, 16), 8));
    Values sums =
        c.loop(c.i64(0), listed, 1, Values{c.i64(0), c.i64(0)},
               [&](Value other, ValueRange carried) {
                 Value isBefore =
                     isBelow(order, load64(sumAt(kListAt, other, 16)));
                 Value its = load64(c.at(sumAt(kListAt, other, 16), 8));
                 return Values{
                     c.add(carried[0], c.select(isBefore, c.i64(1), c.i64(0))),
                     c.add(carried[1], c.select(isBefore, its, c.i64(0)))};
               });
    Value from = c.select(byCount, sums[0], sums[1]);
    Value to = c.add(from, c.select(byCount, c.i64(1), weight));
    c.ifThen(c.both(isAtMost(from, limit), isBelow(limit, to)), [&] {
      c.store(c.add(weightBefore, c.add(sums[1], weight)), found(4));
      c.store(arith::XOrIOp::create(b, loc, order, c.i64(0xffffffff)),
              found(5));
    });
  });
  c.barrier();
}

void PickEmitter::emitDrawn() {
  findRow();
  c.waitForInputs();
  readLargest();
  fillBins();
  c.ifThen(isLastBlock(), [&] {
    scanBins();
    Value total = load64(sumAt(kWeightsAt, c.i64(kBins), 8));
    Value kept = load64(option(offsetof(foresight_sampling, kept)));
    Value share = load64(option(offsetof(foresight_sampling, share)));
    Value index = load64(own(offsetof(foresight_pick_state, index)));
    Value number =
        c.randomBits(load64(option(offsetof(foresight_sampling, seed))), index);
    onThread0([&] {
      c.store(total, found(4));
      c.store(wide(bestId), found(5));
    });
    c.barrier();
    // One after the other, by one piece of code: top-k, top-p, the token.
    c.loop(c.i64(0), c.i64(3), 1, [&](Value turn) {
      Value sum = load64(found(4));
      Value isKept = c.isEqual(turn, 0), isShare = c.isEqual(turn, 1);
      Value limit =
          c.select(isKept, c.sub(kept, c.i64(1)),
                   upperProduct(sum, c.select(isShare, share, number)));
      Value isLess = c.both(compare(Predicate::sgt, kept, c.i64(0)),
                            c.lessThan(kept, arguments[Vocabulary]));
      Value isAsked =
          c.select(isKept, isLess,
                   c.select(isShare, compare(Predicate::ne, share, c.i64(0)),
                            c.isEqual(turn, 2)));
      c.barrier();
      c.ifThen(isAsked, [&] { search(isKept, limit); });
    });
    finish(narrow(c, load64(found(5))));
  });
}
