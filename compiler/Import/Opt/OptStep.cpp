//===- OptStep.cpp - The decoding step of an OPT model --------------------===//

#include "foresight/Import/Opt/OptStep.h"

#include "foresight/Dialect/Foresight.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

#include <cmath>

using namespace mlir;
using namespace foresight;

/// Learned positions of OPT start at this row of their table.
static constexpr int64_t kPositionOffset = 2;

static Type elementType(MLIRContext &context, ElementType type) {
  Builder b(&context);
  switch (type) {
  case ElementType::F64:
    return b.getF64Type();
  case ElementType::F16:
    return b.getF16Type();
  case ElementType::BF16:
    return b.getBF16Type();
  default:
    return b.getF32Type();
  }
}

ExternalAttr foresight::externalSource(MLIRContext &context,
                                       const TensorInfo &tensor) {
  return ExternalAttr::get(
      &context, tensor.file->path(), static_cast<int64_t>(tensor.offset),
      static_cast<int64_t>(tensor.bytes), elementType(context, tensor.type),
      /*transposed=*/false);
}

namespace {

/// Adds ops to `@step`, and the symbol of each weight when it is first used.
class StepBuilder {
public:
  StepBuilder(ModuleOp module, const OptConfig &config, ElementType dtype,
              const WeightProvider &provider)
      : config(config), provider(provider), b(module.getContext()),
        symbols(OpBuilder::atBlockBegin(module.getBody())) {
    matrixElement = elementType(*module.getContext(), dtype);
  }

  Result<func::FuncOp> build(ModuleOp module, int64_t maxSeq);
  int64_t parameterCount() const { return parameters; }

private:
  Location at(const Twine &name) {
    return NameLoc::get(b.getStringAttr(name.str()));
  }
  RankedTensorType rowsOf(Value x, int64_t columns) {
    return RankedTensorType::get(
        {cast<RankedTensorType>(x.getType()).getDimSize(0), columns},
        b.getF32Type());
  }

  /// The value of a weight; null if the model may lack it and does.
  Result<Value> find(const std::string &name, ArrayRef<int64_t> shape);
  Result<Value> get(const std::string &name, ArrayRef<int64_t> shape);
  /// Null if the model has no biases.
  Result<Value> bias(const std::string &module, int64_t size);

  Result<Value> embed(Value ids, Value positions);
  Result<Value> norm(const std::string &module, Value x);
  Result<Value> linear(const std::string &module, Value x, int64_t out,
                       bool hasBias = true);
  Result<Value> attention(int64_t layer, Value x, Value positions,
                          Value &cache);
  Result<Value> mlp(int64_t layer, Value x);
  Result<Value> block(int64_t layer, Value h, Value positions, Value &cache);
  Result<Value> head(Value h);

  const OptConfig &config;
  const WeightProvider &provider;
  OpBuilder b, symbols;
  Type matrixElement;
  int64_t parameters = 0;
};

} // namespace

Result<Value> StepBuilder::find(const std::string &name,
                                ArrayRef<int64_t> shape) {
  FORESIGHT_TRY(std::optional<WeightSource> weight, provider(name, shape));
  if (!weight)
    return Value();
  // Vectors are f32 in a bundle; there is nothing to gain from fewer bits.
  auto type = RankedTensorType::get(shape, shape.size() == 1 ? b.getF32Type()
                                                             : matrixElement);
  auto loc = NameLoc::get(b.getStringAttr(weight->name));
  WeightOp::create(symbols, loc, b.getStringAttr(name), TypeAttr::get(type),
                   weight->source);
  parameters += type.getNumElements();
  return Value(GetWeightOp::create(
      b, loc, type, FlatSymbolRefAttr::get(b.getContext(), name)));
}

Result<Value> StepBuilder::get(const std::string &name,
                               ArrayRef<int64_t> shape) {
  FORESIGHT_TRY(Value value, find(name, shape));
  if (!value)
    return makeError(ErrorCode::Internal, "no source for the weight ", name);
  return value;
}

Result<Value> StepBuilder::bias(const std::string &module, int64_t size) {
  if (!config.biases)
    return Value();
  return get(module + ".bias", {size});
}

Result<Value> StepBuilder::embed(Value ids, Value positions) {
  FORESIGHT_TRY(Value table, get("embed_tokens.weight",
                                 {config.vocabSize, config.embedSize}));
  Value h = GatherRowsOp::create(b, at("embed_tokens"),
                                 rowsOf(ids, config.embedSize), table, ids,
                                 /*offset=*/0);
  if (config.embedSize != config.hiddenSize) {
    FORESIGHT_TRY(h, linear("project_in", h, config.hiddenSize,
                            /*hasBias=*/false));
  }
  FORESIGHT_TRY(Value places, get("embed_positions.weight",
                                  {config.maxPositions + kPositionOffset,
                                   config.hiddenSize}));
  Value place = GatherRowsOp::create(b, at("embed_positions"), h.getType(),
                                     places, positions, kPositionOffset);
  return Value(AddOp::create(b, at("embed"), h.getType(), h, place));
}

Result<Value> StepBuilder::norm(const std::string &module, Value x) {
  Value gamma, beta;
  if (config.normAffine) {
    FORESIGHT_TRY(gamma, get(module + ".weight", {config.hiddenSize}));
    // transformers leaves the bias of LayerNorm in, whatever enable_bias says.
    FORESIGHT_TRY(beta, get(module + ".bias", {config.hiddenSize}));
  }
  return Value(LayerNormOp::create(b, at(module), x.getType(), x, gamma, beta,
                                   b.getF64FloatAttr(config.epsilon)));
}

Result<Value> StepBuilder::linear(const std::string &module, Value x,
                                  int64_t out, bool hasBias) {
  const int64_t in = cast<RankedTensorType>(x.getType()).getDimSize(1);
  FORESIGHT_TRY(Value weight, get(module + ".weight", {out, in}));
  Value added;
  if (hasBias) {
    FORESIGHT_TRY(added, bias(module, out));
  }
  return Value(LinearOp::create(b, at(module), rowsOf(x, out), x, weight, added,
                                Activation::None));
}

Result<Value> StepBuilder::attention(int64_t layer, Value x, Value positions,
                                     Value &cache) {
  const std::string module = "layers." + std::to_string(layer) + ".self_attn";
  const int64_t size = config.hiddenSize;
  FORESIGHT_TRY(Value query, linear(module + ".q_proj", x, size));
  FORESIGHT_TRY(Value key, linear(module + ".k_proj", x, size));
  FORESIGHT_TRY(Value value, linear(module + ".v_proj", x, size));
  cache = KvAppendOp::create(b, at(module), cache, key, value, positions);
  const double scale = 1 / std::sqrt(static_cast<double>(config.headDim()));
  Value mixed = AttentionOp::create(b, at(module), query.getType(), query,
                                    cache, positions, scale);
  return linear(module + ".out_proj", mixed, size);
}

Result<Value> StepBuilder::mlp(int64_t layer, Value x) {
  const std::string module = "layers." + std::to_string(layer);
  FORESIGHT_TRY(Value inner, linear(module + ".fc1", x, config.ffnDim[layer]));
  std::optional<Activation> activation = symbolizeActivation(config.activation);
  if (!activation)
    return makeError(ErrorCode::Internal, "no activation ", config.activation);
  inner = ActivationOp::create(b, at(module + ".activation"), inner.getType(),
                               inner, *activation);
  return linear(module + ".fc2", inner, config.hiddenSize);
}

Result<Value> StepBuilder::block(int64_t layer, Value h, Value positions,
                                 Value &cache) {
  const std::string module = "layers." + std::to_string(layer);
  const std::string norms[] = {module + ".self_attn_layer_norm",
                               module + ".final_layer_norm"};
  for (int half = 0; half < 2; ++half) {
    Value x = h;
    if (config.normBefore) {
      FORESIGHT_TRY(x, norm(norms[half], h));
    }
    FORESIGHT_TRY(Value change, half == 0
                                    ? attention(layer, x, positions, cache)
                                    : mlp(layer, x));
    h = AddOp::create(b, at(module + (half == 0 ? ".attention" : ".mlp")),
                      h.getType(), h, change);
    if (!config.normBefore) {
      FORESIGHT_TRY(h, norm(norms[half], h));
    }
  }
  return h;
}

Result<Value> StepBuilder::head(Value h) {
  auto row = RankedTensorType::get({1, config.hiddenSize}, b.getF32Type());
  h = LastRowOp::create(b, at("last_row"), row, h);
  if (config.finalNorm) {
    FORESIGHT_TRY(h, norm("final_layer_norm", h));
  }
  if (config.embedSize != config.hiddenSize) {
    FORESIGHT_TRY(h, linear("project_out", h, config.embedSize,
                            /*hasBias=*/false));
  }
  const int64_t shape[] = {config.vocabSize, config.embedSize};
  FORESIGHT_TRY(Value weight, find("lm_head.weight", shape));
  if (!weight) // tied
    weight = GetWeightOp::create(
        b, at("lm_head"), RankedTensorType::get(shape, matrixElement),
        FlatSymbolRefAttr::get(b.getContext(), "embed_tokens.weight"));
  return Value(LinearOp::create(b, at("lm_head"), rowsOf(h, config.vocabSize),
                                h, weight, /*bias=*/Value(), Activation::None));
}

Result<func::FuncOp> StepBuilder::build(ModuleOp module, int64_t maxSeq) {
  Type ids = RankedTensorType::get({ShapedType::kDynamic}, b.getI32Type());
  Type cacheType =
      KvCacheType::get(b.getContext(), config.heads, config.headDim(), maxSeq,
                       matrixElement, /*sequences=*/1);
  Type logits = RankedTensorType::get({1, config.vocabSize}, b.getF32Type());
  SmallVector<Type> inputs = {ids, ids}, results = {logits};
  inputs.append(config.layers, cacheType);
  results.append(config.layers, cacheType);

  b.setInsertionPointToEnd(module.getBody());
  auto step = func::FuncOp::create(b, module.getLoc(), "step",
                                   b.getFunctionType(inputs, results));
  step->setAttr("foresight.entry", b.getStringAttr("step"));
  symbols.setInsertionPoint(step);
  b.setInsertionPointToStart(step.addEntryBlock());

  Value positions = step.getArgument(1);
  FORESIGHT_TRY(Value h, embed(step.getArgument(0), positions));
  SmallVector<Value> returned = {Value()};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    Value cache = step.getArgument(2 + layer);
    FORESIGHT_TRY(h, block(layer, h, positions, cache));
    returned.push_back(cache);
  }
  FORESIGHT_TRY(returned[0], head(h));
  func::ReturnOp::create(b, module.getLoc(), returned);
  return step;
}

Result<OwningOpRef<ModuleOp>>
foresight::buildOptStep(MLIRContext &context, const OptConfig &config,
                        const ImportOptions &options,
                        const WeightProvider &weights, ModelFacts facts) {
  context.loadDialect<ForesightDialect, func::FuncDialect>();
  if (!options.dtype)
    return makeError(ErrorCode::Internal, "no element type was chosen");
  const int64_t maxSeq = options.maxSeq ? options.maxSeq : config.maxPositions;
  if (maxSeq < 1 || maxSeq > config.maxPositions)
    return makeError(ErrorCode::Usage, "--max-seq ", maxSeq, ": ", facts.source,
                     " has ", config.maxPositions, " positions");

  OwningOpRef<ModuleOp> module =
      ModuleOp::create(FileLineColLoc::get(&context, facts.source, 0, 0));
  StepBuilder builder(*module, config, *options.dtype, weights);
  FORESIGHT_CHECK(builder.build(*module, maxSeq));

  facts.vocabSize = config.vocabSize;
  facts.hiddenSize = config.hiddenSize;
  facts.layers = config.layers;
  facts.heads = config.heads;
  facts.headDim = config.headDim();
  facts.ffnDim = config.ffnDim;
  facts.maxSeq = maxSeq;
  facts.dtype = elementName(*options.dtype);
  facts.bosTokenId = config.tokens.bos;
  facts.eosTokenIds = config.tokens.eos;
  facts.padTokenId = config.tokens.pad;
  facts.parameters = builder.parameterCount();
  setModelFacts(*module, facts);
  if (failed(verify(*module)))
    return makeError(ErrorCode::Internal, facts.source,
                     ": the imported module is not valid");
  return module;
}
