//===- GpuPickEmitter.h - Kernels that pick a token -------------*- C++ -*-===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUPICKEMITTER_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUPICKEMITTER_H

#include "GpuWarp.h"

#include "foresight/abi/Sampling.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <cstddef>

namespace foresight {

/// The body of one of the entries of foresight/abi/Sampling.h.
class PickEmitter {
public:
  PickEmitter(GpuCode &code, mlir::ValueRange arguments, mlir::Value shared)
      : c(code), b(code.b), loc(code.loc), arguments(arguments),
        shared(shared) {}

  void emitLargest();
  void emitDrawn();

private:
  enum Argument {
    Logits,
    States,
    Sampling,
    Ids,
    Positions,
    StepOf,
    Tokens,
    Vocabulary,
    RowBytes,
    Parts,
    Slots
  };

  static constexpr llvm::StringLiteral kDeviceScope = "device";
  static constexpr unsigned kGlobalSpace = 1;
  using Value = mlir::Value;

  // Short words for what only this emitter needs.
  Value compare(mlir::arith::CmpIPredicate predicate, Value a, Value d) {
    return mlir::arith::CmpIOp::create(b, loc, predicate, a, d);
  }
  Value isBelow(Value a, Value d) {
    return compare(mlir::arith::CmpIPredicate::ult, a, d);
  }
  Value isAtMost(Value a, Value d) {
    return compare(mlir::arith::CmpIPredicate::ule, a, d);
  }
  Value wide(Value x) {
    return mlir::arith::ExtUIOp::create(b, loc, b.getI64Type(), x);
  }
  Value upperProduct(Value a, Value d) {
    return mlir::arith::MulUIExtendedOp::create(b, loc, a, d).getHigh();
  }
  Value shifted(Value x, Value by) {
    return mlir::arith::ShRUIOp::create(b, loc, x, by);
  }
  Value load64(Value pointer) { return c.load(b.getI64Type(), pointer); }
  Value load32(Value pointer) { return c.load(b.getI32Type(), pointer); }
  Value own(size_t offset) { return c.at(state, static_cast<int64_t>(offset)); }
  Value option(size_t offset) {
    return c.at(arguments[Sampling], static_cast<int64_t>(offset));
  }
  /// What one thread tells all, at the start of shared memory.
  Value found(int64_t index) { return c.at(shared, 8 * index); }
  Value sumAt(int64_t base, Value index, int64_t bytes) {
    return c.at(c.at(shared, base), c.mul(index, bytes));
  }
  Value atomic(mlir::LLVM::AtomicBinOp op, Value pointer, Value x) {
    Value global = mlir::LLVM::AddrSpaceCastOp::create(
        b, loc, mlir::LLVM::LLVMPointerType::get(b.getContext(), kGlobalSpace),
        pointer);
    return mlir::LLVM::AtomicRMWOp::create(
        b, loc, op, global, x, mlir::LLVM::AtomicOrdering::monotonic,
        kDeviceScope);
  }
  void fence(llvm::StringRef scope) {
    mlir::LLVM::FenceOp::create(b, loc, mlir::LLVM::AtomicOrdering::acq_rel,
                                scope);
  }
  void onThread0(llvm::function_ref<void()> body) {
    c.ifThen(c.isEqual(c.thread, 0), body);
  }
  Value shuffle64(Value x, llvm::function_ref<Value(Value)> shuffle32);

  void findRow();
  void forLogits(Value first, Value step,
                 llvm::function_ref<void(Value, Value, Value)> body);
  Value orderOf(Value logit, Value id);
  Value isLastBlock();
  void readLargest();
  Value binOf(Value x);
  Value weightOf(Value x);
  void fillBins();
  void sumBefore(llvm::ArrayRef<Value> own, Value &before, Value &all);
  void scanBins();
  void search(Value byCount, Value limit);
  void rank(Value byCount, Value limit, Value weightBefore, Value bin, Value lo,
            Value hi);
  void finish(Value id);

  GpuCode &c;
  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::ValueRange arguments;
  Value shared;
  Value row, part, logits, state;
  /// The largest logit, its token, and the scale.
  Value largest, bestId, scale;
};

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUPICKEMITTER_H
