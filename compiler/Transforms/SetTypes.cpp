//===- SetTypes.cpp - Types of weights and KV caches ----------------------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"

#include "llvm/ADT/StringSwitch.h"

namespace foresight {
#define GEN_PASS_DEF_SETTYPESPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

/// bf16 keeps the range of a bf16 model; f16 keeps more digits of any other.
static Type automaticType(ModuleOp module) {
  for (auto weight : module.getOps<WeightOp>()) {
    auto external = dyn_cast<ExternalAttr>(weight.getSource());
    auto type = dyn_cast<RankedTensorType>(weight.getType());
    if (external && type && type.getRank() == 2 &&
        external.getElement().isBF16())
      return BFloat16Type::get(module.getContext());
  }
  return Float16Type::get(module.getContext());
}

/// Rounds the elements of a small constant.
static DenseElementsAttr convertElements(DenseElementsAttr elements,
                                         FloatType to) {
  return elements.mapValues(to, [&](const APFloat &value) {
    APFloat rounded = value;
    bool losesInfo;
    rounded.convert(to.getFloatSemantics(), APFloat::rmNearestTiesToEven,
                    &losesInfo);
    return rounded.bitcastToAPInt();
  });
}

/// Matrices get `element`, vectors f32; low-bit copies are what they are.
static void setWeightType(WeightOp weight, FloatType element) {
  auto type = dyn_cast<RankedTensorType>(weight.getType());
  if (!type)
    return;
  auto wanted = type.getRank() == 2
                    ? element
                    : FloatType(Float32Type::get(weight.getContext()));
  if (type.getElementType() == wanted)
    return;
  if (auto dense = dyn_cast<DenseElementsAttr>(weight.getSource()))
    weight.setSourceAttr(convertElements(dense, wanted));
  weight.setTypeAttr(TypeAttr::get(type.clone(wanted)));
}

namespace {

struct SetTypesPass : public foresight::impl::SetTypesPassBase<SetTypesPass> {
  using SetTypesPassBase::SetTypesPassBase;

  KvCacheType cacheType(KvCacheType type, Type element) {
    return KvCacheType::get(&getContext(), type.getHeads(), type.getHeadDim(),
                            maxSeq ? maxSeq : type.getCapacity(), element,
                            type.getSequences());
  }

  void retype(func::FuncOp func, SymbolTable &symbols, Type element) {
    auto cache = [&](Value value) {
      if (auto type = dyn_cast<KvCacheType>(value.getType()))
        value.setType(cacheType(type, element));
    };
    for (Value arg : func.getArguments())
      cache(arg);
    func.walk([&](Operation *op) {
      if (auto get = dyn_cast<GetWeightOp>(op))
        if (auto weight = symbols.lookup<WeightOp>(get.getWeight()))
          get.getResult().setType(weight.getType());
      for (Value result : op->getResults())
        cache(result);
    });
    func.setType(FunctionType::get(
        &getContext(), func.getBody().front().getArgumentTypes(),
        func.getBody().front().getTerminator()->getOperandTypes()));
  }

  /// The facts that follow from the options.
  LogicalResult updateModel(StringRef element) {
    auto model = getOperation()->getAttrOfType<DictionaryAttr>(kModelAttr);
    if (!model)
      return success();
    auto positions = model.getAs<IntegerAttr>("max_seq");
    if (maxSeq && positions && maxSeq > positions.getInt())
      return getOperation().emitError()
             << "max-seq is " << maxSeq.getValue()
             << ", but the model has only " << positions.getInt()
             << " positions: use at most that many";
    NamedAttrList facts(model);
    Builder builder(&getContext());
    facts.set("dtype", builder.getStringAttr(element));
    if (maxSeq)
      facts.set("max_seq", builder.getI64IntegerAttr(maxSeq));
    getOperation()->setAttr(kModelAttr, facts.getDictionary(&getContext()));
    return success();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Builder builder(&getContext());
    Type element = llvm::StringSwitch<Type>(dtype)
                       .Case("auto", automaticType(module))
                       .Case("f32", builder.getF32Type())
                       .Case("f16", builder.getF16Type())
                       .Case("bf16", builder.getBF16Type())
                       .Default(Type());
    if (!element) {
      module.emitError() << "dtype must be auto, f32, f16 or bf16, found '"
                         << dtype << "'";
      return signalPassFailure();
    }
    if (maxSeq < 0) {
      module.emitError() << "max-seq must not be negative, found "
                         << maxSeq.getValue();
      return signalPassFailure();
    }
    std::string name;
    llvm::raw_string_ostream(name) << element;
    if (failed(updateModel(name)))
      return signalPassFailure();
    for (auto weight : module.getOps<WeightOp>())
      setWeightType(weight, cast<FloatType>(element));
    SymbolTable symbols(module);
    for (func::FuncOp entry : entriesOf(module))
      retype(entry, symbols, element);
  }
};

} // namespace
