//===- GpuWarp.cpp - Short words for warps that score ---------------------===//

#include "GpuWarp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace foresight;

namespace {

constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;
constexpr int32_t kAllLanes = -1;

/// A word, or a vector of it: bits beyond 32 are cut off.
Value constantLike(GpuCode &c, Value a, int64_t value) {
  return c.constant(a.getType(),
                    static_cast<double>(static_cast<int32_t>(value)));
}

Value inSpace(GpuCode &c, Value pointer, unsigned space) {
  return LLVM::AddrSpaceCastOp::create(
      c.b, c.loc, LLVM::LLVMPointerType::get(c.b.getContext(), space), pointer);
}

} // namespace

Value foresight::bitAnd(GpuCode &c, Value a, int64_t mask) {
  return arith::AndIOp::create(c.b, c.loc, a, constantLike(c, a, mask));
}

Value foresight::bitOr(GpuCode &c, Value a, Value b) {
  return arith::OrIOp::create(c.b, c.loc, a, b);
}

Value foresight::moveBits(GpuCode &c, Value a, int64_t by) {
  if (by == 0)
    return a;
  if (by > 0)
    return arith::ShLIOp::create(c.b, c.loc, a, constantLike(c, a, by));
  return arith::ShRUIOp::create(c.b, c.loc, a, constantLike(c, a, -by));
}

Value foresight::packBytes(GpuCode &c, Value vector) {
  Value bytes =
      arith::TruncIOp::create(c.b, c.loc, c.vec(4, c.b.getI8Type()), vector);
  return c.bitcast(bytes, c.b.getI32Type());
}

Value foresight::dotBytes(GpuCode &c, Value codes, Value steps, Value sum) {
  return LLVM::CallIntrinsicOp::create(c.b, c.loc, c.b.getI32Type(),
                                       c.b.getStringAttr("llvm.nvvm.idp4a.u.s"),
                                       ValueRange{codes, steps, sum})
      ->getResult(0);
}

Value foresight::narrow(GpuCode &c, Value wide) {
  return arith::TruncIOp::create(c.b, c.loc, c.b.getI32Type(), wide);
}

Value foresight::popCount(GpuCode &c, Value word) {
  return math::CtPopOp::create(c.b, c.loc, word);
}

Value foresight::ballot(GpuCode &c, Value condition) {
  return NVVM::VoteSyncOp::create(c.b, c.loc, c.b.getI32Type(),
                                  c.i32(kAllLanes), condition,
                                  NVVM::VoteSyncKind::ballot);
}

void foresight::syncWarp(GpuCode &c) {
  NVVM::SyncWarpOp::create(c.b, c.loc, c.i32(kAllLanes));
}

Value foresight::sumLanesOf(GpuCode &c, Value x, int64_t lanes) {
  if (lanes == kWarp)
    return NVVM::ReduxOp::create(c.b, c.loc, x.getType(), x,
                                 NVVM::ReduxKind::ADD, c.i32(kAllLanes));
  return c.sumOver(x, 1, lanes);
}

Value foresight::sumLanesBelow(GpuCode &c, Value x) {
  for (int64_t by = 1; by < kWarp; by *= 2) {
    Value other = NVVM::ShflOp::create(c.b, c.loc, x.getType(),
                                       c.i32(kAllLanes), x, c.i32(by), c.i32(0),
                                       NVVM::ShflKind::up, UnitAttr());
    x = c.select(c.lessThan(c.lane, c.i64(by)), x, c.add(x, other));
  }
  return x;
}

Value foresight::lanesFrom(GpuCode &c, Value x, Value lane) {
  return NVVM::ShflOp::create(c.b, c.loc, x.getType(), c.i32(kAllLanes), x,
                              narrow(c, lane), c.i32(kWarp - 1),
                              NVVM::ShflKind::idx, UnitAttr());
}

Value foresight::orLanes(GpuCode &c, Value x) {
  return NVVM::ReduxOp::create(c.b, c.loc, x.getType(), x, NVVM::ReduxKind::OR,
                               c.i32(kAllLanes));
}

void foresight::copyAsync(GpuCode &c, Value to, Value from, int64_t bytes,
                          Value read) {
  NVVM::CpAsyncOp::create(
      c.b, c.loc, inSpace(c, to, kSharedSpace), inSpace(c, from, kGlobalSpace),
      static_cast<uint32_t>(bytes),
      // Whole vectors need not stay in the first-level cache.
      bytes == 16 ? NVVM::LoadCacheModifierKind::CG
                  : NVVM::LoadCacheModifierKind::CA,
      read);
}

void foresight::endGroup(GpuCode &c) {
  NVVM::CpAsyncCommitGroupOp::create(c.b, c.loc);
}

void foresight::waitForGroups(GpuCode &c, int64_t newer) {
  NVVM::CpAsyncWaitGroupOp::create(c.b, c.loc, static_cast<uint32_t>(newer));
}

Value foresight::nextSlot(GpuCode &c, Value offset, int64_t slotBytes,
                          int64_t depth) {
  Value next = c.add(offset, slotBytes);
  return c.select(c.isEqual(next, depth * slotBytes), c.i64(0), next);
}

void foresight::prefetchLine(GpuCode &c, Value pointer) {
  LLVM::InlineAsmOp::create(c.b, c.loc, TypeRange(), ValueRange{pointer},
                            "prefetch.global.L2 [$0];", "l",
                            /*has_side_effects=*/true,
                            /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr(), ArrayAttr());
}

Value foresight::atomicAdd(GpuCode &c, Value pointer, Value x) {
  return LLVM::AtomicRMWOp::create(c.b, c.loc, LLVM::AtomicBinOp::add,
                                   inSpace(c, pointer, kSharedSpace), x,
                                   LLVM::AtomicOrdering::monotonic);
}
