//===- GpuCode.h - Short words for GPU code ---------------------*- C++ -*-===//
//
// CodeBuilder with threads: who am I, shuffles, barriers, shared memory.
// Pointers are generic; LLVM infers the address space from where they start.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUCODE_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUCODE_H

#include "../ForesightToCpu/CodeBuilder.h"

namespace mlir::LLVM {
class LLVMFuncOp;
} // namespace mlir::LLVM

namespace foresight {

constexpr int64_t kWarp = 32;

/// A kernel that the host launches, of arguments of `types`; code goes to its
/// start.
mlir::LLVM::LLVMFuncOp openGpuEntry(mlir::OpBuilder &b, mlir::Location loc,
                                    llvm::StringRef name,
                                    llvm::ArrayRef<mlir::Type> types);

class GpuCode : public CodeBuilder {
public:
  GpuCode(mlir::OpBuilder &builder, mlir::Location loc, int64_t threads)
      : CodeBuilder(builder, loc, /*lanes=*/4), threads(threads) {}

  /// Threads of a block; known when the kernel is generated.
  const int64_t threads;
  int64_t warps() const { return threads / kWarp; }

  // Computed once, at the start of the kernel.
  Value thread, lane, warp, block, blocks;
  void readIndices();

  /// A value that all threads of a warp agree on, added up over `width` lanes
  /// (a power of two), always in the same order.
  Value sumOver(Value x, int64_t from, int64_t to);
  Value warpSum(Value x) { return sumOver(x, 1, kWarp); }
  Value warpMax(Value x);
  /// Of all threads of the block. `scratch`: 4 * 32 bytes of shared memory that
  /// nobody else uses now.
  Value blockSum(Value x, Value scratch);
  Value blockMax(Value x, Value scratch);
  Value shuffleXor(Value x, int64_t mask);
  void barrier();
  /// Waits for the kernels this one depends on; lets those behind it start.
  void waitForInputs();
  void letDependentsStart();

  /// Aligned loads: `invariant` memory is written by no kernel of the graph.
  Value loadAligned(mlir::Type type, Value pointer, int64_t alignment,
                    bool invariant = false);
  void storeAligned(Value value, Value pointer, int64_t alignment);
  /// A vector of 16 bytes of stored elements, and its elements as f32.
  Value load16(mlir::Type element, Value pointer);
  Value widen(Value stored, mlir::Type element);

  /// Rounds f32 to the element type and stores, `n` elements at once.
  void storeNarrow(mlir::Type element, Value value, Value pointer);
  Value vectorOf(llvm::ArrayRef<Value> elements);
  Value exp(Value x);
  Value exp2(Value x);
  Value lessThan(Value a, Value c);
  Value isEqual(Value a, int64_t c);
  Value div(Value a, int64_t c); ///< of a value that is not negative
  Value rem(Value a, int64_t c);
  // 32-bit division is a few instructions, 64-bit a call.
  Value div(Value a, Value c); ///< of values below 2^31
  Value rem(Value a, Value c);
  Value both(Value a, Value c); ///< of conditions
  /// Number `index` of the sequence of `seed`: SplitMix64, as in
  /// foresight/sampling/Random.h.
  Value randomBits(Value seed, Value index);
  /// `condition ? then() : otherwise` with a branch.
  Value ifElse(Value condition, llvm::function_ref<Value()> then,
               Value otherwise);
  Values ifElse(Value condition, llvm::function_ref<Values()> then,
                const Values &otherwise);

private:
  Value blockReduce(Value x, Value scratch, Value identity,
                    llvm::function_ref<Value(Value)> overWarp);
};

/// f32 elements of 16 bytes of `element`.
int64_t elementsOf16(mlir::Type element);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUCODE_H
