//===- LowBit.cpp - Integer scores of a low-bit copy ----------------------===//
//
// Codes are unpacked in 16-bit lanes, as they lie: a lane holds the bytes of
// two neighbouring elements, so a shift and a mask give the code of the even (p
// = 0) or the odd (p = 1) element, without moving anything between lanes.
// Rounded activations are stored in the same order. For a block of 128 elements
//
//   element 64v + 32h + 2i + p   lies at   ((2h + p) * 2 + v) * 16 + i,
//
// which is one order for all planes; a 256-bit register holds one v, a 512-bit
// register both. Products are summed by pmaddwd, in 32-bit lanes that may wrap.
//
//===----------------------------------------------------------------------===//

#include "LowBit.h"

#include "Frame.h"

#include "foresight/lowbit/Layout.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace foresight;

namespace {

using Values = CodeBuilder::Values;

/// Codes in a 256-bit register.
constexpr int64_t kRun = 16;
/// Rows that share the loads of activations.
constexpr int64_t kGroup = 4;

/// Where `element` (32m + 2i + p) of a block goes: its run of 16.
int64_t runOf(int64_t m, int64_t p) {
  int64_t v = m / 2, h = m % 2;
  return ((2 * h + p) * 2 + v) * kRun;
}

/// Names the words of the header.
enum Header { kHalfScale = 0, kNorm = 4, kResidual = 8, kLevelSum = 12 };

Value dotPairs(CodeBuilder &c, Value a, Value b) {
  int64_t n = cast<VectorType>(a.getType()).getNumElements();
  StringRef name =
      n == 32 ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd";
  return LLVM::CallIntrinsicOp::create(
             c.b, c.loc, c.vec(n / 2, c.b.getI32Type()),
             c.b.getStringAttr(name), ValueRange{a, b})
      ->getResult(0);
}

/// The planes of one block of one row, ready to be cut into codes.
class CodeBlock {
public:
  /// `v` is the half of the block wanted where a register holds one, else 0.
  CodeBlock(CodeBuilder &c, Value pointer, int64_t bits, int64_t width,
            int64_t v)
      : c(c), width(width), v(v) {
    int64_t offset = 0;
    if (bits == 8) {
      eight = pointer;
      return;
    }
    int64_t bytes = 2 * width;
    if (bits & 4) {
      four = c.load(c.vec(width, c.b.getI16Type()),
                    c.at(pointer, offset + v * bytes));
      offset += 64;
    }
    if (bits & 2) {
      // Both halves of the block share a run of 32 bytes: v shifts by 4.
      two = shifted(pointer, offset, 32,
                    [&](int64_t lane) { return 4 * halfOf(lane); });
      offset += 32;
    }
    if (bits & 1)
      // A run of 16 bytes: v shifts by 4, the upper 16 elements of 32 by 1.
      one = shifted(pointer, offset, 16, [&](int64_t lane) {
        return 4 * halfOf(lane) + lane / 8 % 2;
      });
  }

  /// The codes of elements 64v + 32h + 2i + p.
  Value codes(int64_t h, int64_t p) {
    if (eight)
      return codes8(h, p);
    Value result;
    int64_t position = 0;
    auto put = [&](Value plane, int64_t planeBits, int64_t step) {
      if (!plane)
        return;
      Value piece = cut(plane, 8 * p + step * h, position, planeBits);
      result = result ? Value(arith::OrIOp::create(c.b, c.loc, result, piece))
                      : piece;
      position += planeBits;
    };
    put(four, 4, 4);
    put(two, 2, 2);
    put(one, 1, 2); // 16 elements a bit
    return result;
  }

private:
  int64_t halfOf(int64_t lane) { return width == 32 ? lane / kRun : v; }

  /// `bytes` bytes repeated over the register, each lane shifted right.
  Value shifted(Value pointer, int64_t offset, int64_t bytes,
                llvm::function_ref<int64_t(int64_t)> amount) {
    Type i16 = c.b.getI16Type();
    Value plane = c.load(c.vec(bytes / 2, i16), c.at(pointer, offset));
    SmallVector<int64_t> repeat;
    SmallVector<Attribute> amounts;
    bool any = false;
    for (int64_t lane = 0; lane < width; ++lane) {
      repeat.push_back(lane % (bytes / 2));
      amounts.push_back(c.b.getIntegerAttr(i16, amount(lane)));
      any |= amount(lane) != 0;
    }
    if (width != bytes / 2)
      plane = c.shuffle(plane, plane, repeat);
    if (!any)
      return plane;
    Value by = arith::ConstantOp::create(
        c.b, c.loc, DenseElementsAttr::get(c.vec(width, i16), amounts));
    return arith::ShRUIOp::create(c.b, c.loc, plane, by);
  }

  /// Bits [from, from + count) of each lane, moved to `to`.
  Value cut(Value plane, int64_t from, int64_t to, int64_t count) {
    Type type = plane.getType();
    if (from > to)
      plane = arith::ShRUIOp::create(c.b, c.loc, plane,
                                     c.constant(type, from - to));
    else if (from < to)
      plane =
          arith::ShLIOp::create(c.b, c.loc, plane, c.constant(type, to - from));
    // Nothing lies above the topmost bits of a lane that was shifted down.
    if (from > to && from + count == 16)
      return plane;
    return arith::AndIOp::create(c.b, c.loc, plane,
                                 c.constant(type, ((1 << count) - 1) << to));
  }

  Value codes8(int64_t h, int64_t p) {
    Type i16 = c.b.getI16Type();
    // Bytes 32m + j, m = 2v + h: both v where the register has room.
    Value plane = c.load(c.vec(kRun, i16), c.at(eight, 32 * (2 * v + h)));
    if (width == 32) {
      Value upper = c.load(c.vec(kRun, i16), c.at(eight, 32 * (2 + h)));
      SmallVector<int64_t> join;
      for (int64_t lane = 0; lane < 32; ++lane)
        join.push_back(lane);
      plane = c.shuffle(plane, upper, join);
    }
    return cut(plane, 8 * p, 0, 8);
  }

  CodeBuilder &c;
  int64_t width, v;
  Value eight, four, two, one;
};

Value codesPointer(Frame &frame, const SparseOps &ops) {
  SelectCertifiedOp select = ops.select;
  return frame.memoryOf(select.getCopy());
}

} // namespace

void foresight::emitQuantise(Frame &frame, const SparseOps &ops) {
  CodeBuilder &c = frame.c;
  PredictOp predict = ops.predict;
  SelectCertifiedOp select = ops.select;
  auto copy = cast<LowBitType>(select.getCopy().getType());
  int64_t columns = copy.getColumns();
  Value x = frame.rowOf(predict.getX());
  Value out = frame.scratchAt(ops.activations);
  Value header = frame.scratchAt(ops.header);
  auto element = [&](Value row, Value k) {
    return c.load(c.vec(c.lanes), c.at(row, c.mul(k, 4)));
  };
  // Padding of a row is zero up to FORESIGHT_ROW_PAD, a multiple of the lanes.
  int64_t padded = padRow(columns);
  Value zero = c.constant(c.vec(c.lanes), 0);

  Value largest = c.maxLanes(
      c.loop(c.i64(0), c.i64(padded), c.lanes, ValueRange{zero},
             [&](Value k, ValueRange carried) {
               return Values{c.fmax(c.abs(element(x, k)), carried[0])};
             })[0]);
  double limit = lowbit::activationMax(columns, copy.getBits());
  Value scale = c.fdiv(largest, c.f32(limit));
  Value positive = arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::OGT,
                                         largest, c.f32(0));
  Value inverse = c.select(positive, c.fdiv(c.f32(limit), largest), c.f32(0));
  Value scales = c.splat(scale, c.lanes), inverses = c.splat(inverse, c.lanes);

  Type i32Vector = c.vec(c.lanes, c.b.getI32Type());
  auto rounded = [&](Value v) {
    // A NaN would have no integer; the norm carries it.
    Value steps = math::RoundEvenOp::create(c.b, c.loc, c.fmul(v, inverses));
    Value isNumber = arith::CmpFOp::create(
        c.b, c.loc, arith::CmpFPredicate::ORD, steps, steps);
    steps = c.select(isNumber, steps, zero);
    Value limits = c.constant(c.vec(c.lanes), limit);
    Value least = c.constant(c.vec(c.lanes), -limit);
    steps = c.fmax(steps, least);
    Value over = arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::OGT,
                                       steps, limits);
    return c.select(over, limits, steps);
  };

  // Norms and the sum of the integers.
  Values sums = c.loop(c.i64(0), c.i64(padded), c.lanes,
                       ValueRange{zero, c.constant(i32Vector, 0)},
                       [&](Value k, ValueRange carried) {
                         Value v = element(x, k);
                         Value steps = rounded(v);
                         Value lost = c.fsub(v, c.fmul(scales, steps));
                         Value integer = arith::FPToSIOp::create(
                             c.b, c.loc, i32Vector, steps);
                         return Values{c.fma(lost, lost, carried[0]),
                                       c.add(carried[1], integer)};
                       });
  Value residual = math::SqrtOp::create(c.b, c.loc, c.sumLanes(sums[0]));
  Value sum = c.sumLanes(sums[1]);

  // |x| is of the row that the test speaks about, which an earlier prediction
  // did not read.
  Value tested = frame.rowOf(select.getX());
  Value square =
      c.sumLanes(c.loop(c.i64(0), c.i64(padded), c.lanes, ValueRange{zero},
                        [&](Value k, ValueRange carried) {
                          Value v = element(tested, k);
                          return Values{c.fma(v, v, carried[0])};
                        })[0]);
  Value norm = math::SqrtOp::create(c.b, c.loc, square);

  c.store(c.fmul(c.f32(0.5), scale), c.at(header, kHalfScale));
  c.store(norm, c.at(header, kNorm));
  c.store(residual, c.at(header, kResidual));
  c.store(c.mul(sum, c.i32((1 << copy.getBits()) - 1)),
          c.at(header, kLevelSum));

  // 32 elements of a block become two runs of 16.
  auto emitRuns = [&](Value block, int64_t m) {
    Type i16 = c.b.getI16Type();
    Value from = c.at(x, c.mul(block, 4 * lowbit::kBlock));
    Value to = c.at(out, c.mul(block, 2 * lowbit::kBlock));
    for (int64_t p = 0; p < 2; ++p) {
      SmallVector<Value> parts;
      // Pick the even or odd ones of pairs of registers, then narrow.
      for (int64_t k = 0; k < 32; k += 2 * c.lanes) {
        Value a = c.load(c.vec(c.lanes), c.at(from, 4 * (32 * m + k)));
        Value b =
            c.load(c.vec(c.lanes), c.at(from, 4 * (32 * m + k + c.lanes)));
        SmallVector<int64_t> pick;
        for (int64_t i = 0; i < c.lanes; ++i)
          pick.push_back(2 * i + p);
        Value integers = arith::FPToSIOp::create(
            c.b, c.loc, i32Vector, rounded(c.shuffle(a, b, pick)));
        parts.push_back(
            arith::TruncIOp::create(c.b, c.loc, c.vec(c.lanes, i16), integers));
      }
      for (auto [i, part] : llvm::enumerate(parts))
        c.store(part, c.at(to, 2 * (runOf(m, p) + i * c.lanes)));
    }
  };
  int64_t whole = columns / lowbit::kBlock;
  c.loop(c.i64(0), c.i64(whole), 1, [&](Value block) {
    for (int64_t m = 0; m < 4; ++m)
      emitRuns(block, m);
  });
  if (columns % lowbit::kBlock != 0) {
    Value block = c.i64(whole);
    c.zeroFill(c.at(out, c.mul(block, 2 * lowbit::kBlock)), 2 * lowbit::kBlock);
    for (int64_t m = 0; m < padRow(columns % lowbit::kBlock) / 32; ++m)
      emitRuns(block, m);
  }
}

Value foresight::emitScores(Frame &frame, const SparseOps &ops, Value first) {
  CodeBuilder &c = frame.c;
  SelectCertifiedOp select = ops.select;
  auto copy = cast<LowBitType>(select.getCopy().getType());
  int64_t bits = copy.getBits(), neurons = copy.getRows();
  int64_t rowBytes = lowbit::rowBytes(copy.getColumns(), bits);
  int64_t blocks = lowbit::padColumns(copy.getColumns()) / lowbit::kBlock;
  Value codes = codesPointer(frame, ops);
  Value activations = frame.scratchAt(ops.activations);
  Value dots = frame.scratchAt(ops.dots);
  Type i16 = c.b.getI16Type(), i32 = c.b.getI32Type();
  // 16-bit lanes of a register.
  int64_t width = 2 * c.lanes;
  int64_t halves = 32 / width;
  int64_t ahead = prefetchDistance(kGroup * rowBytes);

  // The test reads these when the unit is scored: ask for them now.
  lowbit::Record record = lowbit::record(neurons, copy.getColumns(), bits);
  for (auto [at, bytes] : {std::pair(record.scale, 4),
                           {record.bias, 4},
                           {record.error, 2},
                           {record.norm, 2}})
    for (int64_t b = 0; b < bytes * kNeuronsPerUnit; b += 64)
      c.prefetch(c.at(c.at(codes, c.mul(first, bytes)), at + b));

  c.loop(c.i64(0), c.i64(kNeuronsPerUnit), kGroup, [&](Value i) {
    Values rows;
    for (int64_t r = 0; r < kGroup; ++r)
      rows.push_back(c.at(
          codes, c.mul(c.min(c.add(c.add(first, i), r), c.i64(neurons - 1)),
                       rowBytes)));
    Values sums(kGroup, c.constant(c.vec(c.lanes, i32), 0));
    sums = c.loop(
        c.i64(0), c.i64(blocks), 1, sums, [&](Value block, ValueRange carried) {
          Values next(carried.begin(), carried.end());
          Value offset = c.mul(block, 16 * bits);
          Value xs = c.at(activations, c.mul(block, 2 * lowbit::kBlock));
          for (Value row : rows) {
            for (int64_t b = 0; b < 16 * bits; b += 64)
              c.prefetch(c.at(c.at(row, offset), ahead + b));
          }
          for (int64_t v = 0; v < halves; ++v) {
            SmallVector<CodeBlock> planes;
            for (Value row : rows)
              planes.emplace_back(c, c.at(row, offset), bits, width, v);
            for (int64_t h = 0; h < 2; ++h)
              for (int64_t p = 0; p < 2; ++p) {
                Value x = c.load(c.vec(width, i16),
                                 c.at(xs, 2 * (runOf(h, p) + v * kRun)));
                for (int64_t r = 0; r < kGroup; ++r)
                  next[r] =
                      c.add(next[r], dotPairs(c, planes[r].codes(h, p), x));
              }
          }
          return next;
        });
    c.store(c.sumLanes4(sums), c.at(dots, c.mul(i, 4)));
  });

  // The test, a register of neurons at a time.
  Value header = frame.scratchAt(ops.header);
  auto word = [&](Type type, int64_t offset) {
    return c.splat(c.load(type, c.at(header, offset)), c.lanes);
  };
  Value halfScale = word(c.f32Type(), kHalfScale);
  Value norm =
      c.fmul(word(c.f32Type(), kNorm),
             c.constant(c.vec(c.lanes), select.getKappa().convertToDouble()));
  Value residual = word(c.f32Type(), kResidual);
  Value levelSum = word(i32, kLevelSum);
  Value mask = c.i32(0);
  for (int64_t i = 0; i < kNeuronsPerUnit; i += c.lanes) {
    auto vector = [&](Type element, int64_t base) {
      int64_t bytes = element.getIntOrFloatBitWidth() / 8;
      return c.loadWidened(
          element, c.lanes,
          c.at(c.at(codes, c.mul(first, bytes)), base + bytes * i));
    };
    Type f32 = c.f32Type(), f16 = c.b.getF16Type();
    Value dot = c.load(c.vec(c.lanes, i32), c.at(dots, 4 * i));
    Value d = c.sub(c.add(dot, dot), levelSum);
    Value score =
        c.fadd(c.fmul(arith::SIToFPOp::create(c.b, c.loc, c.vec(c.lanes), d),
                      c.fmul(vector(f32, record.scale), halfScale)),
               vector(f32, record.bias));
    Value bound = c.fadd(c.fadd(score, c.fmul(vector(f16, record.error), norm)),
                         c.fmul(vector(f16, record.norm), residual));
    // Unordered or greater: a NaN keeps the neuron.
    Value keep = arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::UGT,
                                       bound, c.constant(bound.getType(), 0));
    if (neurons % kNeuronsPerUnit != 0)
      keep = arith::AndIOp::create(
          c.b, c.loc, keep, c.lanesBelow(c.add(first, i), neurons, c.lanes));
    Value bitsOfLanes = arith::ExtUIOp::create(
        c.b, c.loc, i32, c.bitcast(keep, c.b.getIntegerType(c.lanes)));
    mask = arith::OrIOp::create(
        c.b, c.loc, mask,
        arith::ShLIOp::create(c.b, c.loc, bitsOfLanes, c.i32(i)));
  }
  return mask;
}
