//===- GpuTensorCore.cpp - Products of 16 x 8 tiles by a warp -------------===//

#include "GpuTensorCore.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace foresight;

Tile foresight::multiplyTile(GpuCode &c, Type element, ArrayRef<Value> a,
                             ArrayRef<Value> b, const Tile &sum) {
  bool isF16 = element.isF16();
  auto words = [&](ArrayRef<Value> list) {
    SmallVector<Value> typed;
    for (Value word : list)
      typed.push_back(isF16 ? c.bitcast(word, c.vec(2, element)) : word);
    return typed;
  };
  Type f32 = c.f32Type();
  auto type =
      LLVM::LLVMStructType::getLiteral(c.b.getContext(), {f32, f32, f32, f32});
  NVVM::MMATypes kind = isF16 ? NVVM::MMATypes::f16 : NVVM::MMATypes::bf16;
  Value result = NVVM::MmaOp::create(
      c.b, c.loc, type, words(a), words(b), sum, ArrayRef<int64_t>{16, 8, 16},
      std::nullopt, std::nullopt, std::array{kind, kind},
      std::array{NVVM::MMALayout::row, NVVM::MMALayout::col});
  Tile out;
  for (int64_t i = 0; i < 4; ++i)
    out.push_back(LLVM::ExtractValueOp::create(c.b, c.loc, result, i));
  return out;
}

Value foresight::packPair(GpuCode &c, Type element, Value low, Value high) {
  Value pair = c.vectorOf({low, high});
  return c.bitcast(arith::TruncFOp::create(c.b, c.loc, c.vec(2, element), pair),
                   c.b.getI32Type());
}

SmallVector<Value, 4> foresight::loadMatrices(GpuCode &c, Value row,
                                              bool isTransposed) {
  constexpr unsigned kSharedSpace = 3;
  MLIRContext *ctx = c.b.getContext();
  Type i32 = c.b.getI32Type();
  auto type = LLVM::LLVMStructType::getLiteral(ctx, {i32, i32, i32, i32});
  Value shared = LLVM::AddrSpaceCastOp::create(
      c.b, c.loc, LLVM::LLVMPointerType::get(ctx, kSharedSpace), row);
  Value loaded = NVVM::LdMatrixOp::create(
      c.b, c.loc, type, shared, /*num=*/4,
      isTransposed ? NVVM::MMALayout::col : NVVM::MMALayout::row,
      NVVM::LdStMatrixShapeAttr::get(ctx, 8, 8), NVVM::LdStMatrixEltType::B16);
  SmallVector<Value, 4> words;
  for (int64_t i = 0; i < 4; ++i)
    words.push_back(LLVM::ExtractValueOp::create(c.b, c.loc, loaded, i));
  return words;
}
