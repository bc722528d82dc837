//===- EvaluateBroadcast.cpp - Elements of several tensors ----------------===//

#include "EvaluateNode.h"

#include <cmath>

using namespace llvm;
using namespace mlir;
using namespace foresight::onnx;

namespace {

/// Applies `onFloats` or `onInts` with broadcasting. `Result` is the element
/// of what they return.
template <typename OnFloats, typename OnInts>
Expected<Tensor> binary(const Tensor &a, const Tensor &b, OnFloats onFloats,
                        OnInts onInts, bool toBool = false) {
  if (a.isFloat() != b.isFloat())
    return evaluationError("operands of different kinds");
  Expected<Shape> shape = broadcast(a.shape(), b.shape());
  if (!shape)
    return shape.takeError();
  if (Error large = checkSize(*shape))
    return std::move(large);
  Type element =
      toBool ? IntegerType::get(a.element().getContext(), 1) : a.element();
  Tensor result(element, *shape);
  int64_t count = result.count();
  bool same = a.shape() == b.shape();
  std::vector<int64_t> ia, ib;
  if (!same) {
    ia = broadcastIndices(a.shape(), *shape);
    ib = broadcastIndices(b.shape(), *shape);
  }
  auto fill = [&](auto &out, const auto &x, const auto &y, auto f) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = same ? f(x[i], y[i]) : f(x[ia[i]], y[ib[i]]);
  };
  if (a.isFloat()) {
    if (toBool)
      fill(result.writeInts(), a.floats(), b.floats(), onFloats);
    else
      fill(result.writeFloats(), a.floats(), b.floats(), onFloats);
  } else if constexpr (!std::is_same_v<OnInts, std::nullptr_t>) {
    fill(result.writeInts(), a.ints(), b.ints(), onInts);
  } else {
    return evaluationError("integers are not supported");
  }
  result.saturate();
  return result;
}

/// Sums and products; integers wrap around.
template <typename F> Evaluated arithmetic(const NodeView &n, F f) {
  Expected<Tensor> result = binary(
      n[0], n[1], [&](double x, double y) -> double { return f(x, y); },
      [&](uint64_t x, uint64_t y) -> int64_t {
        return static_cast<int64_t>(f(x, y));
      });
  if (!result)
    return result.takeError();
  return one(*result);
}

template <typename F> Evaluated compare(const NodeView &n, F f) {
  Expected<Tensor> result = binary(
      n[0], n[1], [&](double x, double y) -> int64_t { return f(x, y); },
      [&](int64_t x, int64_t y) -> int64_t { return f(x, y); }, true);
  if (!result)
    return result.takeError();
  return one(*result);
}

template <typename F> Evaluated logical(const NodeView &n, F f) {
  if (n[0].isFloat())
    return evaluationError("floats have no logic");
  return compare(n, [&](auto x, auto y) { return f(x != 0, y != 0); });
}

Evaluated divide(const NodeView &n) {
  if (!n[1].isFloat())
    for (int64_t value : n[1].ints())
      if (value == 0)
        return evaluationError("an integer is divided by zero");
  Expected<Tensor> result = binary(
      n[0], n[1], [](double x, double y) { return x / y; },
      [](int64_t x, int64_t y) { return y == -1 ? product(x, y) : x / y; });
  if (!result)
    return result.takeError();
  return one(*result);
}

Evaluated modulo(const NodeView &n) {
  bool likeC = n.integer("fmod", 0) != 0;
  if (!n[1].isFloat())
    for (int64_t value : n[1].ints())
      if (value == 0)
        return evaluationError("an integer is divided by zero");
  Expected<Tensor> result = binary(
      n[0], n[1], [](double x, double y) { return std::fmod(x, y); },
      [&](int64_t x, int64_t y) {
        int64_t rest = y == -1 ? 0 : x % y;
        return !likeC && rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
      });
  if (!result)
    return result.takeError();
  return one(*result);
}

Evaluated power(const NodeView &n) {
  // The exponent may be of another type; the result has the base's.
  Tensor base(Float64Type::get(n.node.getContext()), n[0].shape());
  Tensor exponent(base.element(), n[1].shape());
  for (int64_t i = 0; i < n[0].count(); ++i)
    base.writeFloats()[i] = n[0].number(i);
  for (int64_t i = 0; i < n[1].count(); ++i)
    exponent.writeFloats()[i] = n[1].number(i);
  Expected<Tensor> result = binary(
      base, exponent, [](double x, double y) { return std::pow(x, y); },
      nullptr);
  if (!result)
    return result.takeError();
  Tensor typed(n[0].element(), result->shape());
  for (int64_t i = 0; i < typed.count(); ++i)
    if (typed.isFloat())
      typed.writeFloats()[i] = result->floats()[i];
    else
      typed.writeInts()[i] = toInteger(result->floats()[i]);
  typed.saturate();
  return one(typed);
}

/// Max, Min, Sum: any number of operands. A NaN stays one.
template <typename F> Evaluated fold(const NodeView &n, F f) {
  Tensor result = n[0];
  for (size_t i = 1; i < n.size(); ++i) {
    if (!n.has(i))
      return evaluationError("input " + Twine(i) + " is missing");
    Expected<Tensor> next = binary(
        result, n[i],
        [&](double x, double y) {
          return std::isnan(x) ? x : std::isnan(y) ? y : f(x, y);
        },
        [&](int64_t x, int64_t y) { return f(x, y); });
    if (!next)
      return next.takeError();
    result = *next;
  }
  return one(result);
}

Evaluated where(const NodeView &n) {
  const Tensor &condition = n[0], &x = n[1], &y = n[2];
  if (condition.isFloat() || x.isFloat() != y.isFloat())
    return evaluationError("operands of different kinds");
  Expected<Shape> shape = broadcast(x.shape(), y.shape());
  if (!shape)
    return shape.takeError();
  shape = broadcast(*shape, condition.shape());
  if (!shape)
    return shape.takeError();
  if (Error large = checkSize(*shape))
    return std::move(large);
  std::vector<int64_t> ic = broadcastIndices(condition.shape(), *shape);
  std::vector<int64_t> ix = broadcastIndices(x.shape(), *shape);
  std::vector<int64_t> iy = broadcastIndices(y.shape(), *shape);
  Tensor result(x.element(), *shape);
  for (int64_t i = 0; i < result.count(); ++i)
    if (x.isFloat())
      result.writeFloats()[i] =
          condition.ints()[ic[i]] ? x.floats()[ix[i]] : y.floats()[iy[i]];
    else
      result.writeInts()[i] =
          condition.ints()[ic[i]] ? x.ints()[ix[i]] : y.ints()[iy[i]];
  return one(result);
}

} // namespace

void foresight::onnx::addBroadcastOperators(OperatorTable &t) {
  t["Add"] = {[](const NodeView &n) {
                return arithmetic(n, [](auto x, auto y) { return x + y; });
              },
              2};
  t["Sub"] = {[](const NodeView &n) {
                return arithmetic(n, [](auto x, auto y) { return x - y; });
              },
              2};
  t["Mul"] = {[](const NodeView &n) {
                return arithmetic(n, [](auto x, auto y) { return x * y; });
              },
              2};
  t["Div"] = {divide, 2};
  t["Mod"] = {modulo, 2};
  t["Pow"] = {power, 2};
  t["Max"] = {[](const NodeView &n) {
                return fold(n, [](auto x, auto y) { return x < y ? y : x; });
              },
              1};
  t["Min"] = {[](const NodeView &n) {
                return fold(n, [](auto x, auto y) { return y < x ? y : x; });
              },
              1};
  t["Sum"] = {[](const NodeView &n) {
                return fold(n, [](auto x, auto y) { return plus(x, y); });
              },
              1};
  t["Equal"] = {[](const NodeView &n) {
                  return compare(n, [](auto x, auto y) { return x == y; });
                },
                2};
  t["Less"] = {[](const NodeView &n) {
                 return compare(n, [](auto x, auto y) { return x < y; });
               },
               2};
  t["LessOrEqual"] = {[](const NodeView &n) {
                        return compare(n,
                                       [](auto x, auto y) { return x <= y; });
                      },
                      2};
  t["Greater"] = {[](const NodeView &n) {
                    return compare(n, [](auto x, auto y) { return x > y; });
                  },
                  2};
  t["GreaterOrEqual"] = {[](const NodeView &n) {
                           return compare(
                               n, [](auto x, auto y) { return x >= y; });
                         },
                         2};
  t["And"] = {[](const NodeView &n) {
                return logical(n, [](bool x, bool y) { return x && y; });
              },
              2};
  t["Or"] = {[](const NodeView &n) {
               return logical(n, [](bool x, bool y) { return x || y; });
             },
             2};
  t["Xor"] = {[](const NodeView &n) {
                return logical(n, [](bool x, bool y) { return x != y; });
              },
              2};
  t["Where"] = {where, 3};
}
