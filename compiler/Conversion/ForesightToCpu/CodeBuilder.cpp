//===- CodeBuilder.cpp - Short words for vector code ----------------------===//

#include "CodeBuilder.h"

#include "foresight/abi/Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace foresight;

int64_t foresight::elementBytes(Type element) {
  return element.getIntOrFloatBitWidth() / 8;
}

int64_t foresight::padRow(int64_t columns) {
  return (columns + FORESIGHT_ROW_PAD - 1) / FORESIGHT_ROW_PAD *
         FORESIGHT_ROW_PAD;
}

static Type sameShape(Type like, Type element) {
  if (auto vector = dyn_cast<VectorType>(like))
    return vector.clone(element);
  return element;
}

Type CodeBuilder::pointerType() {
  return LLVM::LLVMPointerType::get(b.getContext());
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

Value CodeBuilder::i64(int64_t value) {
  return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
}

Value CodeBuilder::i32(int64_t value) {
  return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(value));
}

Value CodeBuilder::f32(double value) {
  return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
}

Value CodeBuilder::constant(Type type, double value) {
  Type element = getElementTypeOrSelf(type);
  TypedAttr attr = isa<FloatType>(element)
                       ? TypedAttr(b.getFloatAttr(element, value))
                       : b.getIntegerAttr(element, static_cast<int64_t>(value));
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(b, loc, attr);
}

Value CodeBuilder::iota(int64_t n, Type element) {
  SmallVector<Attribute> lanes;
  for (int64_t i = 0; i < n; ++i)
    lanes.push_back(b.getIntegerAttr(element, i));
  return arith::ConstantOp::create(
      b, loc, DenseElementsAttr::get(vec(n, element), lanes));
}

Value CodeBuilder::splat(Value scalar, int64_t n) {
  return vector::BroadcastOp::create(b, loc, vec(n, scalar.getType()), scalar);
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

Value CodeBuilder::add(Value a, Value c) {
  return arith::AddIOp::create(b, loc, a, c);
}
Value CodeBuilder::sub(Value a, Value c) {
  return arith::SubIOp::create(b, loc, a, c);
}
Value CodeBuilder::mul(Value a, Value c) {
  return arith::MulIOp::create(b, loc, a, c);
}
Value CodeBuilder::min(Value a, Value c) {
  return arith::MinSIOp::create(b, loc, a, c);
}
Value CodeBuilder::max(Value a, Value c) {
  return arith::MaxSIOp::create(b, loc, a, c);
}
Value CodeBuilder::fadd(Value a, Value c) {
  return arith::AddFOp::create(b, loc, a, c);
}
Value CodeBuilder::fsub(Value a, Value c) {
  return arith::SubFOp::create(b, loc, a, c);
}
Value CodeBuilder::fmul(Value a, Value c) {
  return arith::MulFOp::create(b, loc, a, c);
}
Value CodeBuilder::fdiv(Value a, Value c) {
  return arith::DivFOp::create(b, loc, a, c);
}
Value CodeBuilder::fma(Value a, Value m, Value c) {
  return math::FmaOp::create(b, loc, a, m, c);
}

Value CodeBuilder::fmax(Value a, Value c) {
  // One instruction (maxps), unlike maximumf, which orders NaN and zeros.
  Value greater =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, a, c);
  return select(greater, a, c);
}

Value CodeBuilder::abs(Value a) { return math::AbsFOp::create(b, loc, a); }

Value CodeBuilder::select(Value condition, Value a, Value c) {
  return arith::SelectOp::create(b, loc, condition, a, c);
}

Value CodeBuilder::toI64(Value i32) {
  return arith::ExtSIOp::create(b, loc, b.getI64Type(), i32);
}

Value CodeBuilder::bitcast(Value value, Type type) {
  return LLVM::BitcastOp::create(b, loc, type, value);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value CodeBuilder::at(Value pointer, Value bytes) {
  return LLVM::GEPOp::create(b, loc, pointerType(), b.getI8Type(), pointer,
                             ArrayRef<LLVM::GEPArg>{bytes});
}

Value CodeBuilder::load(Type type, Value pointer) {
  // Padding makes rows 64-byte aligned, but heads and claims start anywhere.
  Type element = getElementTypeOrSelf(type);
  unsigned align =
      element.isIntOrFloat() ? element.getIntOrFloatBitWidth() / 8 : 8;
  return LLVM::LoadOp::create(b, loc, type, pointer, std::max(align, 1u));
}

void CodeBuilder::store(Value value, Value pointer) {
  Type element = getElementTypeOrSelf(value.getType());
  LLVM::StoreOp::create(b, loc, value, pointer,
                        element.getIntOrFloatBitWidth() / 8);
}

Value CodeBuilder::loadWidened(Type element, int64_t n, Value pointer) {
  auto typed = [&](Type t) { return n == 0 ? t : Type(vec(n, t)); };
  if (element.isF32())
    return load(typed(element), pointer);
  if (element.isF16())
    return arith::ExtFOp::create(b, loc, typed(f32Type()),
                                 load(typed(element), pointer));
  // bf16 is the upper half of f32.
  Value bits = arith::ExtUIOp::create(b, loc, typed(b.getI32Type()),
                                      load(typed(b.getI16Type()), pointer));
  bits = arith::ShLIOp::create(b, loc, bits, constant(bits.getType(), 16));
  return arith::BitcastOp::create(b, loc, typed(f32Type()), bits);
}

void CodeBuilder::storeNarrowed(Type element, Value value, Value pointer) {
  if (element.isF32())
    return store(value, pointer);
  Type type = value.getType();
  if (element.isF16())
    return store(
        arith::TruncFOp::create(b, loc, sameShape(type, element), value),
        pointer);
  // truncf to bf16 would be a library call: round the bits here. NaN keeps its
  // upper half with the quiet bit set, so that it does not become infinity.
  Type i32 = sameShape(type, b.getI32Type());
  Value bits = arith::BitcastOp::create(b, loc, i32, value);
  Value sixteen = constant(i32, 16);
  Value odd = arith::AndIOp::create(
      b, loc, arith::ShRUIOp::create(b, loc, bits, sixteen), constant(i32, 1));
  Value rounded = add(bits, add(odd, constant(i32, 0x7fff)));
  Value quiet = arith::OrIOp::create(b, loc, bits, constant(i32, 0x400000));
  Value isNan =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, value, value);
  Value upper =
      arith::ShRUIOp::create(b, loc, select(isNan, quiet, rounded), sixteen);
  store(arith::TruncIOp::create(b, loc, sameShape(type, b.getI16Type()), upper),
        pointer);
}

void CodeBuilder::prefetch(Value pointer, int64_t bytes) {
  constexpr int64_t kCacheLine = 64;
  // For reading (0), into the second level (2), data (1): so far ahead, the
  // first would lose lines again where rows are a power of two apart.
  for (int64_t offset = 0; offset < bytes; offset += kCacheLine)
    LLVM::Prefetch::create(b, loc, at(pointer, offset), b.getI32IntegerAttr(0),
                           b.getI32IntegerAttr(2), b.getI32IntegerAttr(1));
}

void CodeBuilder::zeroFill(Value pointer, int64_t bytes) {
  int64_t vectorBytes = 4 * lanes;
  int64_t whole = bytes / vectorBytes * vectorBytes;
  if (whole > 0) {
    Value zero = constant(vec(lanes), 0);
    loop(i64(0), i64(whole), vectorBytes,
         [&](Value offset) { store(zero, at(pointer, offset)); });
  }
  for (int64_t offset = whole; offset < bytes; offset += 4)
    store(f32(0), at(pointer, offset));
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

Value CodeBuilder::shuffle(Value a, Value c, ArrayRef<int64_t> mask) {
  return vector::ShuffleOp::create(b, loc, a, c, mask);
}

Value CodeBuilder::extract(Value vector, int64_t lane) {
  return vector::ExtractOp::create(b, loc, vector, lane);
}

Value CodeBuilder::lanesBelow(Value first, int64_t limit, int64_t n) {
  Value index = add(splat(first, n), iota(n, b.getI64Type()));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, index,
                               constant(index.getType(), limit));
}

/// Lower and upper half of a vector.
static std::pair<Value, Value> halves(CodeBuilder &c, Value vector) {
  int64_t n = cast<VectorType>(vector.getType()).getNumElements();
  SmallVector<int64_t> low, high;
  for (int64_t i = 0; i < n / 2; ++i) {
    low.push_back(i);
    high.push_back(n / 2 + i);
  }
  return {c.shuffle(vector, vector, low), c.shuffle(vector, vector, high)};
}

static int64_t width(Value vector) {
  return cast<VectorType>(vector.getType()).getNumElements();
}

Value CodeBuilder::sumLanes(Value vector) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(vector.getType()));
  while (width(vector) > 1) {
    auto [low, high] = halves(*this, vector);
    vector = isFloat ? fadd(low, high) : add(low, high);
  }
  return extract(vector, 0);
}

Value CodeBuilder::maxLanes(Value vector) {
  while (width(vector) > 1) {
    auto [low, high] = halves(*this, vector);
    vector = fmax(low, high);
  }
  return extract(vector, 0);
}

Value CodeBuilder::sumLanes4(ArrayRef<Value> vectors) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(vectors[0].getType()));
  auto plus = [&](Value a, Value c) {
    return isFloat ? fadd(a, c) : add(a, c);
  };
  SmallVector<Value> v(vectors.begin(), vectors.end());
  for (Value &x : v)
    while (width(x) > 4) {
      auto [low, high] = halves(*this, x);
      x = plus(low, high);
    }
  // Transpose 4 x 4 and add the columns.
  Value a = shuffle(v[0], v[1], {0, 4, 1, 5});
  Value c = shuffle(v[0], v[1], {2, 6, 3, 7});
  Value d = shuffle(v[2], v[3], {0, 4, 1, 5});
  Value e = shuffle(v[2], v[3], {2, 6, 3, 7});
  Value column0 = shuffle(a, d, {0, 1, 4, 5});
  Value column1 = shuffle(a, d, {2, 3, 6, 7});
  Value column2 = shuffle(c, e, {0, 1, 4, 5});
  Value column3 = shuffle(c, e, {2, 3, 6, 7});
  return plus(plus(column0, column1), plus(column2, column3));
}

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

CodeBuilder::Values CodeBuilder::loop(Value lower, Value upper, int64_t step,
                                      ValueRange init, LoopBody body) {
  auto op = scf::ForOp::create(
      b, loc, lower, upper, i64(step), init,
      [&](OpBuilder &, Location, Value index, ValueRange carried) {
        // The builder's insertion point is inside the loop here.
        Values next = body(index, carried);
        scf::YieldOp::create(b, loc, next);
      });
  return Values(op.getResults());
}

void CodeBuilder::loop(Value lower, Value upper, int64_t step,
                       llvm::function_ref<void(Value)> body) {
  loop(lower, upper, step, ValueRange(), [&](Value index, ValueRange) {
    body(index);
    return Values();
  });
}

void CodeBuilder::ifThen(Value condition, llvm::function_ref<void()> then) {
  scf::IfOp::create(b, loc, condition, [&](OpBuilder &, Location) {
    then();
    scf::YieldOp::create(b, loc);
  });
}

Value CodeBuilder::forEachBit(Value mask, Value init,
                              llvm::function_ref<Value(Value, Value)> body) {
  SmallVector<Value> start{mask, init};
  SmallVector<Type> types{mask.getType(), init.getType()};
  auto op = scf::WhileOp::create(
      b, loc, types, start,
      [&](OpBuilder &, Location, ValueRange args) {
        Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                          args[0], i32(0));
        scf::ConditionOp::create(b, loc, any, args);
      },
      [&](OpBuilder &, Location, ValueRange args) {
        Value bit = math::CountTrailingZerosOp::create(b, loc, args[0]);
        Value next = body(toI64(bit), args[1]);
        Value rest =
            arith::AndIOp::create(b, loc, args[0], sub(args[0], i32(1)));
        scf::YieldOp::create(b, loc, ValueRange{rest, next});
      });
  return op.getResult(1);
}
