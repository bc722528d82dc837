//===- CodeBuilder.h - Short words for vector code --------------*- C++ -*-===//
//
// The emitters of this folder write loops over raw memory: `scf` loops on i64,
// `llvm` loads and stores of vectors, `arith` in between. This class names what
// they say often. Everything is a builtin or LLVM type from the start, so that
// no type conversion is needed on the way down.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOCPU_CODEBUILDER_H
#define FORESIGHT_LIB_FORESIGHTTOCPU_CODEBUILDER_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace foresight {

/// Bytes of a stored weight or cache element.
int64_t elementBytes(mlir::Type element);
/// Elements of a row with its padding.
int64_t padRow(int64_t columns);

class CodeBuilder {
public:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;

  CodeBuilder(mlir::OpBuilder &builder, mlir::Location loc, int lanes)
      : b(builder), loc(loc), lanes(lanes) {}

  mlir::OpBuilder &b;
  mlir::Location loc;
  /// f32 elements of a vector register.
  const int lanes;

  // Types.
  mlir::Type f32Type() { return b.getF32Type(); }
  mlir::VectorType vec(int64_t n, mlir::Type element) {
    return mlir::VectorType::get({n}, element);
  }
  mlir::VectorType vec(int64_t n) { return vec(n, f32Type()); }

  // Constants: a vector type gives a splat.
  Value i64(int64_t value);
  Value i32(int64_t value);
  Value f32(double value);
  Value constant(mlir::Type type, double value);
  /// 0, 1, 2 ... as i64 or i32 vector.
  Value iota(int64_t n, mlir::Type element);
  Value splat(Value scalar, int64_t n);

  // Arithmetic on scalars and vectors alike; no fast-math flag is ever set.
  Value add(Value a, Value c);
  Value sub(Value a, Value c);
  Value mul(Value a, Value c);
  Value add(Value a, int64_t c) { return add(a, i64(c)); }
  Value mul(Value a, int64_t c) { return mul(a, i64(c)); }
  Value min(Value a, Value c); ///< signed integers
  Value max(Value a, Value c); ///< signed integers
  Value fadd(Value a, Value c);
  Value fsub(Value a, Value c);
  Value fmul(Value a, Value c);
  Value fdiv(Value a, Value c);
  Value fma(Value a, Value m, Value c); ///< a * m + c, one rounding
  Value fmax(Value a, Value c);         ///< `a > c ? a : c`
  Value abs(Value a);
  Value select(Value condition, Value a, Value c);
  Value toI64(Value i32);
  Value bitcast(Value value, mlir::Type type);

  // Memory. Offsets are in bytes.
  Value at(Value pointer, Value bytes);
  Value at(Value pointer, int64_t bytes) {
    return bytes == 0 ? pointer : at(pointer, i64(bytes));
  }
  Value load(mlir::Type type, Value pointer);
  void store(Value value, Value pointer);
  /// `n` elements stored as f32, f16 or bf16, as f32. n = 0 gives a scalar.
  Value loadWidened(mlir::Type element, int64_t n, Value pointer);
  /// Rounds f32 to the element type, to nearest even, and stores.
  void storeNarrowed(mlir::Type element, Value value, Value pointer);
  /// Asks for the lines of `bytes` bytes, a number known here.
  void prefetch(Value pointer, int64_t bytes);
  /// Zeroes `bytes` bytes, a multiple of 4 known here.
  void zeroFill(Value pointer, int64_t bytes);

  // Vectors.
  Value shuffle(Value a, Value c, llvm::ArrayRef<int64_t> mask);
  Value extract(Value vector, int64_t lane);
  /// Lanes that lie below `limit` when lane 0 is element `first`.
  Value lanesBelow(Value first, int64_t limit, int64_t n);
  /// Sum of all lanes, halves first: always the same order.
  Value sumLanes(Value vector);
  Value maxLanes(Value vector);
  /// The sums of four vectors of equal width, f32 or i32, as a vector of four.
  Value sumLanes4(llvm::ArrayRef<Value> vectors);

  // Control.
  using LoopBody = llvm::function_ref<Values(Value, mlir::ValueRange)>;
  Values loop(Value lower, Value upper, int64_t step, mlir::ValueRange init,
              LoopBody body);
  void loop(Value lower, Value upper, int64_t step,
            llvm::function_ref<void(Value)> body);
  void ifThen(Value condition, llvm::function_ref<void()> then);
  /// For each set bit of `mask` (i32), lowest first: `body(bit as i64,
  /// carried)` gives the next carried value.
  Value forEachBit(Value mask, Value init,
                   llvm::function_ref<Value(Value, Value)> body);

  mlir::Type pointerType();
};

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOCPU_CODEBUILDER_H
