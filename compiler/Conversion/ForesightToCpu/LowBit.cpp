//===- LowBit.cpp - Integer scores of a low-bit copy ----------------------===//
//
// Four rows of codes, a quarter of a claim apart, are four long streams:
// hardware follows them from page to page. (Rows next to each other are streams
// of less than a page; they were read at two thirds of the rate.)
//
//===----------------------------------------------------------------------===//

#include "LowBit.h"

#include "Frame.h"
#include "LowBitDot.h"

#include "foresight/lowbit/Layout.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace foresight;

namespace {

using Values = CodeBuilder::Values;

/// Rows that share the loads of activations.
constexpr int64_t kGroup = 4;

/// Names the words of the header.
enum Header { kHalfScale = 0, kNorm = 4, kResidual = 8, kLevelSum = 12 };

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

  auto emitRuns = [&](Value block, int64_t m) {
    Value from = c.at(x, c.mul(block, 4 * lowbit::kBlock));
    Values integers;
    for (int64_t k = 0; k < 32; k += c.lanes)
      integers.push_back(arith::FPToSIOp::create(
          c.b, c.loc, i32Vector, rounded(element(from, c.i64(32 * m + k)))));
    storeActivations(c, copy.getBits(), m, integers,
                     c.at(out, c.mul(block, 2 * lowbit::kBlock)));
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

void foresight::emitUnitDots(Frame &frame, const SparseOps &ops, Value first,
                             Value units) {
  CodeBuilder &c = frame.c;
  SelectCertifiedOp select = ops.select;
  auto copy = cast<LowBitType>(select.getCopy().getType());
  int64_t bits = copy.getBits(), neurons = copy.getRows();
  int64_t rowBytes = lowbit::rowBytes(copy.getColumns(), bits);
  int64_t blocks = lowbit::padColumns(copy.getColumns()) / lowbit::kBlock;
  Value codes = codesPointer(frame, ops);
  Value activations = frame.scratchAt(ops.activations);
  Value dots = frame.scratchAt(ops.dots);

  // The test reads these when all are scored: ask for them now.
  lowbit::Record record = lowbit::record(neurons, copy.getColumns(), bits);
  c.loop(c.i64(0), units, 1, [&](Value unit) {
    Value neuron = c.add(first, c.mul(unit, kNeuronsPerUnit));
    for (auto [at, bytes] : {std::pair(record.scale, 4),
                             {record.bias, 4},
                             {record.error, 2},
                             {record.norm, 2}})
      c.prefetch(c.at(c.at(codes, c.mul(neuron, bytes)), at),
                 bytes * kNeuronsPerUnit);
  });
  Value quarter = c.mul(units, kNeuronsPerUnit / kGroup);
  c.loop(c.i64(0), quarter, 1, [&](Value i) {
    Values rows, places;
    for (int64_t r = 0; r < kGroup; ++r) {
      Value place = c.add(i, c.mul(quarter, r));
      Value neuron = c.min(c.add(first, place), c.i64(neurons - 1));
      places.push_back(c.at(dots, c.mul(place, 4)));
      rows.push_back(c.at(codes, c.mul(neuron, rowBytes)));
    }
    Value four = c.sumLanes4(emitDots(c, bits, rows, activations, blocks));
    for (auto [r, place] : llvm::enumerate(places))
      c.store(c.extract(four, r), place);
  });
}

Value foresight::emitTest(Frame &frame, const SparseOps &ops, Value first,
                          Value dots) {
  CodeBuilder &c = frame.c;
  SelectCertifiedOp select = ops.select;
  auto copy = cast<LowBitType>(select.getCopy().getType());
  int64_t neurons = copy.getRows();
  lowbit::Record record =
      lowbit::record(neurons, copy.getColumns(), copy.getBits());
  Value codes = codesPointer(frame, ops);
  Type i32 = c.b.getI32Type();
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
