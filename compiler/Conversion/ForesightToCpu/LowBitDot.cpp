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
// Such products are added up in 16 bits over as many blocks as cannot overflow,
// and pmaddwd widens them. That takes half of the instructions that codes in
// 16-bit lanes take.
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

#include <algorithm>

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
  CodeBlock(CodeBuilder &c, Value pointer, int64_t bits) : c(c), bits(bits) {
    int64_t offset = 0, registerBytes = 4 * c.lanes;
    if (bits & 4) {
      for (; offset < 64; offset += registerBytes)
        fours.push_back(c.load(c.vec(2 * c.lanes, c.b.getI16Type()),
                               c.at(pointer, offset)));
    }
    if (bits & 2) {
      two = repeated(pointer, offset, 32);
      offset += 32;
    }
    if (bits & 1)
      one = repeated(pointer, offset, 16);
    // Half of the cuts of both planes serve two halves of the block.
    if (bits == 3 && c.lanes == 8)
      for (int64_t h = 0; h < 2; ++h)
        fours.push_back(joined({{two, 2 * h, 0x33, 0}, {one, 2 * h, 0x11, 2}}));
  }

  /// The codes of elements 32m + j, m = 2v + h. A register of 512 bits has both
  /// v: 0 names them.
  Value codes(int64_t v, int64_t h) {
    int64_t from = 4 * v + 2 * h;
    if (!two && !one)
      return joined({{fours[v], 4 * h, 0x0f, 0}});
    if (bits == 3 && c.lanes == 8)
      return joined({{fours[h], 4 * v, 0x07, 0}});
    llvm::SmallVector<Cut> cuts;
    int64_t position = 0;
    auto put = [&](Value plane, int64_t at, int64_t count) {
      if (plane)
        cuts.push_back({plane, at, (1 << count) - 1, position});
      position += plane ? count : 0;
    };
    put(fours.empty() ? Value() : fours[v], 4 * h, 4);
    put(two, from, 2);
    put(one, from, 1);
    return joined(cuts);
  }

private:
  /// The bits of `mask` in every byte, after a shift down by `from`, moved to
  /// `to`.
  struct Cut {
    Value plane;
    int64_t from, mask, to;
  };

  Value joined(ArrayRef<Cut> cuts) {
    Value result;
    for (const Cut &cut : cuts) {
      Value piece = cut.plane;
      Type type = piece.getType();
      int64_t up = cut.to - cut.from;
      if (up < 0)
        piece = arith::ShRUIOp::create(c.b, c.loc, piece,
                                       c.constant(type, double(-up)));
      else if (up > 0)
        piece = arith::ShLIOp::create(c.b, c.loc, piece,
                                      c.constant(type, double(up)));
      int64_t mask = cut.mask << cut.to;
      piece = arith::AndIOp::create(c.b, c.loc, piece,
                                    c.constant(type, double(mask << 8 | mask)));
      result = result ? Value(arith::OrIOp::create(c.b, c.loc, result, piece))
                      : piece;
    }
    return result;
  }

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

  CodeBuilder &c;
  int64_t bits;
  /// The plane of four bits, a register for each v; or with 3 bits, a register
  /// for each h, what belongs to v = 1 four bits up.
  llvm::SmallVector<Value> fours;
  Value two, one;
};

/// How many products of codes of `bits` bits with parts up to `most` have room
/// in 16 bits, two of them in a lane.
int64_t roomOf(int64_t bits, int64_t most) {
  return INT16_MAX / (2 * ((int64_t{1} << bits) - 1) * most);
}

/// Up to 7 bits. Sums of both parts in 16 bits go round an inner loop over so
/// many blocks as they have room for.
Values dotsOfBytes(CodeBuilder &c, int64_t bits, ArrayRef<Value> rows,
                   Value activations, int64_t blocks) {
  int64_t halves = c.lanes == 16 ? 1 : 2, products = 2 * halves;
  int64_t room = roomOf(bits, kMostHigh);
  static_assert(kMostLow <= kMostHigh, "the low parts have as much room");
  int64_t group = std::clamp<int64_t>(room / products, 1, blocks);
  Type bytes = c.vec(4 * c.lanes, c.b.getI8Type());
  Type words = c.vec(2 * c.lanes, c.b.getI16Type());
  Type sumType = c.vec(c.lanes, c.b.getI32Type());
  Value zero = c.constant(words, 0);
  int64_t count = static_cast<int64_t>(rows.size());

  auto widened = [&](Value high, Value low) {
    return c.add(multiplyWords(c, high, c.constant(words, double(kHigh))),
                 multiplyWords(c, low, c.constant(words, 1)));
  };
  // Row after row: what is cut out needs the registers.
  auto emitBlock = [&](Value block, int64_t r, Value &high, Value &low,
                       llvm::function_ref<void()> flush) {
    CodeBlock planes(c, c.at(rows[r], c.mul(block, 16 * bits)), bits);
    Value x = c.at(activations, c.mul(block, 2 * lowbit::kBlock));
    for (int64_t v = 0, done = 0; v < halves; ++v)
      for (int64_t h = 0; h < 2; ++h, ++done) {
        if (done > 0 && done % room == 0)
          flush();
        Value codes = planes.codes(v, h);
        Value part = c.at(x, (2 * h + v) * 32);
        high = c.add(high, multiplyBytes(c, codes, c.load(bytes, part)));
        low = c.add(
            low,
            multiplyBytes(c, codes, c.load(bytes, c.at(part, lowbit::kBlock))));
      }
  };
  Values none(count, c.constant(sumType, 0));
  return c.loop(
      c.i64(0), c.i64(blocks), group, none,
      [&](Value from, ValueRange carried) {
        Values sums(carried.begin(), carried.end());
        Values parts(2 * count, zero);
        auto flushed = [&](int64_t r, Value &high, Value &low) {
          sums[r] = c.add(sums[r], widened(high, low));
          high = low = zero;
        };
        if (group == 1) {
          for (int64_t r = 0; r < count; ++r) {
            Value &high = parts[2 * r], &low = parts[2 * r + 1];
            auto flush = [&] { flushed(r, high, low); };
            emitBlock(from, r, high, low, flush);
            flush();
          }
          return sums;
        }
        Value end = c.min(c.add(from, group), c.i64(blocks));
        parts =
            c.loop(from, end, 1, parts, [&](Value block, ValueRange before) {
              Values next(before.begin(), before.end());
              for (int64_t r = 0; r < count; ++r)
                emitBlock(block, r, next[2 * r], next[2 * r + 1], [] {});
              return next;
            });
        for (int64_t r = 0; r < count; ++r)
          flushed(r, parts[2 * r], parts[2 * r + 1]);
        return sums;
      });
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
                           Value activations, int64_t blocks) {
  if (bits < 8) {
    // Two rows' sums and the activations that they share fill 16 registers.
    size_t together = c.lanes == 16 ? rows.size() : 2;
    Values sums;
    for (; !rows.empty(); rows = rows.drop_front(together))
      sums.append(
          dotsOfBytes(c, bits, rows.take_front(together), activations, blocks));
    return sums;
  }
  Values none(rows.size(), c.constant(c.vec(c.lanes, c.b.getI32Type()), 0));
  return c.loop(
      c.i64(0), c.i64(blocks), 1, none, [&](Value block, ValueRange sums) {
        Values pieces;
        for (Value row : rows)
          pieces.push_back(c.at(row, c.mul(block, lowbit::kBlock)));
        return dotsOfWords(c, pieces,
                           c.at(activations, c.mul(block, 2 * lowbit::kBlock)),
                           sums);
      });
}
