//===- Epilogue.cpp - Bias, activation, residual, store -------------------===//
//
// An epilogue is evaluated on whatever shape the body has its sums in: four
// rows of a row product, a register of a column product, one selected neuron.
//
//===----------------------------------------------------------------------===//

#include "Frame.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace foresight;

Value foresight::emitActivation(CodeBuilder &c, Activation kind, Value x) {
  Type type = x.getType();
  switch (kind) {
  case Activation::None:
    return x;
  case Activation::Relu:
    // `0 > x ? 0 : x`: a NaN stays one.
    return c.fmax(c.constant(type, 0), x);
  case Activation::Gelu: {
    Value erf = math::ErfOp::create(
        c.b, c.loc, c.fmul(x, c.constant(type, 0.70710678118654752)));
    Value half = c.fmul(x, c.constant(type, 0.5));
    return c.fma(half, erf, half);
  }
  case Activation::GeluTanh: {
    // 0.5 x (1 + tanh u) = x / (1 + exp(-2u)): one exponential.
    Value cube = c.fmul(c.fmul(x, x), x);
    Value u = c.fma(cube, c.constant(type, 0.044715), x);
    Value exponential = math::ExpOp::create(
        c.b, c.loc, c.fmul(u, c.constant(type, -2 * 0.79788456080286536)));
    return c.fdiv(x, c.fadd(c.constant(type, 1), exponential));
  }
  }
  llvm_unreachable("every activation has a case");
}

/// `n` elements of a vector (stored as f32) from `column` on; 0 is a scalar.
static Value loadColumns(Frame &frame, Value memory, Value column, int64_t n) {
  CodeBuilder &c = frame.c;
  return c.loadWidened(c.f32Type(), n, c.at(memory, c.mul(column, 4)));
}

Value foresight::emitEpilogue(Frame &frame, Value value, Operation *product,
                              Value sums, Value column) {
  CodeBuilder &c = frame.c;
  auto vector = dyn_cast<VectorType>(sums.getType());
  int64_t n = vector ? vector.getNumElements() : 0;

  Operation *op = value.getDefiningOp();
  if (op == product) {
    Value bias;
    Activation activation = Activation::None;
    if (auto linear = dyn_cast<LinearOp>(op)) {
      bias = linear.getBias();
      activation = linear.getActivation();
    } else if (auto gather = dyn_cast<GatherLinearOp>(op)) {
      bias = gather.getBias();
      activation = gather.getActivation();
    } else if (auto columns = dyn_cast<ColumnLinearOp>(op)) {
      bias = columns.getBias();
    }
    if (bias)
      sums = c.fadd(sums, loadColumns(frame, frame.memoryOf(bias), column, n));
    return emitActivation(c, activation, sums);
  }
  if (!frame.plan.productOf.contains(value))
    return loadColumns(frame, frame.rowOf(value), column, n);
  if (auto add = dyn_cast<AddOp>(op))
    return c.fadd(emitEpilogue(frame, add.getLhs(), product, sums, column),
                  emitEpilogue(frame, add.getRhs(), product, sums, column));
  auto activation = cast<ActivationOp>(op);
  return emitActivation(
      c, activation.getActivation(),
      emitEpilogue(frame, activation.getX(), product, sums, column));
}

void foresight::emitStores(Frame &frame, Operation *product, Value sums,
                           Value column) {
  CodeBuilder &c = frame.c;
  int64_t n = cast<VectorType>(sums.getType()).getNumElements();
  for (auto [value, row] : frame.resultsOfProduct(product)) {
    Value result = emitEpilogue(frame, value, product, sums, column);
    // Work buffers share memory: padding is whatever was there before.
    int64_t columns = columnsOf(value);
    if (columns % n != 0)
      result = c.select(c.lanesBelow(column, columns, n), result,
                        c.constant(result.getType(), 0));
    c.store(result, c.at(row, c.mul(column, 4)));
  }
}
