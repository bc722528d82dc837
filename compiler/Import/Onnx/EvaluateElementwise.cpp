//===- EvaluateElementwise.cpp - Elements of one tensor -------------------===//

#include "EvaluateNode.h"

#include <cmath>

using namespace llvm;
using namespace mlir;
using namespace foresight::onnx;

namespace {

template <double (*F)(double)> Evaluated real(const NodeView &n) {
  if (!n[0].isFloat())
    return evaluationError("integers are not supported");
  Tensor result = n[0];
  for (double &value : result.writeFloats())
    value = F(value);
  result.saturate();
  return one(result);
}

template <typename F> Evaluated either(const NodeView &n, F f) {
  Tensor result = n[0];
  if (result.isFloat())
    for (double &value : result.writeFloats())
      value = f(value);
  else
    for (int64_t &value : result.writeInts())
      value = f(value);
  return one(result);
}

template <bool (*F)(double)> Evaluated test(const NodeView &n) {
  if (!n[0].isFloat())
    return evaluationError("integers are not supported");
  Tensor result(IntegerType::get(n.node.getContext(), 1), n[0].shape());
  for (int64_t i = 0; i < result.count(); ++i)
    result.writeInts()[i] = F(n[0].floats()[i]);
  return one(result);
}

double relu(double x) { return x > 0 || std::isnan(x) ? x : 0.0; }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double reciprocal(double x) { return 1 / x; }
double gelu(double x) { return 0.5 * x * (1 + std::erf(x * M_SQRT1_2)); }
double geluTanh(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
bool isNan(double x) { return std::isnan(x); }
bool isInf(double x) { return std::isinf(x); }

Evaluated geluOf(const NodeView &n) {
  return n.text("approximate", "none") == "tanh" ? real<geluTanh>(n)
                                                 : real<gelu>(n);
}

Evaluated logicalNot(const NodeView &n) {
  if (n[0].isFloat())
    return evaluationError("floats have no logic");
  return either(n, [](auto x) { return x == 0; });
}

Evaluated passOn(const NodeView &n) { return one(n[0]); }

/// Dropout while a model runs: nothing is dropped.
Evaluated dropout(const NodeView &n) {
  if (n.has(2) && n[2].count() == 1 && n[2].number(0) != 0)
    return evaluationError("dropout in training mode; export in eval mode");
  Tensor kept(IntegerType::get(n.node.getContext(), 1), n[0].shape());
  for (int64_t &value : kept.writeInts())
    value = 1;
  return Tensors{n[0], kept};
}

Evaluated clip(const NodeView &n) {
  double low = n.real("min", -std::numeric_limits<double>::infinity());
  double high = n.real("max", std::numeric_limits<double>::infinity());
  for (size_t i : {1, 2})
    if (n.has(i) && n[i].count() != 1)
      return evaluationError("its limits are not single numbers");
  if (n.has(1))
    low = n[1].number(0);
  if (n.has(2))
    high = n[2].number(0);
  return either(n, [&](auto x) -> decltype(x) {
    // Only a limit that is beaten is converted: infinity is no integer.
    if (x < low || x > high) {
      double limit = x < low ? low : high;
      if constexpr (std::is_same_v<decltype(x), int64_t>)
        return toInteger(limit);
      else
        return limit;
    }
    return x;
  });
}

Expected<Tensor> castTo(const Tensor &from, Type element) {
  Tensor result(element, from.shape());
  for (int64_t i = 0; i < from.count(); ++i) {
    if (result.isFloat()) {
      result.writeFloats()[i] = from.number(i);
    } else if (element.isInteger(1)) {
      result.writeInts()[i] = from.number(i) != 0;
    } else if (from.isFloat()) {
      result.writeInts()[i] = toInteger(from.floats()[i]);
    } else {
      int64_t value = from.ints()[i];
      unsigned width = element.getIntOrFloatBitWidth();
      if (width < 64)
        value = element.isUnsignedInteger()
                    ? static_cast<int64_t>(static_cast<uint64_t>(value) &
                                           ((uint64_t(1) << width) - 1))
                    : SignExtend64(static_cast<uint64_t>(value), width);
      result.writeInts()[i] = value;
    }
  }
  result.saturate();
  return result;
}

Evaluated cast(const NodeView &n) {
  Type element = typeOf(n.integer("to", 0), n.node.getContext());
  if (!element)
    return evaluationError("casts to element type " +
                           Twine(n.integer("to", 0)));
  if (element == n[0].element())
    return one(n[0]);
  Expected<Tensor> result = castTo(n[0], element);
  if (!result)
    return result.takeError();
  return one(*result);
}

Evaluated castLike(const NodeView &n) {
  Expected<Tensor> result = castTo(n[0], n[1].element());
  if (!result)
    return result.takeError();
  return one(*result);
}

} // namespace

void foresight::onnx::addElementwiseOperators(OperatorTable &t) {
  t["Not"] = {logicalNot, 1};
  t["Identity"] = {passOn, 1};
  t["Dropout"] = {dropout, 1};
  t["Clip"] = {clip, 1};
  t["Cast"] = {cast, 1};
  t["CastLike"] = {castLike, 2};
  t["Neg"] = {[](const NodeView &n) {
                return either(
                    n, [](auto x) { return product(x, decltype(x)(-1)); });
              },
              1};
  t["Abs"] = {[](const NodeView &n) {
                return either(n, [](auto x) {
                  return x < 0 ? product(x, decltype(x)(-1)) : x;
                });
              },
              1};
  t["Sign"] = {[](const NodeView &n) {
                 return either(n, [](auto x) { return (x > 0) - (x < 0); });
               },
               1};
  t["Sqrt"] = {real<std::sqrt>, 1};
  t["Exp"] = {real<std::exp>, 1};
  t["Log"] = {real<std::log>, 1};
  t["Erf"] = {real<std::erf>, 1};
  t["Tanh"] = {real<std::tanh>, 1};
  t["Floor"] = {real<std::floor>, 1};
  t["Ceil"] = {real<std::ceil>, 1};
  t["Round"] = {real<std::nearbyint>, 1};
  t["Sigmoid"] = {real<sigmoid>, 1};
  t["Reciprocal"] = {real<reciprocal>, 1};
  t["Relu"] = {real<relu>, 1};
  t["Gelu"] = {geluOf, 1};
  t["IsNaN"] = {test<isNan>, 1};
  t["IsInf"] = {test<isInf>, 1};
}
