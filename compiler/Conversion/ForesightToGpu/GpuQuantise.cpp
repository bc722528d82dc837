//===- GpuQuantise.cpp - Low-bit copies of weights made on a GPU ----------===//
//
// A bundle of made-up weights holds none: the GPU makes them, and then the
// low-bit copies that its kernels score with. The records are those of
// foresight-lowbit with one difference: a row's scale is a fixed multiple of
// its root mean square, the best for normal numbers, rather than searched for.
// All sums are in f32; what they may lose is added to the bounds.
//
//===----------------------------------------------------------------------===//

#include "GpuQuantise.h"

#include "GpuWarp.h"

#include "foresight/lowbit/Layout.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

constexpr int64_t kThreads = 256;
/// Groups of 16 elements in a block; a lane has four of each.
constexpr int64_t kWords = 8;
/// Steps of the best uniform quantisers of a standard normal, 2 to 8 bits.
constexpr double kSteps[] = {0.9957, 0.5860, 0.3352, 0.1881,
                             0.1041, 0.0569, 0.0308};

class Quantiser {
public:
  Quantiser(GpuCode &code, ValueRange arguments, Type element, int64_t bits)
      : c(code), element(element), bits(bits), record(arguments[0]),
        weight(arguments[1]), bias(arguments[2]), gamma(arguments[3]),
        beta(arguments[4]), rows(arguments[5]), columns(arguments[6]) {}

  void emit();

private:
  Value aligned(Value value, int64_t to) {
    return c.mul(c.div(c.add(value, to - 1), to), to);
  }
  Values forBlocks(int64_t sums,
                   llvm::function_ref<void(Value, Values &)> body);
  Value elementsAt(Value k, Value &valid, Value *shift);
  void store(Value block, ArrayRef<Value> words);
  Value root(Value x) { return math::SqrtOp::create(c.b, c.loc, x); }

  GpuCode &c;
  Type element;
  int64_t bits;
  Value record, weight, bias, gamma, beta, rows, columns;
  Value row, source, target;
};

/// Four lanes share a block: lane q has elements 16g + 4q + i. Sums are vectors
/// of four that end as sums over the warp.
Values Quantiser::forBlocks(int64_t sums,
                            llvm::function_ref<void(Value, Values &)> body) {
  Value blocks = c.div(c.add(columns, lowbit::kBlock - 1), lowbit::kBlock);
  Values out = c.loop(c.div(c.lane, 4), blocks, kWarp / 4,
                      Values(sums, c.constant(c.vec(4), 0)),
                      [&](Value block, ValueRange carried) {
                        Values next(carried.begin(), carried.end());
                        body(block, next);
                        return next;
                      });
  for (Value &sum : out)
    sum = c.warpSum(c.sumLanes(sum));
  return out;
}

/// Elements k .. k + 3 times gamma, zero behind the row. `shift` gets what they
/// give with beta.
Value Quantiser::elementsAt(Value k, Value &valid, Value *shift) {
  Value index = c.add(c.splat(k, 4), c.iota(4, c.b.getI64Type()));
  valid = arith::CmpIOp::create(c.b, c.loc, arith::CmpIPredicate::slt, index,
                                c.splat(columns, 4));
  // Padding ends with the row: what lies behind is not read.
  Value safe = c.min(k, c.sub(aligned(columns, 4), c.i64(4)));
  int64_t bytes = elementBytes(element);
  Value w = c.loadAligned(c.vec(4, element), c.at(source, c.mul(safe, bytes)),
                          4 * bytes);
  if (!element.isF32())
    w = arith::ExtFOp::create(c.b, c.loc, c.vec(4), w);
  Value zero = c.constant(c.vec(4), 0);
  auto vectorAt = [&](Value vector) {
    return c.loadAligned(c.vec(4), c.at(vector, c.mul(safe, 4)), 16);
  };
  if (shift)
    *shift = c.select(valid, c.fmul(w, vectorAt(beta)), zero);
  return c.select(valid, c.fmul(w, vectorAt(gamma)), zero);
}

/// Codes of the lane's elements, a word for each g, into the planes of a block.
void Quantiser::store(Value block, ArrayRef<Value> words) {
  Value base =
      c.at(c.at(target, c.mul(block, 16 * bits)), c.mul(c.rem(c.lane, 4), 4));
  auto put = [&](Value word, int64_t offset) {
    c.storeAligned(word, c.at(base, offset), 4);
  };
  if (bits == 8) {
    for (int64_t g = 0; g < kWords; ++g)
      put(words[g], 16 * g);
    return;
  }
  // A word of a plane has `digits` digits of each of some g.
  int64_t offset = 0, from = 0;
  auto gather = [&](ArrayRef<int64_t> groups, int64_t digits) {
    Value word;
    for (auto [m, g] : llvm::enumerate(groups)) {
      Value digit = moveBits(
          c, bitAnd(c, words[g], (0x01010101ll * ((1 << digits) - 1)) << from),
          static_cast<int64_t>(m) * digits - from);
      word = word ? bitOr(c, word, digit) : digit;
    }
    return word;
  };
  if (bits & 4) {
    for (int64_t v = 0; v < 2; ++v)
      for (int64_t t = 0; t < 2; ++t)
        put(gather({4 * v + t, 4 * v + 2 + t}, 4), offset + 32 * v + 16 * t);
    offset += 64, from += 4;
  }
  if (bits & 2) {
    for (int64_t t = 0; t < 2; ++t)
      put(gather({t, 2 + t, 4 + t, 6 + t}, 2), offset + 16 * t);
    offset += 32, from += 2;
  }
  if (bits & 1)
    put(gather({0, 1, 2, 3, 4, 5, 6, 7}, 1), offset);
}

void Quantiser::emit() {
  row = c.add(c.mul(c.block, c.warps()), c.warp);
  c.ifThen(c.lessThan(row, rows), [&] {
    Value stride = c.mul(aligned(columns, padRow(1)), elementBytes(element));
    source = c.at(weight, c.mul(row, stride));
    Value codeBytes = c.mul(
        c.div(c.add(columns, lowbit::kBlock - 1), lowbit::kBlock), 16 * bits);
    target = c.at(record, c.mul(row, codeBytes));

    // |v|^2, sum w beta, sum |w beta|.
    Values sums = forBlocks(3, [&](Value block, Values &carried) {
      for (int64_t g = 0; g < kWords; ++g) {
        Value k = c.add(
            c.add(c.mul(block, lowbit::kBlock), c.mul(c.rem(c.lane, 4), 4)),
            16 * g);
        Value valid, shift;
        Value v = elementsAt(k, valid, &shift);
        carried[0] = c.fma(v, v, carried[0]);
        carried[1] = c.fadd(carried[1], shift);
        carried[2] = c.fadd(carried[2], c.abs(shift));
      }
    });
    Value length = root(sums[0]);
    Value count = arith::SIToFPOp::create(c.b, c.loc, c.f32Type(), columns);
    Value scale = c.fmul(c.fdiv(length, root(count)), c.f32(kSteps[bits - 2]));
    Value isPositive = arith::CmpFOp::create(
        c.b, c.loc, arith::CmpFPredicate::OGT, scale, c.f32(0));
    Value inverse = c.select(isPositive, c.fdiv(c.f32(1), scale), c.f32(0));

    // |v - q|^2 and |q|^2.
    double most = (1 << bits) - 1;
    Value zero = c.constant(c.vec(4), 0);
    Values norms = forBlocks(2, [&](Value block, Values &carried) {
      Values words;
      for (int64_t g = 0; g < kWords; ++g) {
        Value k = c.add(
            c.add(c.mul(block, lowbit::kBlock), c.mul(c.rem(c.lane, 4), 4)),
            16 * g);
        Value valid;
        Value v = elementsAt(k, valid, nullptr);
        Value level =
            math::FloorOp::create(c.b, c.loc,
                                  c.fma(v, c.splat(inverse, 4),
                                        c.constant(c.vec(4), (most + 1) / 2)));
        level = c.fmax(level, zero);
        Value top = c.constant(c.vec(4), most);
        Value isOver = arith::CmpFOp::create(
            c.b, c.loc, arith::CmpFPredicate::OGT, level, top);
        level = c.select(isOver, top, level);
        Value q = c.fmul(c.splat(scale, 4),
                         c.fsub(level, c.constant(c.vec(4), most / 2)));
        Value lost = c.select(valid, c.fsub(v, q), zero);
        q = c.select(valid, q, zero);
        carried[0] = c.fma(lost, lost, carried[0]);
        carried[1] = c.fma(q, q, carried[1]);
        Value code =
            arith::FPToSIOp::create(c.b, c.loc, c.vec(4, c.b.getI32Type()),
                                    c.select(valid, level, zero));
        words.push_back(packBytes(c, code));
      }
      store(block, words);
    });

    // Sums of K squares are off by less than a part in a thousand; |v| here is
    // that of products rounded to f32. Rounding to f16 loses as much again, and
    // at most its least number.
    Type half = c.b.getF16Type();
    auto wider = [&](Value x) { return c.fmul(x, c.f32(1.001)); };
    auto raised = [&](Value x) -> Value {
      return arith::TruncFOp::create(c.b, c.loc, half,
                                     c.fadd(wider(wider(x)), c.f32(0x1p-24)));
    };
    auto stored = [&](Value x) -> Value {
      return arith::ExtFOp::create(c.b, c.loc, c.f32Type(), x);
    };
    length = wider(length);
    Value norm = raised(root(norms[1]));
    Value error = raised(c.fma(length, c.f32(0x1p-22), root(norms[0])));
    Value biasOfRow = c.load(c.f32Type(), c.at(bias, c.mul(row, 4)));
    Value magnitude = c.fadd(wider(sums[2]), c.abs(biasOfRow));
    Value radius = c.fmul(root(count), c.f32(1.011));
    Value all = c.fma(
        radius, c.fadd(length, c.fadd(stored(norm), stored(error))), magnitude);
    Value slack = c.fadd(
        c.fmul(c.fmul(c.fadd(count, c.f32(32)), c.f32(1.03 * 0x1p-24)), all),
        c.f32(0x1p-80));
    // What these sums themselves lose.
    slack =
        c.fma(c.fadd(magnitude, slack), c.fmul(count, c.f32(0x1p-23)), slack);
    Value bound = c.fadd(c.fadd(biasOfRow, sums[1]), slack);
    c.ifThen(c.isEqual(c.lane, 0), [&] {
      Value scales = c.at(record, aligned(c.mul(rows, codeBytes), 64));
      Value padded = aligned(rows, 32);
      Value biases = c.at(scales, c.mul(padded, 4));
      Value errors = c.at(biases, c.mul(padded, 4));
      Value lengths = c.at(errors, c.mul(padded, 2));
      c.store(scale, c.at(scales, c.mul(row, 4)));
      c.store(bound, c.at(biases, c.mul(row, 4)));
      c.storeAligned(error, c.at(errors, c.mul(row, 2)), 2);
      c.storeAligned(norm, c.at(lengths, c.mul(row, 2)), 2);
    });
  });
}

} // namespace

std::string foresight::gpuQuantiseName(Type element, int64_t bits) {
  std::string name = "foresight_quantise_";
  llvm::raw_string_ostream(name) << element << '_' << bits;
  return name;
}

void foresight::emitQuantiseEntry(OpBuilder &b, Location loc, Type element,
                                  int64_t bits) {
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Type> types(5, LLVM::LLVMPointerType::get(b.getContext()));
  types.append(2, b.getI64Type());
  LLVM::LLVMFuncOp function =
      openGpuEntry(b, loc, gpuQuantiseName(element, bits), types);
  GpuCode code(b, loc, kThreads);
  code.readIndices();
  Quantiser(code, function.getArguments(), element, bits).emit();
  LLVM::ReturnOp::create(b, loc, ValueRange());
}
