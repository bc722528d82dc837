//===- GpuPickToken.cpp - The next token, where the logits are ------------===//
//
// The largest logit; and what every way to pick a token begins and ends with.
//
//===----------------------------------------------------------------------===//

#include "GpuPickToken.h"

#include "GpuPickEmitter.h"

#include "foresight/abi/Kernel.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cmath>

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;
using Predicate = arith::CmpIPredicate;

namespace {

constexpr int64_t kThreads = FORESIGHT_PICK_THREADS;
/// 16-byte loads of a thread that are under way together.
constexpr int64_t kLoads = FORESIGHT_PICK_TILE / kThreads / 4;

} // namespace

/// A block is one of the parts of a row.
void PickEmitter::findRow() {
  row = wide(arith::DivUIOp::create(b, loc, narrow(c, c.block),
                                    narrow(c, arguments[Parts])));
  part = c.sub(c.block, c.mul(row, arguments[Parts]));
  logits = c.at(arguments[Logits], c.mul(row, arguments[RowBytes]));
  state = c.at(arguments[States],
               c.mul(row, int64_t(sizeof(foresight_pick_state))));
  scale = c.load(c.f32Type(), option(offsetof(foresight_sampling, scale)));
}

/// `body(logit, id as i64, whether there is such a token)` for tiles `first`,
/// `first + step`, ... of the row.
void PickEmitter::forLogits(
    Value first, Value step,
    llvm::function_ref<void(Value, Value, Value)> body) {
  Value vocabulary = arguments[Vocabulary];
  Value tiles =
      c.div(c.add(vocabulary, FORESIGHT_PICK_TILE - 1), FORESIGHT_PICK_TILE);
  auto loop = scf::ForOp::create(b, loc, first, tiles, step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Values places, rows;
  for (int64_t i = 0; i < kLoads; ++i) {
    Value k = c.add(c.mul(loop.getInductionVar(), FORESIGHT_PICK_TILE),
                    c.mul(c.add(c.thread, i * kThreads), 4));
    // Rows are padded to more than 16 bytes.
    Value safe = c.select(c.lessThan(k, vocabulary), k, c.i64(0));
    places.push_back(k);
    rows.push_back(c.loadAligned(c.vec(4), c.at(logits, c.mul(safe, 4)), 16));
  }
  for (auto [k, values] : llvm::zip(places, rows))
    for (int64_t e = 0; e < 4; ++e) {
      Value id = c.add(k, e);
      body(c.extract(values, e), id, c.lessThan(id, vocabulary));
    }
}

/// A number that is larger the earlier a token comes: its logit, as an integer
/// of the same order, over its id, complemented.
Value PickEmitter::orderOf(Value logit, Value id) {
  // Minus zero becomes zero.
  Value bits = c.bitcast(c.fadd(logit, c.f32(0)), b.getI32Type());
  Value sign = arith::ShRSIOp::create(b, loc, bits, c.i32(31));
  Value flipped =
      arith::XOrIOp::create(b, loc, bits, bitOr(c, sign, c.i32(INT32_MIN)));
  Value upper = arith::ShLIOp::create(b, loc, wide(flipped), c.i64(32));
  Value lower = arith::XOrIOp::create(b, loc, id, c.i64(0xffffffff));
  return bitOr(c, upper, lower);
}

Value PickEmitter::shuffle64(Value x,
                             llvm::function_ref<Value(Value)> shuffle32) {
  Value low = shuffle32(narrow(c, x));
  Value high = shuffle32(narrow(c, shifted(x, c.i64(32))));
  return bitOr(c, wide(low),
               arith::ShLIOp::create(b, loc, wide(high), c.i64(32)));
}

/// Whether all other blocks of the row are done; then what they wrote is seen.
Value PickEmitter::isLastBlock() {
  fence(kDeviceScope);
  c.barrier();
  onThread0([&] {
    Value before =
        atomic(LLVM::AtomicBinOp::add,
               own(offsetof(foresight_pick_state, arrived)), c.i32(1));
    c.store(before, found(0));
  });
  c.barrier();
  Value before = wide(load32(found(0)));
  Value isLast = c.isEqual(c.sub(arguments[Parts], before), 1);
  c.ifThen(isLast, [&] {
    fence(kDeviceScope);
    onThread0([&] {
      c.store(c.i32(0), own(offsetof(foresight_pick_state, arrived)));
    });
  });
  return isLast;
}

void PickEmitter::emitLargest() {
  findRow();
  c.waitForInputs();
  // Kept in memory of a thread's own until all are seen: LLVM makes registers
  // of it.
  Value one = c.i64(1);
  Value best =
      LLVM::AllocaOp::create(b, loc, c.pointerType(), b.getI64Type(), one, 8);
  Value damaged =
      LLVM::AllocaOp::create(b, loc, c.pointerType(), b.getI1Type(), one, 1);
  Value no = arith::ConstantOp::create(b, loc, b.getBoolAttr(false));
  c.store(c.i64(0), best);
  LLVM::StoreOp::create(b, loc, no, damaged, 1);
  onThread0([&] { c.store(c.i64(0), found(1)); });
  c.barrier();
  forLogits(part, arguments[Parts], [&](Value logit, Value id, Value exists) {
    Value order = c.select(exists, orderOf(logit, id), c.i64(0));
    Value known = load64(best);
    c.store(arith::MaxUIOp::create(b, loc, known, order), best);
    // NaN and +infinity are not below infinity.
    Value isOdd = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGE,
                                        logit, c.f32(INFINITY));
    Value before = LLVM::LoadOp::create(b, loc, b.getI1Type(), damaged, 1);
    LLVM::StoreOp::create(
        b, loc, arith::OrIOp::create(b, loc, before, c.both(isOdd, exists)),
        damaged, 1);
  });
  Value x = load64(best);
  for (int64_t mask = kWarp / 2; mask >= 1; mask /= 2)
    x = arith::MaxUIOp::create(b, loc, x, shuffle64(x, [&](Value word) {
                                 return c.shuffleXor(word, mask);
                               }));
  c.ifThen(c.isEqual(c.lane, 0), [&] {
    LLVM::AtomicRMWOp::create(b, loc, LLVM::AtomicBinOp::umax, found(1), x,
                              LLVM::AtomicOrdering::monotonic);
  });
  c.ifThen(LLVM::LoadOp::create(b, loc, b.getI1Type(), damaged, 1), [&] {
    c.store(c.i32(1), own(offsetof(foresight_pick_state, damaged)));
  });
  c.barrier();
  onThread0([&] {
    atomic(LLVM::AtomicBinOp::umax, own(offsetof(foresight_pick_state, best)),
           load64(found(1)));
  });
  Value isGreedy =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, scale, c.f32(0));
  c.ifThen(c.both(isLastBlock(), isGreedy), [&] {
    readLargest();
    finish(bestId);
  });
}

void PickEmitter::readLargest() {
  Value best = load64(own(offsetof(foresight_pick_state, best)));
  bestId = arith::XOrIOp::create(b, loc, narrow(c, best), c.i32(-1));
  largest = c.load(c.f32Type(), c.at(logits, c.mul(wide(bestId), 4)));
}

/// Where the next step finds the token, and where the host does. One thread.
void PickEmitter::finish(Value id) {
  onThread0([&] {
    using State = foresight_pick_state;
    constexpr int64_t kOrderOfMinusInfinity = 0x007fffff;
    Value best = load64(own(offsetof(State, best)));
    Value isEmpty =
        isAtMost(shifted(best, c.i64(32)), c.i64(kOrderOfMinusInfinity));
    Value isOdd = arith::OrIOp::create(
        b, loc, isEmpty,
        compare(Predicate::ne, load32(own(offsetof(State, damaged))),
                c.i32(0)));
    Value index = load64(own(offsetof(State, index)));
    Value position = load64(own(offsetof(State, position)));
    Value forced = load64(option(offsetof(foresight_sampling, forced)));
    Value fed = c.ifElse(
        compare(Predicate::ne, forced, c.i64(0)),
        [&] {
          Value ids = LLVM::IntToPtrOp::create(b, loc, c.pointerType(), forced);
          return load32(c.at(ids, c.mul(index, 4)));
        },
        // Any id, so that the next step stays within the vocabulary.
        c.select(isOdd, c.i32(0), id));
    c.store(fed, c.at(arguments[Ids], c.mul(row, 4)));
    c.store(narrow(c, position), c.at(arguments[Positions], c.mul(row, 4)));
    c.ifThen(c.isEqual(row, 0), [&] {
      c.store(position, c.at(arguments[StepOf],
                             int64_t(offsetof(foresight_step, position))));
    });
    c.store(c.i64(0), own(offsetof(State, best)));
    c.store(c.i32(0), own(offsetof(State, damaged)));
    c.store(c.add(index, 1), own(offsetof(State, index)));
    c.store(c.add(position, 1), own(offsetof(State, position)));

    Value slot =
        c.add(c.mul(row, arguments[Slots]), c.rem(index, arguments[Slots]));
    Value token =
        c.at(arguments[Tokens], c.mul(slot, int64_t(sizeof(foresight_token))));
    auto tell = [&](Value value, size_t offset) {
      LLVM::StoreOp::create(b, loc, value,
                            c.at(token, static_cast<int64_t>(offset)), 8,
                            /*isVolatile=*/true);
    };
    tell(load64(own(offsetof(State, begun))), offsetof(foresight_token, begun));
    tell(NVVM::GlobalTimerOp::create(b, loc, b.getI64Type()),
         offsetof(foresight_token, ended));
    Value number = arith::ShLIOp::create(b, loc, c.add(index, 1), c.i64(32));
    Value word = bitOr(c, number, wide(c.select(isOdd, c.i32(-1), id)));
    // The host reads the rest once it has seen the word.
    fence("");
    tell(word, offsetof(foresight_token, word));
  });
}

namespace {

LLVM::LLVMFuncOp openPickEntry(OpBuilder &b, Location loc, StringRef name,
                               ArrayRef<Type> types, int64_t threads) {
  LLVM::LLVMFuncOp function = openGpuEntry(b, loc, name, types);
  function->setAttr(NVVM::NVVMDialect::getMaxntidAttrName(),
                    b.getDenseI32ArrayAttr({static_cast<int32_t>(threads)}));
  // One block a multiprocessor is enough: all its registers.
  function->setAttr(NVVM::NVVMDialect::getMaxnregAttrName(),
                    b.getI32IntegerAttr(65536 / kThreads));
  return function;
}

} // namespace

void foresight::emitPickEntries(
    OpBuilder &b, Location loc,
    llvm::function_ref<Value(OpBuilder &, Location)> sharedMemory) {
  constexpr int64_t kPointers = 7, kNumbers = 4;
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  SmallVector<Type> types(kPointers, pointer);
  types.append(kNumbers, b.getI64Type());
  for (bool isDrawn : {false, true}) {
    OpBuilder::InsertionGuard guard(b);
    LLVM::LLVMFuncOp function = openPickEntry(
        b, loc, isDrawn ? FORESIGHT_PICK_DRAWN : FORESIGHT_PICK_LARGEST, types,
        kThreads);
    GpuCode code(b, loc, kThreads);
    code.readIndices();
    PickEmitter emitter(code, function.getArguments(), sharedMemory(b, loc));
    if (isDrawn)
      emitter.emitDrawn();
    else
      emitter.emitLargest();
    LLVM::ReturnOp::create(b, loc, ValueRange());
  }
  OpBuilder::InsertionGuard guard(b);
  LLVM::LLVMFuncOp function =
      openPickEntry(b, loc, FORESIGHT_PICK_BEGIN, {pointer}, 1);
  GpuCode code(b, loc, 1);
  code.store(NVVM::GlobalTimerOp::create(b, loc, b.getI64Type()),
             code.at(function.getArgument(0),
                     int64_t(offsetof(foresight_pick_state, begun))));
  LLVM::ReturnOp::create(b, loc, ValueRange());
}
