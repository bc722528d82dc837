//===- Utils.cpp - What several transforms need ---------------------------===//

#include "Utils.h"

using namespace mlir;
using namespace foresight;

SmallVector<func::FuncOp> foresight::entriesOf(ModuleOp module) {
  SmallVector<func::FuncOp> entries;
  for (auto func : module.getOps<func::FuncOp>())
    if (func->hasAttr(kEntryAttr) && !func.isExternal())
      entries.push_back(func);
  return entries;
}

func::FuncOp foresight::findEntry(ModuleOp module, StringRef name) {
  for (func::FuncOp func : entriesOf(module)) {
    auto entry = func->getAttrOfType<StringAttr>(kEntryAttr);
    if (entry && entry.getValue() == name)
      return func;
  }
  return nullptr;
}

bool foresight::leavesOutRows(ModuleOp module) {
  return module
      .walk([](ColumnLinearOp op) {
        return op.getSkipZeros() || op.getRows() ? WalkResult::interrupt()
                                                 : WalkResult::advance();
      })
      .wasInterrupted();
}

WeightOp foresight::weightOf(Value value, SymbolTable &symbols) {
  auto get = value.getDefiningOp<GetWeightOp>();
  return get ? symbols.lookup<WeightOp>(get.getWeight()) : WeightOp();
}

DerivedAttr foresight::derivedFrom(MLIRContext *context, DerivedKind kind,
                                   ArrayRef<WeightOp> sources) {
  SmallVector<FlatSymbolRefAttr> names;
  for (WeightOp source : sources)
    names.push_back(
        source ? FlatSymbolRefAttr::get(source)
               : FlatSymbolRefAttr::get(context, DerivedAttr::kMissing));
  return DerivedAttr::get(context, kind, names);
}

WeightOp foresight::deriveWeight(WeightOp origin, const Twine &name, Type type,
                                 DerivedAttr source, SymbolTable &symbols) {
  std::string symbol = name.str();
  if (auto existing = symbols.lookup<WeightOp>(symbol);
      existing && existing.getType() == type && existing.getSource() == source)
    return existing;
  OpBuilder builder(origin.getContext());
  builder.setInsertionPointAfter(origin);
  auto weight =
      WeightOp::create(builder, origin.getLoc(), builder.getStringAttr(symbol),
                       TypeAttr::get(type), source);
  symbols.insert(weight);
  return weight;
}

RankedTensorType foresight::withRows(RankedTensorType type, int64_t rows) {
  SmallVector<int64_t> shape(type.getShape());
  shape.front() = rows;
  return type.clone(shape);
}

RankedTensorType foresight::setWords(IndexSetType set) {
  return RankedTensorType::get(
      {ShapedType::kDynamic, (set.getUniverse() + 31) / 32},
      IntegerType::get(set.getContext(), 32));
}
