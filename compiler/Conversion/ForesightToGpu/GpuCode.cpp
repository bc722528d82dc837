//===- GpuCode.cpp - Short words for GPU code -----------------------------===//

#include "GpuCode.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace foresight;

LLVM::LLVMFuncOp foresight::openGpuEntry(OpBuilder &b, Location loc,
                                         StringRef name, ArrayRef<Type> types) {
  auto function = LLVM::LLVMFuncOp::create(
      b, loc, name,
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()),
                                  types));
  function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(),
                    b.getUnitAttr());
  b.setInsertionPointToStart(function.addEntryBlock(b));
  return function;
}

int64_t foresight::elementsOf16(Type element) {
  return 16 / elementBytes(element);
}

void GpuCode::readIndices() {
  Type i32 = b.getI32Type();
  auto wide = [&](Value x) -> Value {
    return arith::ExtUIOp::create(b, loc, b.getI64Type(), x);
  };
  thread = wide(NVVM::ThreadIdXOp::create(b, loc, i32));
  block = wide(NVVM::BlockIdXOp::create(b, loc, i32));
  blocks = wide(NVVM::GridDimXOp::create(b, loc, i32));
  lane = rem(thread, kWarp);
  warp = div(thread, kWarp);
}

Value GpuCode::shuffleXor(Value x, int64_t mask) {
  return NVVM::ShflOp::create(b, loc, x.getType(), i32(-1), x, i32(mask),
                              i32(kWarp - 1), NVVM::ShflKind::bfly, UnitAttr());
}

Value GpuCode::sumOver(Value x, int64_t from, int64_t to) {
  bool isFloat = isa<FloatType>(x.getType());
  for (int64_t mask = to / 2; mask >= from; mask /= 2) {
    Value other = shuffleXor(x, mask);
    x = isFloat ? fadd(x, other) : add(x, other);
  }
  return x;
}

Value GpuCode::warpMax(Value x) {
  for (int64_t mask = kWarp / 2; mask >= 1; mask /= 2)
    x = fmax(x, shuffleXor(x, mask));
  return x;
}

/// A warp's part by shuffles, the block's by every warp reading all parts: one
/// barrier, and all threads have the result.
Value GpuCode::blockReduce(Value x, Value scratch, Value identity,
                           llvm::function_ref<Value(Value)> overWarp) {
  x = overWarp(x);
  if (warps() == 1)
    return x;
  // Who comes late still reads what the last reduction left here.
  barrier();
  ifThen(isEqual(lane, 0), [&] { store(x, at(scratch, mul(warp, 4))); });
  barrier();
  Value mine = ifElse(
      lessThan(lane, i64(warps())),
      [&] { return load(f32Type(), at(scratch, mul(lane, 4))); }, identity);
  return overWarp(mine);
}

Value GpuCode::blockSum(Value x, Value scratch) {
  return blockReduce(x, scratch, f32(0), [&](Value v) { return warpSum(v); });
}

Value GpuCode::blockMax(Value x, Value scratch) {
  return blockReduce(x, scratch, f32(-INFINITY),
                     [&](Value v) { return warpMax(v); });
}

void GpuCode::barrier() { NVVM::Barrier0Op::create(b, loc); }

void GpuCode::waitForInputs() {
  NVVM::GriddepcontrolOp::create(b, loc, NVVM::GridDepActionKind::wait);
}

void GpuCode::letDependentsStart() {
  NVVM::GriddepcontrolOp::create(b, loc,
                                 NVVM::GridDepActionKind::launch_dependents);
}

Value GpuCode::loadAligned(Type type, Value pointer, int64_t alignment,
                           bool invariant) {
  auto op = LLVM::LoadOp::create(b, loc, type, pointer, alignment);
  op.setInvariant(invariant);
  return op;
}

void GpuCode::storeAligned(Value value, Value pointer, int64_t alignment) {
  LLVM::StoreOp::create(b, loc, value, pointer, alignment);
}

Value GpuCode::load16(Type element, Value pointer) {
  // An instruction of its own: LLVM would turn a load that is carried round a
  // loop into a load of the carried address, and so wait for it at once.
  // Weights are read once: they need not stay in the first-level cache.
  Type i32 = b.getI32Type();
  auto type =
      LLVM::LLVMStructType::getLiteral(b.getContext(), {i32, i32, i32, i32});
  Value words = LLVM::InlineAsmOp::create(
                    b, loc, type, ValueRange{pointer},
                    "ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, "
                    "[$4];",
                    "=r,=r,=r,=r,l", /*has_side_effects=*/true,
                    /*is_align_stack=*/false, LLVM::TailCallKind::None,
                    LLVM::AsmDialectAttr(), ArrayAttr())
                    .getResult(0);
  Values parts;
  for (int64_t i = 0; i < 4; ++i)
    parts.push_back(LLVM::ExtractValueOp::create(b, loc, words, i));
  return vectorOf(parts);
}

Value GpuCode::widen(Value stored, Type element) {
  int64_t n = elementsOf16(element);
  if (element.isF32())
    return bitcast(stored, vec(n));
  if (element.isF16())
    return arith::ExtFOp::create(b, loc, vec(n),
                                 bitcast(stored, vec(n, element)));
  // bf16 is the upper half of f32; element 2i is the lower half of word i.
  Values parts;
  for (int64_t i = 0; i < 4; ++i) {
    Value word = extract(stored, i);
    Value low = arith::ShLIOp::create(b, loc, word, i32(16));
    Value high = arith::AndIOp::create(b, loc, word, i32(-65536));
    parts.push_back(bitcast(low, f32Type()));
    parts.push_back(bitcast(high, f32Type()));
  }
  return vectorOf(parts);
}

void GpuCode::storeNarrow(Type element, Value value, Value pointer) {
  if (!element.isF32()) {
    Type type = element;
    if (auto vector = dyn_cast<VectorType>(value.getType()))
      type = vector.clone(element);
    value = arith::TruncFOp::create(b, loc, type, value);
  }
  int64_t n = 1;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    n = vector.getNumElements();
  storeAligned(value, pointer, n * elementBytes(element));
}

Value GpuCode::vectorOf(ArrayRef<Value> elements) {
  return vector::FromElementsOp::create(
      b, loc, vec(elements.size(), elements[0].getType()), elements);
}

Value GpuCode::exp(Value x) { return exp2(fmul(x, f32(1.4426950408889634))); }

Value GpuCode::exp2(Value x) {
  return LLVM::Exp2Op::create(b, loc, f32Type(), x, LLVM::FastmathFlags::afn);
}

Value GpuCode::lessThan(Value a, Value c) {
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, a, c);
}

Value GpuCode::isEqual(Value a, int64_t c) {
  Value constant = a.getType().isInteger(64) ? i64(c) : i32(c);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, a, constant);
}

Value GpuCode::div(Value a, int64_t c) {
  return arith::DivUIOp::create(b, loc, a, i64(c));
}

Value GpuCode::rem(Value a, int64_t c) {
  return arith::RemUIOp::create(b, loc, a, i64(c));
}

Value GpuCode::div(Value a, Value c) {
  Type i32 = b.getI32Type();
  return toI64(arith::DivUIOp::create(b, loc,
                                      arith::TruncIOp::create(b, loc, i32, a),
                                      arith::TruncIOp::create(b, loc, i32, c)));
}

Value GpuCode::rem(Value a, Value c) {
  Type i32 = b.getI32Type();
  Value narrow =
      arith::RemUIOp::create(b, loc, arith::TruncIOp::create(b, loc, i32, a),
                             arith::TruncIOp::create(b, loc, i32, c));
  return arith::ExtUIOp::create(b, loc, b.getI64Type(), narrow);
}

Value GpuCode::both(Value a, Value c) {
  return arith::AndIOp::create(b, loc, a, c);
}

Value GpuCode::ifElse(Value condition, llvm::function_ref<Value()> then,
                      Value otherwise) {
  return ifElse(
      condition, [&] { return Values{then()}; }, Values{otherwise})[0];
}

GpuCode::Values GpuCode::ifElse(Value condition,
                                llvm::function_ref<Values()> then,
                                const Values &otherwise) {
  auto op = scf::IfOp::create(
      b, loc, condition,
      [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, then()); },
      [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, otherwise); });
  return Values(op.getResults());
}

Value GpuCode::randomBits(Value seed, Value index) {
  auto mixed = [&](Value x, int64_t by) -> Value {
    return arith::XOrIOp::create(b, loc, x,
                                 arith::ShRUIOp::create(b, loc, x, i64(by)));
  };
  auto times = [&](Value x, uint64_t factor) {
    return mul(x, static_cast<int64_t>(factor));
  };
  Value x = add(seed, times(add(index, 1), 0x9e3779b97f4a7c15));
  x = times(mixed(x, 30), 0xbf58476d1ce4e5b9);
  x = times(mixed(x, 27), 0x94d049bb133111eb);
  return mixed(x, 31);
}
