//===- GpuElementwise.cpp - Entries over plain memory ---------------------===//

#include "GpuElementwise.h"

#include "GpuKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace foresight;

/// `element4(code, elements, index of the first, second argument)` for each
/// four elements of the first.
static void emitElementwise(
    OpBuilder &b, Location loc, StringRef name,
    llvm::function_ref<void(GpuCode &, Value, Value, Value)> element4) {
  OpBuilder::InsertionGuard guard(b);
  constexpr int64_t kThreads = 256;
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  LLVM::LLVMFuncOp function =
      openGpuEntry(b, loc, name, {pointer, pointer, b.getI64Type()});
  GpuCode c(b, loc, kThreads);
  c.readIndices();
  Value k = c.mul(c.add(c.mul(c.block, kThreads), c.thread), 4);
  c.ifThen(c.lessThan(k, function.getArgument(2)), [&] {
    Value x =
        c.loadAligned(c.vec(4), c.at(function.getArgument(0), c.mul(k, 4)), 16);
    element4(c, x, k, function.getArgument(1));
  });
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

void foresight::emitCast(OpBuilder &b, Location loc, Type element) {
  emitElementwise(
      b, loc, element.isF16() ? "foresight_cast_f16" : "foresight_cast_bf16",
      [&](GpuCode &c, Value x, Value k, Value to) {
        c.storeNarrow(element, x, c.at(to, c.mul(k, 2)));
      });
}

void foresight::emitActivate(OpBuilder &b, Location loc, Activation kind) {
  emitElementwise(b, loc,
                  ("foresight_activate_" + stringifyActivation(kind)).str(),
                  [&](GpuCode &c, Value x, Value k, Value to) {
                    c.storeAligned(emitGpuActivation(c, kind, x),
                                   c.at(to, c.mul(k, 4)), 16);
                  });
}

void foresight::emitFill(OpBuilder &b, Location loc, Type element) {
  OpBuilder::InsertionGuard guard(b);
  constexpr int64_t kThreads = 256, kElements = 4;
  Type i64 = b.getI64Type(), f32 = b.getF32Type();
  StringRef name = element.isF16()    ? "foresight_fill_f16"
                   : element.isBF16() ? "foresight_fill_bf16"
                                      : "foresight_fill_f32";
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  LLVM::LLVMFuncOp function =
      openGpuEntry(b, loc, name, {pointer, i64, i64, i64, i64, f32, f32});
  auto argument = [&](int i) -> Value { return function.getArgument(i); };
  GpuCode c(b, loc, kThreads);
  c.readIndices();
  auto shifted = [&](Value x, int64_t by) -> Value {
    return arith::ShRUIOp::create(b, loc, x, c.i64(by));
  };
  Value first = c.mul(c.add(c.mul(c.block, kThreads), c.thread), kElements);
  c.ifThen(c.lessThan(first, argument(1)), [&] {
    SmallVector<Value> values;
    for (int64_t e = 0; e < kElements; ++e) {
      Value index = c.add(first, e);
      Value x = c.randomBits(argument(4), index);
      Value sum = c.i64(0);
      for (int64_t part = 0; part < 4; ++part)
        sum = c.add(sum, arith::AndIOp::create(b, loc, shifted(x, 16 * part),
                                               c.i64(0xffff)));
      // Mean 2 * 65535, variance 4 * (2^32 - 1) / 12.
      Value centred =
          arith::SIToFPOp::create(b, loc, f32, c.sub(sum, c.i64(2 * 65535)));
      Value n = c.fmul(centred, c.f32(1.0 / 37837.2));
      Value value = c.fma(n, argument(6), argument(5));
      Value column = arith::RemUIOp::create(b, loc, index, argument(3));
      values.push_back(
          c.select(c.lessThan(column, argument(2)), value, c.f32(0)));
    }
    c.storeNarrow(element, c.vectorOf(values),
                  c.at(argument(0), c.mul(first, elementBytes(element))));
  });
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

void foresight::emitRead(OpBuilder &b, Location loc) {
  OpBuilder::InsertionGuard guard(b);
  constexpr int64_t kThreads = 256, kLoads = 4, kSeldom = 0x2545f491;
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  LLVM::LLVMFuncOp function = openGpuEntry(b, loc, "foresight_read",
                                           {pointer, b.getI64Type(), pointer});
  Value memory = function.getArgument(0), vectors = function.getArgument(1);
  GpuCode c(b, loc, kThreads);
  c.readIndices();
  Value threads = c.mul(c.blocks, kThreads);
  Value first = c.add(c.mul(c.block, kThreads), c.thread);
  Value ofTurn = c.mul(threads, kLoads);
  Value turns = c.div(c.add(vectors, c.sub(ofTurn, c.i64(1))), ofTurn);
  GpuCode::Values found = c.loop(
      c.i64(0), turns, 1, {c.i32(0)}, [&](Value turn, ValueRange carried) {
        GpuCode::Values loaded;
        for (int64_t i = 0; i < kLoads; ++i) {
          Value index =
              c.add(first, c.add(c.mul(turn, ofTurn), c.mul(threads, i)));
          index = c.min(index, c.sub(vectors, c.i64(1)));
          loaded.push_back(
              c.load16(b.getF32Type(), c.at(memory, c.mul(index, 16))));
        }
        Value bits = carried[0];
        for (Value words : loaded)
          for (int64_t i = 0; i < 4; ++i)
            bits = arith::XOrIOp::create(b, loc, bits, c.extract(words, i));
        return GpuCode::Values{bits};
      });
  c.ifThen(c.isEqual(found[0], kSeldom),
           [&] { c.store(found[0], function.getArgument(2)); });
  LLVM::ReturnOp::create(b, loc, ValueRange());
}
