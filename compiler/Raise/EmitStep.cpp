//===- EmitStep.cpp - Parts to foresight ops ------------------------------===//

#include "EmitStep.h"

#include "foresight/Import/Opt/ModelFacts.h"
#include "foresight/support/ElementType.h"
#include "foresight/support/Float.h"
#include "foresight/support/Json.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cstring>

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;

namespace {

class Emitter {
public:
  Emitter(ModuleOp module, const Program &program, const OptModel &model,
          int64_t maxSeq, Type matrixElement)
      : program(program), model(model), b(module.getContext()),
        symbols(module.getContext()), module(module), maxSeq(maxSeq),
        matrixElement(matrixElement) {}

  void run();
  int64_t parameterCount() const { return parameters; }

private:
  Value emit(int index, const Part &part);
  Value weight(const std::string &name, Matrix matrix, Slice rows = {});
  Value weight(const std::string &name, onnx::ConstantOp constant,
               Slice elements = {});
  void declare(const std::string &name, Matrix matrix);
  void declare(const std::string &name, onnx::ConstantOp constant);
  Value slice(const std::string &name, onnx::ConstantOp constant,
              bool transposed, RankedTensorType type, const Slice &rows,
              llvm::function_ref<void(const std::string &)> declareWhole);
  Value getWeight(Location loc, StringRef name, Type type) {
    return GetWeightOp::create(b, loc, type,
                               FlatSymbolRefAttr::get(b.getContext(), name));
  }
  Location locOf(onnx::ConstantOp constant) {
    return NameLoc::get(b.getStringAttr(constant.getName()));
  }
  Location locOf(const Part &part) {
    SmallVector<Location> names;
    for (Location loc : part.locations)
      names.push_back(NameLoc::get(b.getStringAttr(onnx::nameOf(loc))));
    return names.size() == 1 ? names.front()
                             : FusedLoc::get(b.getContext(), names);
  }

  const Program &program;
  const OptModel &model;
  OpBuilder b, symbols;
  ModuleOp module;
  int64_t maxSeq;
  Type matrixElement;
  int64_t parameters = 0;
  /// Symbols of tensors that several weights are slices of.
  llvm::DenseMap<std::pair<Operation *, unsigned>, std::string> joined;
  std::vector<Value> values;
  Value ids, positions;
  SmallVector<Value> caches;
  size_t nextLayer = 0;
};

} // namespace

/// Numbers that the IR holds, as `type` has them.
static DenseElementsAttr denseOf(DenseElementsAttr values,
                                 RankedTensorType type, bool transposed) {
  const auto count = static_cast<size_t>(type.getNumElements());
  std::vector<float> numbers(count);
  if (values.getElementType().isF32() && !values.isSplat()) {
    std::memcpy(numbers.data(), values.getRawData().data(),
                count * sizeof(float));
  } else {
    size_t i = 0;
    for (const APFloat &value : values.getValues<APFloat>())
      numbers[i++] = static_cast<float>(value.convertToDouble());
  }
  if (transposed) {
    int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
    std::vector<float> turned(count);
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r)
        turned[r * columns + c] = numbers[c * rows + r];
    numbers = std::move(turned);
  }
  Type to = type.getElementType();
  ElementType element = to.isF16()    ? ElementType::F16
                        : to.isBF16() ? ElementType::BF16
                                      : ElementType::F32;
  std::vector<char> bytes(count * static_cast<size_t>(elementBytes(element)));
  convertFromFloat(numbers.data(), element,
                   reinterpret_cast<std::byte *>(bytes.data()), count);
  return DenseElementsAttr::getFromRawBuffer(type, bytes);
}

/// Declares a weight that has all of a matrix.
void Emitter::declare(const std::string &name, Matrix matrix) {
  auto type =
      RankedTensorType::get({matrix.dim(0), matrix.dim(1)}, matrixElement);
  onnx::ConstantOp constant = matrix.constant;
  Attribute source = constant.getSource();
  if (auto external = dyn_cast<ExternalAttr>(source))
    source = ExternalAttr::get(b.getContext(), external.getFile(),
                               external.getOffset(), external.getBytes(),
                               external.getElement(), matrix.transposed);
  else if (auto dense = dyn_cast<DenseElementsAttr>(source))
    source = denseOf(dense, type, matrix.transposed);
  WeightOp::create(symbols, locOf(constant), b.getStringAttr(name),
                   TypeAttr::get(type), source);
  parameters += type.getNumElements();
}

/// Declares a weight that has all of a vector. Vectors are f32 in a bundle;
/// there is nothing to gain from fewer bits.
void Emitter::declare(const std::string &name, onnx::ConstantOp constant) {
  int64_t size = cast<RankedTensorType>(constant.getType()).getNumElements();
  auto type = RankedTensorType::get({size}, b.getF32Type());
  Attribute source = constant.getSource();
  if (auto dense = dyn_cast<DenseElementsAttr>(source))
    source = denseOf(dense, type, /*transposed=*/false);
  WeightOp::create(symbols, locOf(constant), b.getStringAttr(name),
                   TypeAttr::get(type), source);
  parameters += size;
}

/// The weight `name` of a type, as rows of one that `declareWhole` declares by
/// the name it is given. Several runs of rows are cut one by one and joined.
Value Emitter::slice(
    const std::string &name, onnx::ConstantOp constant, bool transposed,
    RankedTensorType type, const Slice &rows,
    llvm::function_ref<void(const std::string &)> declareWhole) {
  std::string &whole = joined[{constant, transposed}];
  if (whole.empty()) {
    whole = name + ".joined";
    declareWhole(whole);
  }
  auto refer = [&](const std::string &symbol) {
    return FlatSymbolRefAttr::get(b.getContext(), symbol);
  };
  auto define = [&](const std::string &symbol, Type of, DerivedAttr source) {
    WeightOp::create(symbols, locOf(constant), b.getStringAttr(symbol),
                     TypeAttr::get(of), source);
  };
  auto cut = [&](const std::string &symbol, RankedTensorType of,
                 int64_t first) {
    define(symbol, of,
           DerivedAttr::get(b.getContext(), DerivedKind::SliceRows,
                            refer(whole), first));
  };
  if (!rows.run) {
    cut(name, type, rows.first);
    return getWeight(locOf(constant), name, type);
  }
  SmallVector<int64_t> shape(type.getShape());
  shape[0] = rows.run;
  SmallVector<FlatSymbolRefAttr> heads;
  for (int64_t i = 0; i < rows.size / rows.run; ++i) {
    const std::string head = name + ".head" + std::to_string(i);
    cut(head, type.clone(shape), rows.first + i * rows.step);
    heads.push_back(refer(head));
  }
  define(name, type,
         DerivedAttr::get(b.getContext(), DerivedKind::ConcatRows, heads));
  return getWeight(locOf(constant), name, type);
}

Value Emitter::weight(const std::string &name, Matrix matrix, Slice rows) {
  auto type = RankedTensorType::get(
      {rows.size ? rows.size : matrix.dim(0), matrix.dim(1)}, matrixElement);
  if (rows.size)
    return slice(name, matrix.constant, matrix.transposed, type, rows,
                 [&](const std::string &whole) { declare(whole, matrix); });
  declare(name, matrix);
  return getWeight(locOf(matrix.constant), name, type);
}

Value Emitter::weight(const std::string &name, onnx::ConstantOp constant,
                      Slice elements) {
  int64_t size =
      elements.size
          ? elements.size
          : cast<RankedTensorType>(constant.getType()).getNumElements();
  auto type = RankedTensorType::get({size}, b.getF32Type());
  if (elements.size)
    return slice(name, constant, false, type, elements,
                 [&](const std::string &whole) { declare(whole, constant); });
  declare(name, constant);
  return getWeight(locOf(constant), name, type);
}

Value Emitter::emit(int index, const Part &part) {
  Location loc = locOf(part);
  Value x = part.operands.empty() ? Value() : values[part.operands[0]];
  int64_t rows = x ? cast<RankedTensorType>(x.getType()).getDimSize(0)
                   : ShapedType::kDynamic;
  auto type = RankedTensorType::get({rows, part.width}, b.getF32Type());
  switch (part.kind) {
  case Part::Kind::Embed: {
    Value table = weight(part.name + ".weight", part.matrix);
    bool byId = part.offset < 0;
    return GatherRowsOp::create(b, loc, type, table, byId ? ids : positions,
                                byId ? 0 : part.offset);
  }
  case Part::Kind::Linear: {
    bool tied = index == program.logits && model.tied;
    Value matrix =
        tied
            ? getWeight(locOf(part.matrix.constant), "embed_tokens.weight",
                        RankedTensorType::get(
                            {model.vocabSize,
                             cast<RankedTensorType>(x.getType()).getDimSize(1)},
                            matrixElement))
            : weight(part.name + ".weight", part.matrix, part.rows);
    Value bias =
        part.beta ? weight(part.name + ".bias", part.beta, part.bias) : Value();
    return LinearOp::create(b, loc, type, x, matrix, bias, Activation::None);
  }
  case Part::Kind::Norm: {
    Value gamma =
        part.gamma ? weight(part.name + ".weight", part.gamma) : Value();
    Value beta =
        part.beta ? weight(part.name + ".bias", part.beta, part.bias) : Value();
    return LayerNormOp::create(b, loc, type, x, gamma, beta,
                               b.getF64FloatAttr(part.number));
  }
  case Part::Kind::Activate:
    return ActivationOp::create(b, loc, type, x, part.activation);
  case Part::Kind::Add:
    return AddOp::create(b, loc, type, x, values[part.operands[1]]);
  case Part::Kind::Attention: {
    Value &cache = caches[nextLayer++];
    cache = KvAppendOp::create(b, loc, cache, values[part.operands[1]],
                               values[part.operands[2]], positions);
    return AttentionOp::create(b, loc, type, x, cache, positions, part.number);
  }
  case Part::Kind::Unknown:
    break;
  }
  llvm_unreachable("a program that was recognised has no unknown parts");
}

void Emitter::run() {
  Type idsType = RankedTensorType::get({ShapedType::kDynamic}, b.getI32Type());
  Type cacheType = KvCacheType::get(b.getContext(), model.heads,
                                    model.hiddenSize / model.heads, maxSeq,
                                    matrixElement, /*sequences=*/1);
  Type logitsType = RankedTensorType::get({1, model.vocabSize}, b.getF32Type());
  size_t layers = model.attentions.size();
  SmallVector<Type> arguments = {idsType, idsType}, results = {logitsType};
  arguments.append(layers, cacheType);
  results.append(layers, cacheType);

  b.setInsertionPointToEnd(module.getBody());
  auto step = func::FuncOp::create(b, module.getLoc(), "step",
                                   b.getFunctionType(arguments, results));
  step->setAttr("foresight.entry", b.getStringAttr("step"));
  symbols.setInsertionPoint(step);
  Block *body = step.addEntryBlock();
  b.setInsertionPointToStart(body);
  ids = body->getArgument(0);
  positions = body->getArgument(1);
  caches.assign(body->args_begin() + 2, body->args_end());

  // Only the last token's row needs the head: what the logits are computed
  // from, back to where rows last met other rows of the residual stream.
  int stream = program.logits;
  while (program.parts[stream].kind == Part::Kind::Linear ||
         (program.parts[stream].kind == Part::Kind::Norm &&
          program.parts[stream].name == "final_layer_norm"))
    stream = program.parts[stream].operands[0];

  // Operands first, in their own order: query, key, value, whatever order the
  // graph has them in.
  values.resize(program.parts.size());
  auto emitTree = [&](auto &self, int index) -> void {
    if (values[index])
      return;
    const Part &part = program.parts[index];
    for (int operand : part.operands)
      self(self, operand);
    values[index] = emit(index, part);
    if (index == stream)
      values[index] = LastRowOp::create(
          b, locOf(part),
          RankedTensorType::get({1, part.width}, b.getF32Type()),
          values[index]);
  };
  emitTree(emitTree, program.logits);
  SmallVector<Value> returned = {values[program.logits]};
  returned.append(caches);
  func::ReturnOp::create(b, module.getLoc(), returned);
}

/// What people call the model: its file, or its folder if the file's name is
/// the exporter's.
static std::string modelName(StringRef path) {
  StringRef stem = llvm::sys::path::stem(path);
  StringRef folder =
      llvm::sys::path::filename(llvm::sys::path::parent_path(path));
  bool generic = stem == "model" || stem.starts_with("decoder_");
  return (generic && !folder.empty() && folder != "." ? folder : stem).str();
}

/// The graph decides what the model is; a `config.json` beside it that says
/// something else belongs to another model, and so may the tokenizer.
static void warnOfOtherConfig(ModuleOp module, const OptModel &model,
                              StringRef source) {
  SmallString<256> path(llvm::sys::path::parent_path(source));
  llvm::sys::path::append(path, "config.json");
  if (!llvm::sys::fs::exists(path))
    return;
  Result<Json> config = readJsonFile(std::string(path));
  if (!config.ok() || !config->is_object())
    return; // said when token ids were read
  auto compare = [&](const char *key, int64_t found) {
    auto said = config->find(key);
    if (said == config->end() || !said->is_number_integer() ||
        said->get<int64_t>() == found)
      return;
    emitWarning(module.getLoc())
        << path << " says " << key << " is " << said->get<int64_t>()
        << ", but the graph has " << found << "; are both of the same model?";
  };
  compare("vocab_size", model.vocabSize);
  compare("hidden_size", model.hiddenSize);
  compare("num_hidden_layers", static_cast<int64_t>(model.attentions.size()));
  compare("num_attention_heads", model.heads);
}

LogicalResult raising::emitStep(ModuleOp module, const Program &program,
                                const OptModel &model,
                                const RaiseOptions &options) {
  int64_t maxSeq = options.maxSeq ? options.maxSeq : model.positions;
  if (maxSeq < 1 || maxSeq > model.positions)
    return emitError(module.getLoc())
           << "--max-seq " << maxSeq << ": the model has " << model.positions
           << " positions";
  Builder b(module.getContext());
  Type element =
      cast<RankedTensorType>(
          program.parts[program.logits].matrix.constant->getResult(0).getType())
          .getElementType();
  if (options.dtype)
    element = *options.dtype == ElementType::F16    ? Type(b.getF16Type())
              : *options.dtype == ElementType::BF16 ? Type(b.getBF16Type())
                                                    : Type(b.getF32Type());
  else if (element.isF64())
    element = b.getF32Type();

  ModelFacts facts;
  auto source = module->getAttrOfType<StringAttr>("onnx.source");
  facts.source = source ? source.str() : "";
  facts.name = modelName(facts.source);
  Result<TokenIds> tokens =
      readTokenIds(llvm::sys::path::parent_path(facts.source).str());
  if (!tokens.ok())
    return emitError(module.getLoc()) << tokens.error().message;

  warnOfOtherConfig(module, model, facts.source);

  Emitter emitter(module, program, model, maxSeq, element);
  emitter.run();

  facts.vocabSize = model.vocabSize;
  facts.hiddenSize = model.hiddenSize;
  facts.layers = static_cast<int64_t>(model.attentions.size());
  facts.heads = model.heads;
  facts.headDim = model.hiddenSize / model.heads;
  facts.ffnDim = model.ffnDim;
  facts.maxSeq = maxSeq;
  facts.dtype = element.isF16() ? "f16" : element.isBF16() ? "bf16" : "f32";
  facts.bosTokenId = tokens->bos;
  facts.eosTokenIds = tokens->eos;
  facts.padTokenId = tokens->pad;
  facts.parameters = emitter.parameterCount();
  setModelFacts(module, facts);
  return success();
}
