//===- LowBitDot.cpp - Integer products of a low-bit copy -----------------===//
//
// A block has 128 elements: 32m + j, m = 2v + h. Codes are cut out of their
// planes as they lie, by shifts and masks; nothing moves between lanes. A
// register of 256 bits has one v, one of 512 bits both.
//
// Up to 7 bits, codes stay bytes. An activation is 64 * high + low, two signed
// bytes, and pmaddubsw multiplies each with the codes and adds pairs:
//
//   byte j of m lies at (2h + v) * 32 + j, the low parts 128 bytes behind.
//
// A few such products are added up in 16 bits, as many as cannot overflow, and
// pmaddwd widens them. That takes half of the instructions that codes in 16-bit
// lanes take.
//
// With 8 bits nothing could be added before it is widened, and there is little
// to cut out: a lane of 16 bits holds two neighbouring codes, even (p = 0) and
// odd, and pmaddwd multiplies each with activations of 16 bits:
//
//   element 32m + 2i + p   lies at   ((2h + p) * 2 + v) * 16 + i.
//
//===----------------------------------------------------------------------===//

#include "LowBitDot.h"

#include "foresight/lowbit/Layout.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace foresight;

namespace {

using Values = CodeBuilder::Values;

/// What the high part of an activation counts.
constexpr int64_t kHighShift = 6;
constexpr int64_t kHigh = int64_t{1} << kHighShift;
/// Largest parts in magnitude, rounding to the nearest multiple of kHigh.
constexpr int64_t kMostHigh = (lowbit::kActivationMax + kHigh / 2) / kHigh;
constexpr int64_t kMostLow = kHigh / 2;
static_assert(kMostHigh < 128, "parts are signed bytes");

/// Codes in a 256-bit register of 16-bit lanes.
constexpr int64_t kRun = 16;

/// Where elements 32m + 2i + p go if they have 16 bits.
int64_t runOf(int64_t m, int64_t p) {
  int64_t v = m / 2, h = m % 2;
  return ((2 * h + p) * 2 + v) * kRun;
}

Value call(CodeBuilder &c, StringRef name, Type result, Value a, Value b) {
  return LLVM::CallIntrinsicOp::create(
             c.b, c.loc, result, c.b.getStringAttr(name), ValueRange{a, b})
      ->getResult(0);
}

/// Products of 16-bit lanes, pairs added to 32 bits.
Value multiplyWords(CodeBuilder &c, Value a, Value b) {
  return call(c,
              c.lanes == 16 ? "llvm.x86.avx512.pmaddw.d.512"
                            : "llvm.x86.avx2.pmadd.wd",
              c.vec(c.lanes, c.b.getI32Type()), a, b);
}

/// Products of unsigned with signed bytes, pairs added to 16 bits.
Value multiplyBytes(CodeBuilder &c, Value codes, Value x) {
  Type bytes = c.vec(4 * c.lanes, c.b.getI8Type());
  return call(c,
              c.lanes == 16 ? "llvm.x86.avx512.pmaddubs.w.512"
                            : "llvm.x86.avx2.pmadd.ub.sw",
              c.vec(2 * c.lanes, c.b.getI16Type()), c.bitcast(codes, bytes), x);
}

/// The planes of one block of one row, up to 7 bits, as 16-bit lanes of two
/// bytes each.
class CodeBlock {
public:
  /// `v` is the half of the block wanted where a register holds one, else 0.
  CodeBlock(CodeBuilder &c, Value pointer, int64_t bits, int64_t v)
      : c(c), first(c.lanes == 16 ? 0 : 4 * v) {
    int64_t offset = 0;
    if (bits & 4) {
      four = c.load(c.vec(2 * c.lanes, c.b.getI16Type()),
                    c.at(pointer, v * 4 * c.lanes));
      offset += 64;
    }
    if (bits & 2) {
      two = repeated(pointer, offset, 32);
      offset += 32;
    }
    if (bits & 1)
      one = repeated(pointer, offset, 16);
  }

  /// The codes of elements 32m + j.
  Value codes(int64_t h) {
    Value result;
    int64_t position = 0;
    auto put = [&](Value plane, int64_t from, int64_t bits) {
      if (!plane)
        return;
      Value piece = cut(plane, from, position, bits);
      result = result ? Value(arith::OrIOp::create(c.b, c.loc, result, piece))
                      : piece;
      position += bits;
    };
    put(four, 4 * h, 4);
    put(two, first + 2 * h, 2);
    put(one, first + 2 * h, 1);
    return result;
  }

private:
  /// `bytes` bytes, repeated over the register. The bits of repetitions lie
  /// further up: by 4 in the second half of a block, and in the plane of single
  /// bits by 1 in the second half of 32 elements. Shifts in 32-bit lanes are
  /// one instruction; what crosses into a byte lies above the bits used.
  Value repeated(Value pointer, int64_t offset, int64_t bytes) {
    Type i32 = c.b.getI32Type();
    int64_t loaded = bytes / 4;
    Value plane = c.load(c.vec(loaded, i32), c.at(pointer, offset));
    SmallVector<int64_t> repeat;
    SmallVector<Attribute> amounts;
    bool isShifted = false;
    for (int64_t lane = 0; lane < c.lanes; ++lane) {
      repeat.push_back(lane % loaded);
      int64_t amount = lane / 8 * 4 + (bytes == 16 ? lane % 8 / 4 : 0);
      amounts.push_back(c.b.getI32IntegerAttr(amount));
      isShifted |= amount != 0;
    }
    if (loaded != c.lanes)
      plane = c.shuffle(plane, plane, repeat);
    if (isShifted)
      plane = arith::ShRUIOp::create(
          c.b, c.loc, plane,
          arith::ConstantOp::create(
              c.b, c.loc,
              DenseElementsAttr::get(c.vec(c.lanes, i32), amounts)));
    return c.bitcast(plane, c.vec(2 * c.lanes, c.b.getI16Type()));
  }

  /// Bits [from, from + count) of each byte, moved to `to`.
  Value cut(Value plane, int64_t from, int64_t to, int64_t count) {
    Type type = plane.getType();
    if (from > to)
      plane = arith::ShRUIOp::create(c.b, c.loc, plane,
                                     c.constant(type, from - to));
    else if (from < to)
      plane =
          arith::ShLIOp::create(c.b, c.loc, plane, c.constant(type, to - from));
    int64_t mask = ((1 << count) - 1) << to;
    return arith::AndIOp::create(c.b, c.loc, plane,
                                 c.constant(type, mask << 8 | mask));
  }

  CodeBuilder &c;
  /// Bit of the first element in the planes of two and one bits.
  int64_t first;
  Value four, two, one;
};

/// Adds up products of bytes: in 16 bits while they have room.
class ByteSum {
public:
  /// Products are of codes up to `levels` with parts up to `most`.
  ByteSum(CodeBuilder &c, Value sum, int64_t levels, int64_t most,
          int64_t weight)
      : c(c), sum(sum), room(INT16_MAX / (2 * levels * most)), weight(weight) {}

  void add(Value product) {
    if (pending && count == room)
      flush();
    pending = pending ? c.add(pending, product) : product;
    ++count;
  }
  Value result() {
    flush();
    return sum;
  }

private:
  void flush() {
    sum = c.add(
        sum, multiplyWords(c, pending, c.constant(pending.getType(), weight)));
    pending = Value();
    count = 0;
  }

  CodeBuilder &c;
  Value sum, pending;
  int64_t room, weight, count = 0;
};

Values dotsOfBytes(CodeBuilder &c, int64_t bits, ArrayRef<Value> rows,
                   Value activations, ValueRange sums) {
  int64_t levels = (int64_t{1} << bits) - 1;
  int64_t halves = c.lanes == 16 ? 1 : 2;
  Type bytes = c.vec(4 * c.lanes, c.b.getI8Type());
  Values next;
  // Row after row: what is cut out needs the registers.
  for (auto [row, before] : llvm::zip(rows, sums)) {
    Value zero = c.constant(before.getType(), 0);
    ByteSum high(c, before, levels, kMostHigh, kHigh);
    ByteSum low(c, zero, levels, kMostLow, 1);
    for (int64_t v = 0; v < halves; ++v) {
      CodeBlock block(c, row, bits, v);
      for (int64_t h = 0; h < 2; ++h) {
        Value codes = block.codes(h);
        Value x = c.at(activations, (2 * h + v) * 32);
        high.add(multiplyBytes(c, codes, c.load(bytes, x)));
        low.add(
            multiplyBytes(c, codes, c.load(bytes, c.at(x, lowbit::kBlock))));
      }
    }
    next.push_back(c.add(high.result(), low.result()));
  }
  return next;
}

/// 8 bits.
Values dotsOfWords(CodeBuilder &c, ArrayRef<Value> rows, Value activations,
                   ValueRange sums) {
  Type word = c.b.getI16Type();
  Type type = c.vec(2 * c.lanes, word);
  Values next(sums.begin(), sums.end());
  auto codesAt = [&](Value row, int64_t m) {
    return c.load(c.vec(kRun, word), c.at(row, 32 * m));
  };
  for (int64_t v = 0; v < (c.lanes == 16 ? 1 : 2); ++v)
    for (int64_t h = 0; h < 2; ++h) {
      Values planes;
      for (Value row : rows) {
        Value plane = codesAt(row, 2 * v + h);
        if (c.lanes == 16)
          plane = c.shuffle(plane, codesAt(row, 2 + h),
                            llvm::to_vector(llvm::seq<int64_t>(0, 32)));
        planes.push_back(plane);
      }
      for (int64_t p = 0; p < 2; ++p) {
        Value x = c.load(type, c.at(activations, 2 * runOf(2 * v + h, p)));
        for (auto [plane, sum] : llvm::zip(planes, next)) {
          Value codes = p == 0 ? Value(arith::AndIOp::create(
                                     c.b, c.loc, plane, c.constant(type, 0xff)))
                               : Value(arith::ShRUIOp::create(
                                     c.b, c.loc, plane, c.constant(type, 8)));
          sum = c.add(sum, multiplyWords(c, codes, x));
        }
      }
    }
  return next;
}

} // namespace

void foresight::storeActivations(CodeBuilder &c, int64_t bits, int64_t m,
                                 ArrayRef<Value> integers, Value to) {
  auto store = [&](Value part, Type element, int64_t offset) {
    c.store(arith::TruncIOp::create(c.b, c.loc, c.vec(c.lanes, element), part),
            c.at(to, offset));
  };
  int64_t v = m / 2, h = m % 2;
  Type i32 = integers[0].getType();
  if (bits < 8) {
    for (auto [i, x] : llvm::enumerate(integers)) {
      int64_t offset = (2 * h + v) * 32 + static_cast<int64_t>(i) * c.lanes;
      Value high = arith::ShRSIOp::create(c.b, c.loc,
                                          c.add(x, c.constant(i32, kMostLow)),
                                          c.constant(i32, kHighShift));
      Value low = c.sub(x, c.mul(high, c.constant(i32, kHigh)));
      store(high, c.b.getI8Type(), offset);
      store(low, c.b.getI8Type(), lowbit::kBlock + offset);
    }
    return;
  }
  for (int64_t p = 0; p < 2; ++p) {
    SmallVector<int64_t> pick;
    for (int64_t i = 0; i < c.lanes; ++i)
      pick.push_back(2 * i + p);
    for (size_t i = 0; i < integers.size(); i += 2)
      store(c.shuffle(integers[i], integers[i + 1], pick), c.b.getI16Type(),
            2 * (runOf(m, p) + static_cast<int64_t>(i) / 2 * c.lanes));
  }
}

Values foresight::emitDots(CodeBuilder &c, int64_t bits, ArrayRef<Value> rows,
                           Value activations, ValueRange sums) {
  return bits == 8 ? dotsOfWords(c, rows, activations, sums)
                   : dotsOfBytes(c, bits, rows, activations, sums);
}
