//===- GpuScores.cpp - Integer scores of a low-bit copy -------------------===//

#include "GpuScores.h"

#include "GpuWarp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace foresight;

namespace {

constexpr int64_t kChunk = 16;
/// Words of a lane for one block: groups of 16 elements.
constexpr int64_t kWords = 8;
/// xq = kHigh * high + low.
constexpr int64_t kHighBits = 7;

LowBitType copyOf(const GpuSparse &plan) {
  SelectCertifiedOp select = plan.select;
  return cast<LowBitType>(select.getCopy().getType());
}

} // namespace

GpuScores::GpuScores(GpuFrame &frame)
    : frame(frame), c(frame.c), plan(frame.plan.sparse),
      bits(copyOf(plan).getBits()), columns(copyOf(plan).getColumns()),
      neurons(copyOf(plan).getRows()),
      rowBytes(lowbit::rowBytes(columns, bits)),
      blocksPerRow(lowbit::padColumns(columns) / lowbit::kBlock),
      rowsAtOnce(kWarp / plan.lanes), stride(kChunk * blockChunks(bits)),
      record(lowbit::record(neurons, columns, bits)) {
  SelectCertifiedOp select = plan.select;
  codes = frame.memoryOf(select.getCopy());
  slots = c.at(c.at(frame.shared, plan.codesAt),
               c.mul(c.warp, plan.slots * plan.slotBytes));
  // Neighbouring units on different multiprocessors: they share the last turn.
  first = c.add(c.mul(c.warp, c.blocks), c.block);
  total = c.mul(c.blocks, c.warps());
  group = c.div(c.lane, plan.lanes);
  part = c.rem(c.lane, plan.lanes);
  // Lanes behind a row read its last block and multiply it by zero.
  block = c.min(c.div(part, 4), c.i64(plan.blocks - 1));
  quarter = c.rem(c.lane, 4);
}

Value GpuScores::unitOf(Value turn) { return c.add(first, c.mul(turn, total)); }

Value GpuScores::turns() {
  Value up = c.add(total, plan.units - 1);
  return c.div(up, total);
}

Value GpuScores::neuronInUnit(Value lane) {
  return c.add(c.mul(c.rem(lane, plan.lanes), rowsAtOnce),
               c.div(lane, plan.lanes));
}

Value GpuScores::neuronOf(Value unit, Value lane) {
  return c.add(c.mul(unit, plan.neurons), neuronInUnit(lane));
}

void GpuScores::request(Value item) {
  Value unit = unitOf(c.div(item, plan.pieces));
  Value piece = c.rem(item, plan.pieces);
  Value slot = c.at(slots, c.mul(c.rem(item, plan.slots), plan.slotBytes));
  Value last = c.i64(neurons - 1);
  int64_t chunks = plan.blocks * bits;
  c.ifThen(c.lessThan(unit, c.i64(plan.units)), [&] {
    Value neuron = c.mul(unit, plan.neurons);
    Value from = c.mul(piece, chunks);
    for (int64_t i = 0; i * kWarp < chunks; ++i) {
      Value chunk = c.add(c.lane, i * kWarp);
      Value place = c.mul(chunk, kChunk);
      if (stride != kChunk * bits)
        place = c.add(c.mul(c.div(chunk, bits), stride),
                      c.mul(c.rem(chunk, bits), kChunk));
      auto copyRows = [&] {
        Value offset = c.mul(c.add(from, chunk), kChunk);
        for (int64_t n = 0; n < plan.neurons; ++n) {
          Value row = c.mul(c.min(c.add(neuron, n), last), rowBytes);
          copyAsync(c, c.at(c.at(slot, place), n * plan.blocks * stride),
                    c.at(c.at(codes, row), offset), kChunk);
        }
      };
      // What lies behind the piece, or behind the row with the last one.
      Value isIn;
      if ((i + 1) * kWarp > chunks)
        isIn = c.lessThan(chunk, c.i64(chunks));
      if (plan.pieces * plan.blocks > blocksPerRow) {
        Value isRow = c.lessThan(c.add(from, chunk), c.i64(rowBytes / kChunk));
        isIn = isIn ? c.both(isIn, isRow) : isRow;
      }
      if (isIn)
        c.ifThen(isIn, copyRows);
      else
        copyRows();
    }
    // The neurons' own numbers come with the last piece, a word each: halves
    // with a neighbour's.
    int64_t numbers = kRecordVectors * plan.neurons;
    c.ifThen(c.isEqual(piece, plan.pieces - 1), [&] {
      for (int64_t i = 0; i * kWarp < numbers; ++i) {
        Value index = c.add(c.lane, i * kWarp);
        auto copyNumber = [&] {
          Value row = c.min(c.add(neuron, c.rem(index, plan.neurons)), last);
          Value vector = c.div(index, plan.neurons);
          Value single =
              c.add(c.mul(vector, record.bias - record.scale), c.mul(row, 4));
          Value half = c.add(c.add(c.mul(vector, record.norm - record.error),
                                   record.error - record.scale -
                                       2 * (record.norm - record.error)),
                             c.mul(c.div(row, 2), 4));
          Value offset = c.select(c.lessThan(vector, c.i64(2)), single, half);
          copyAsync(c,
                    c.at(c.at(slot, plan.neurons * plan.blocks * stride),
                         c.mul(index, 4)),
                    c.at(c.at(codes, record.scale), offset), 4);
        };
        if ((i + 1) * kWarp <= numbers)
          copyNumber();
        else
          c.ifThen(c.lessThan(index, c.i64(numbers)), copyNumber);
      }
    });
  });
  endGroup(c);
}

//===----------------------------------------------------------------------===//
// The row
//===----------------------------------------------------------------------===//

/// The thread's chunk `i` of four elements; behind the row there are none.
void GpuScores::forChunk(int64_t i, llvm::function_ref<void(Value)> body) {
  int64_t chunks = padRow(columns) / 4;
  Value chunk = c.add(c.thread, i * c.threads);
  if ((i + 1) * c.threads <= chunks)
    body(c.mul(chunk, 4));
  else
    c.ifThen(c.lessThan(chunk, c.i64(chunks)), [&] { body(c.mul(chunk, 4)); });
}

/// Puts a row where the product's input will be, and back into registers: a
/// thread reads what it wrote.
GpuScores::Values GpuScores::readRow(Value row, Place placeOf) {
  emitRow(frame, row,
          [&](Value k, Value x) { c.storeAligned(x, placeOf(k), 16); });
  int64_t chunks = padRow(columns) / 4;
  Values parts;
  for (int64_t i = 0; i * c.threads < chunks; ++i) {
    Value chunk = c.add(c.thread, i * c.threads);
    auto load = [&] {
      return c.loadAligned(c.vec(4), placeOf(c.mul(chunk, 4)), 16);
    };
    // What lies behind the row is another thread's.
    bool isWhole = (i + 1) * c.threads <= chunks;
    parts.push_back(isWhole ? load()
                            : c.ifElse(c.lessThan(chunk, c.i64(chunks)), load,
                                       c.constant(c.vec(4), 0)));
  }
  return parts;
}

/// Sums over all threads with one exchange.
GpuScores::Values GpuScores::blockSums(ArrayRef<Value> parts) {
  Value memory = c.at(frame.shared, plan.sumsAt);
  auto place = [&](int64_t i, Value index) {
    return c.at(memory, c.add(c.mul(index, 4), i * kReduceBytes));
  };
  for (auto [i, part] : llvm::enumerate(parts)) {
    Value sum = c.warpSum(part);
    c.ifThen(c.isEqual(c.lane, 0), [&] { c.store(sum, place(i, c.warp)); });
  }
  c.barrier();
  Values sums;
  for (size_t i = 0; i < parts.size(); ++i)
    sums.push_back(c.warpSum(c.ifElse(
        c.lessThan(c.lane, c.i64(c.warps())),
        [&] { return c.load(c.f32Type(), place(i, c.lane)); }, c.f32(0))));
  return sums;
}

/// Where the word of high bytes of elements k .. k + 3 lies.
Value GpuScores::roundedAt(Value k) {
  Value ofRow = c.div(k, lowbit::kBlock);
  Value word = c.div(c.rem(k, lowbit::kBlock), 16);
  Value lane =
      c.add(c.mul(c.rem(ofRow, plan.blocks), 4), c.div(c.rem(k, 16), 4));
  Value vector = c.add(c.mul(c.div(ofRow, plan.blocks), 4), c.div(word, 4));
  Value place = c.add(c.mul(c.add(c.mul(vector, plan.lanes), lane), 16),
                      c.mul(c.rem(word, 4), 4));
  return c.at(c.at(frame.shared, plan.roundedAt), place);
}

void GpuScores::round(Place placeOf) {
  PredictOp predict = plan.predict;
  SelectCertifiedOp select = plan.select;
  GatherLinearOp product = plan.product;
  Value zero = c.constant(c.vec(4), 0), none = c.f32(0);
  int64_t pad = plan.pieces * plan.blocks * lowbit::kBlock;
  // Lanes without a block, and blocks behind the row, multiply by zero.
  int64_t bytes = plan.pieces * 4 * plan.lanes * 16;
  if (pad != padRow(columns) || plan.blocks * 4 != plan.lanes) {
    Value memory = c.at(frame.shared, plan.roundedAt);
    for (int64_t i = 0; i * c.threads * 16 < bytes; ++i) {
      Value offset = c.mul(c.add(c.thread, i * c.threads), 16);
      c.ifThen(c.lessThan(offset, c.i64(bytes)),
               [&] { c.storeAligned(zero, c.at(memory, offset), 16); });
    }
    c.barrier();
  }

  // |x| is of the row that the test speaks about, which an earlier prediction
  // did not read.
  auto squares = [&](ArrayRef<Value> row) {
    Value sum = zero;
    for (Value x : row)
      sum = c.fma(x, x, sum);
    return c.sumLanes(sum);
  };
  Value square;
  if (select.getX() != predict.getX())
    square = squares(readRow(select.getX(), placeOf));
  Values x = readRow(predict.getX(), placeOf);
  if (!square)
    square = squares(x);

  Value largest = none;
  for (Value part : x)
    largest = c.fmax(c.maxLanes(c.abs(part)), largest);
  largest = c.blockMax(largest, frame.shared);
  double limit = lowbit::activationMax(columns, bits);
  Value scale = c.fdiv(largest, c.f32(limit));
  Value isPositive = arith::CmpFOp::create(
      c.b, c.loc, arith::CmpFPredicate::OGT, largest, none);
  Value inverse = c.select(isPositive, c.fdiv(c.f32(limit), largest), none);
  Value scales = c.splat(scale, 4), inverses = c.splat(inverse, 4);

  Value lost = zero, highSum = zero, lowSum = zero;
  Type i32s = c.vec(4, c.b.getI32Type());
  for (auto [i, part] : llvm::enumerate(x)) {
    // A NaN would have no integer; the norm carries it.
    Value steps = math::RoundEvenOp::create(c.b, c.loc, c.fmul(part, inverses));
    Value isNumber = arith::CmpFOp::create(
        c.b, c.loc, arith::CmpFPredicate::ORD, steps, steps);
    steps = c.select(isNumber, steps, zero);
    Value limits = c.constant(c.vec(4), limit);
    steps = c.fmax(steps, c.constant(c.vec(4), -limit));
    Value isOver = arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::OGT,
                                         steps, limits);
    steps = c.select(isOver, limits, steps);
    Value difference = c.fsub(part, c.fmul(scales, steps));
    lost = c.fma(difference, difference, lost);
    Value integer = arith::FPToSIOp::create(c.b, c.loc, i32s, steps);
    Value upper = arith::ShRSIOp::create(c.b, c.loc, integer,
                                         c.constant(i32s, double(kHighBits)));
    Value lower = bitAnd(c, integer, (1 << kHighBits) - 1);
    forChunk(i, [&](Value k) {
      Value place = roundedAt(k);
      c.store(packBytes(c, upper), place);
      c.store(packBytes(c, lower), c.at(place, 2 * plan.lanes * 16));
    });
    // Sums of either byte are exact in f32: those of 2^24 would be needed.
    auto toFloat = [&](Value v) -> Value {
      return arith::SIToFPOp::create(c.b, c.loc, c.vec(4), v);
    };
    highSum = c.fadd(highSum, toFloat(upper));
    lowSum = c.fadd(lowSum, toFloat(lower));
  }
  Values sums = blockSums(
      {square, c.sumLanes(lost), c.sumLanes(highSum), c.sumLanes(lowSum)});
  auto root = [&](Value v) -> Value {
    return math::SqrtOp::create(c.b, c.loc, v);
  };
  auto toInteger = [&](Value v) -> Value {
    return arith::FPToSIOp::create(c.b, c.loc, c.b.getI32Type(), v);
  };
  halfScale = c.fmul(c.f32(0.5), scale);
  norm = c.fmul(root(sums[0]), c.f32(select.getKappa().convertToDouble()));
  residual = root(sums[1]);
  levelSum = c.mul(
      c.add(moveBits(c, toInteger(sums[2]), kHighBits), toInteger(sums[3])),
      c.i32((1 << bits) - 1));

  if (!product)
    return;
  // The product's input is often the same row, scaled.
  auto ofPredict = predict.getX().getDefiningOp<LayerNormOp>();
  auto ofProduct = product.getX().getDefiningOp<LayerNormOp>();
  bool isScaled = ofPredict && ofProduct && !ofPredict.getGamma() &&
                  !ofPredict.getBeta() &&
                  ofPredict.getX() == ofProduct.getX() &&
                  ofPredict.getEpsilon() == ofProduct.getEpsilon();
  if (!isScaled)
    return emitRow(frame, product.getX(), [&](Value k, Value x) {
      c.storeAligned(x, placeOf(k), 16);
    });
  for (size_t i = 0; i < x.size(); ++i)
    forChunk(i, [&](Value k) {
      auto vectorAt = [&](Value vector) {
        return c.loadAligned(c.vec(4),
                             c.at(frame.memoryOf(vector), c.mul(k, 4)), 16,
                             /*invariant=*/true);
      };
      // Read again: kept in registers, wide rows would not fit.
      Value scaled = c.loadAligned(c.vec(4), placeOf(k), 16);
      if (ofProduct.getGamma())
        scaled = c.fmul(scaled, vectorAt(ofProduct.getGamma()));
      if (ofProduct.getBeta())
        scaled = c.fadd(scaled, vectorAt(ofProduct.getBeta()));
      if (columns % 4 != 0)
        scaled = c.select(c.lanesBelow(k, columns, 4), scaled, zero);
      else if (columns != padRow(columns))
        scaled =
            c.select(c.splat(c.lessThan(k, c.i64(columns)), 4), scaled, zero);
      c.storeAligned(scaled, placeOf(k), 16);
    });
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// The codes of this lane in a block, one word for each 16 elements.
GpuScores::Values GpuScores::codesOf(Value base) {
  Type i32 = c.b.getI32Type();
  auto word = [&](int64_t offset) {
    return c.loadAligned(i32, c.at(base, offset), 4);
  };
  Values result(kWords);
  if (bits == 8) {
    for (int64_t g = 0; g < kWords; ++g)
      result[g] = word(16 * g);
    return result;
  }
  auto put = [&](int64_t g, Value plane, int64_t from, int64_t to,
                 int64_t digits) {
    Value digit = bitAnd(c, moveBits(c, plane, to - from),
                         (0x01010101ll * ((1 << digits) - 1)) << to);
    result[g] = result[g] ? bitOr(c, result[g], digit) : digit;
  };
  // g = 4v + 2h + t, where a plane of two runs has v, of halves h.
  int64_t offset = 0, to = 0;
  if (bits & 4) {
    for (int64_t v = 0; v < 2; ++v)
      for (int64_t t = 0; t < 2; ++t) {
        Value plane = word(offset + 32 * v + 16 * t);
        for (int64_t h = 0; h < 2; ++h)
          put(4 * v + 2 * h + t, plane, 4 * h, to, 4);
      }
    offset += 64, to += 4;
  }
  if (bits & 2) {
    for (int64_t t = 0; t < 2; ++t) {
      Value plane = word(offset + 16 * t);
      for (int64_t m = 0; m < 4; ++m)
        put(2 * m + t, plane, 2 * m, to, 2);
    }
    offset += 32, to += 2;
  }
  if (bits & 1) {
    Value plane = word(offset);
    for (int64_t g = 0; g < kWords; ++g)
      put(g, plane, g, to, 1);
  }
  return result;
}

GpuScores::Tested GpuScores::score(Value turn, Value unit) {
  int64_t rows = plan.neurons / rowsAtOnce;
  Type i32 = c.b.getI32Type();
  Value mine = neuronInUnit(c.lane);
  Value number = c.min(mine, c.i64(plan.neurons - 1));
  Value recordRow =
      c.min(c.add(c.mul(unit, plan.neurons), number), c.i64(neurons - 1));
  Values init(2 * rows, c.i32(0));
  init.append(kRecordVectors, c.f32(0));
  Values out = c.loop(
      c.i64(0), c.i64(plan.pieces), 1, init,
      [&](Value piece, ValueRange carried) {
        Values sums(carried.take_front(2 * rows));
        Value item = c.add(c.mul(turn, plan.pieces), piece);
        Value slot =
            c.at(slots, c.mul(c.rem(item, plan.slots), plan.slotBytes));
        waitForGroups(c, plan.slots - 1);
        syncWarp(c);
        Value rounded =
            c.at(c.at(frame.shared, plan.roundedAt),
                 c.mul(c.add(c.mul(piece, 4 * plan.lanes), part), 16));
        Values steps;
        for (int64_t i = 0; i < 4; ++i)
          steps.push_back(c.loadAligned(
              c.vec(4, i32), c.at(rounded, i * plan.lanes * 16), 16));
        for (int64_t r = 0; r < rows; ++r) {
          Value index =
              c.add(c.mul(c.add(group, r * rowsAtOnce), plan.blocks), block);
          Values words = codesOf(
              c.at(slot, c.add(c.mul(index, stride), c.mul(quarter, 4))));
          for (int64_t g = 0; g < kWords; ++g)
            for (int64_t half = 0; half < 2; ++half)
              sums[2 * r + half] = dotBytes(
                  c, words[g], c.extract(steps[2 * half + g / 4], g % 4),
                  sums[2 * r + half]);
        }
        // Only those of the last piece are read in the end.
        Value numbers = c.at(c.at(slot, plan.neurons * plan.blocks * stride),
                             c.mul(number, 4));
        for (int64_t i = 0; i < 2; ++i)
          sums.push_back(
              c.load(c.f32Type(), c.at(numbers, 4 * i * plan.neurons)));
        for (int64_t i = 2; i < kRecordVectors; ++i) {
          Value half = c.at(c.at(numbers, 4 * i * plan.neurons),
                            c.mul(c.rem(recordRow, 2), 2));
          sums.push_back(arith::ExtFOp::create(c.b, c.loc, c.f32Type(),
                                               c.load(c.b.getF16Type(), half)));
        }
        syncWarp(c);
        request(c.add(item, plan.slots));
        return sums;
      });

  Value dot;
  for (int64_t r = 0; r < rows; ++r) {
    Value sum = c.add(moveBits(c, out[2 * r], kHighBits), out[2 * r + 1]);
    sum = sumLanesOf(c, sum, plan.lanes);
    dot = dot ? c.select(c.isEqual(part, r), sum, dot) : sum;
  }
  ArrayRef<Value> vectors = ArrayRef<Value>(out).take_back(kRecordVectors);
  Value d = c.sub(c.add(dot, dot), levelSum);
  Value score =
      c.fadd(c.fmul(arith::SIToFPOp::create(c.b, c.loc, c.f32Type(), d),
                    c.fmul(vectors[0], halfScale)),
             vectors[1]);
  Value bound = c.fadd(c.fadd(score, c.fmul(vectors[2], norm)),
                       c.fmul(vectors[3], residual));
  Tested tested;
  tested.neuron = c.add(c.mul(unit, plan.neurons), mine);
  tested.isMine = c.both(c.lessThan(part, c.i64(rows)),
                         c.lessThan(tested.neuron, c.i64(neurons)));
  // Unordered or greater: a NaN keeps the neuron.
  Value isKept = arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::UGT,
                                       bound, c.f32(0));
  tested.isKept = c.both(isKept, tested.isMine);
  return tested;
}
