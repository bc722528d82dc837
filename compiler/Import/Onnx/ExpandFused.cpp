//===- ExpandFused.cpp - Fused operators as standard ones -----------------===//
//
// ONNX Runtime's optimiser writes several nodes as one of its own. Taken apart
// again, what each computes is compared with OPT as in any other graph.
//
//===----------------------------------------------------------------------===//

#include "foresight/Import/Onnx/ExpandFused.h"

#include "foresight/Dialect/Foresight.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::onnx;

namespace {

class Expander {
public:
  explicit Expander(NodeOp node) : b(node), node(node) {}

  void run();

private:
  bool has(unsigned i) {
    return i < node.getInputs().size() &&
           !isa<NoneType>(node.getInputs()[i].getType());
  }
  Value input(unsigned i) { return node.getInputs()[i]; }
  Attribute param(StringRef name) {
    DictionaryAttr params = node.getParamsAttr();
    return params ? params.get(name) : Attribute();
  }
  NamedAttribute named(StringRef name, Attribute value) {
    return {b.getStringAttr(name), value};
  }

  /// Makes one of the nodes that this one was. Its name says which.
  ValueRange make(StringRef type, ArrayRef<Value> inputs,
                  ArrayRef<NamedAttribute> params = {}, unsigned outputs = 1,
                  StringAttr domain = {}) {
    StringRef name = nameOf(node.getLoc());
    Location loc =
        NameLoc::get(b.getStringAttr(name + "/" + type), node.getLoc());
    OperationState state(loc, NodeOp::getOperationName());
    NodeOp::build(
        b, state, SmallVector<Type>(outputs, ValueType::get(b.getContext())),
        b.getStringAttr(type), domain,
        params.empty() ? DictionaryAttr() : b.getDictionaryAttr(params),
        ArrayAttr(), inputs, 0);
    return cast<NodeOp>(b.create(state)).getOutputs();
  }
  Value add(Value x, Value y) { return make("Add", {x, y}).front(); }

  void replace(ValueRange results) {
    for (auto [output, result] : llvm::zip(node.getOutputs(), results))
      output.replaceAllUsesWith(result);
    node.erase();
  }

  void gelu(bool tanh, bool bias);
  void gemm();
  void skipLayerNorm();
  void multiHeadAttention();
  void attention();

  OpBuilder b;
  NodeOp node;
};

} // namespace

void Expander::gelu(bool tanh, bool bias) {
  Value x = input(0);
  if (bias && has(1))
    x = add(x, input(1));
  NamedAttribute approximate =
      named("approximate", b.getStringAttr(tanh ? "tanh" : "none"));
  replace({make("Gelu", {x}, {approximate}).front()});
}

/// `FusedGemm`: a product and an activation.
void Expander::gemm() {
  auto activation = dyn_cast_or_null<StringAttr>(param("activation"));
  if (!activation || activation != "Relu")
    return;
  SmallVector<NamedAttribute> params;
  for (StringRef name : {"alpha", "beta", "transA", "transB"})
    if (Attribute value = param(name))
      params.push_back(named(name, value));
  Value product =
      make("Gemm", SmallVector<Value>(node.getInputs()), params).front();
  replace({make("Relu", {product}).front()});
}

/// `SkipLayerNormalization`: a sum and its LayerNorm.
void Expander::skipLayerNorm() {
  if (!has(1) || !has(2))
    return;
  SmallVector<Value> addends = {input(0), input(1)};
  if (has(4))
    addends.push_back(input(4));
  Value sum = make(has(4) ? "Sum" : "Add", addends).front();
  SmallVector<Value> normed = {sum, input(2)};
  if (has(3))
    normed.push_back(input(3));
  Attribute epsilon = param("epsilon");
  if (!epsilon)
    epsilon = b.getF32FloatAttr(1e-12f);
  ValueRange norm =
      make("LayerNormalization", normed, {named("epsilon", epsilon)}, 3);
  replace({norm[0], norm[1], norm[2], sum});
}

/// `MultiHeadAttention` with a bias for query, key and value in one vector.
void Expander::multiHeadAttention() {
  if (!has(1) || !has(2) || !has(3))
    return;
  ValueRange biases = make("Split", {input(3)},
                           {named("num_outputs", b.getI64IntegerAttr(3)),
                            named("axis", b.getI64IntegerAttr(0))},
                           3);
  SmallVector<Value> inputs(node.getInputs());
  for (unsigned i = 0; i < 3; ++i)
    inputs[i] = add(inputs[i], biases[i]);
  inputs[3] = NoneOp::create(b, node.getLoc());
  SmallVector<NamedAttribute> params;
  if (node.getParamsAttr())
    params.assign(node.getParamsAttr().begin(), node.getParamsAttr().end());
  replace(SmallVector<Value>(make("MultiHeadAttention", inputs, params,
                                  node.getNumResults(), node.getDomainAttr())));
}

/// `Attention`: one product for query, key and value, and attention of them.
void Expander::attention() {
  // A cache of this operator is one tensor of keys and values.
  if (!has(1) || has(4) || has(6) || param("qkv_hidden_sizes"))
    return;
  Value joined = make("MatMul", {input(0), input(1)}).front();
  if (has(2))
    joined = add(joined, input(2));
  ValueRange parts = make("Split", {joined},
                          {named("num_outputs", b.getI64IntegerAttr(3)),
                           named("axis", b.getI64IntegerAttr(-1))},
                          3);
  Value none = NoneOp::create(b, node.getLoc());
  SmallVector<NamedAttribute> params;
  for (StringRef name : {"num_heads", "scale", "mask_filter_value",
                         "unidirectional", "do_rotary"})
    if (Attribute value = param(name))
      params.push_back(named(name, value));
  replace({make("MultiHeadAttention",
                {parts[0], parts[1], parts[2], none, has(3) ? input(3) : none,
                 has(5) ? input(5) : none},
                params, 1, node.getDomainAttr())
               .front()});
}

void Expander::run() {
  if (node.getInputs().empty() || node.getOutputs().empty())
    return;
  StringRef type = node.getOpType();
  size_t outputs = node.getNumResults();
  if (type == "Gelu" && outputs == 1)
    gelu(/*tanh=*/false, /*bias=*/false);
  else if (type == "BiasGelu" && outputs == 1)
    gelu(/*tanh=*/false, /*bias=*/true);
  else if (type == "FastGelu" && outputs == 1)
    gelu(/*tanh=*/true, /*bias=*/true);
  else if (type == "FusedGemm" && outputs == 1)
    gemm();
  else if (type == "SkipLayerNormalization" && outputs <= 4)
    skipLayerNorm();
  else if (type == "MultiHeadAttention")
    multiHeadAttention();
  else if (type == "Attention" && outputs == 1)
    attention();
}

void foresight::onnx::expandFused(GraphOp graph) {
  SmallVector<NodeOp> fused;
  graph.walk([&](NodeOp node) {
    if (node.getDomain() == "com.microsoft")
      fused.push_back(node);
  });
  for (NodeOp node : fused)
    Expander(node).run();
}
