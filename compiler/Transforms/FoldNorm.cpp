//===- FoldNorm.cpp - gamma and beta into low-bit copies ------------------===//
//
// The rows that are rounded are w * gamma. Their columns may differ much in
// size, and inputs are large where they are small: rounded with one step a row,
// small columns would lose as much as large ones, times larger inputs. So
// columns are divided by numbers that make them alike, which the LayerNorm that
// is left multiplies by.
//
//===----------------------------------------------------------------------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"

namespace foresight {
#define GEN_PASS_DEF_FOLDNORMPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

/// `copy` made from rows that have gamma and beta folded in: itself where only
/// `get` reads it.
static WeightOp foldInto(WeightOp copy, GetWeightOp get, WeightOp gamma,
                         WeightOp beta, WeightOp balance,
                         SymbolTable &symbols) {
  auto derived = cast<DerivedAttr>(copy.getSource());
  MLIRContext *context = copy.getContext();
  SmallVector<FlatSymbolRefAttr> sources(derived.getSources());
  if (gamma)
    sources[2] = FlatSymbolRefAttr::get(gamma);
  if (beta)
    sources[3] = FlatSymbolRefAttr::get(beta);
  if (balance)
    sources.push_back(FlatSymbolRefAttr::get(balance));
  auto source = DerivedAttr::get(context, DerivedKind::LowBit, sources);
  bool shared = llvm::any_of(
      *SymbolTable::getSymbolUses(copy, symbols.getOp()),
      [&](SymbolTable::SymbolUse use) { return use.getUser() != get; });
  if (!shared) {
    copy.setSourceAttr(source);
    return copy;
  }
  return deriveWeight(copy, copy.getSymName() + ".folded", copy.getType(),
                      source, symbols);
}

/// What the columns of `fc1` times `gamma` are divided by.
static WeightOp balanceOf(WeightOp fc1, WeightOp gamma, SymbolTable &symbols) {
  MLIRContext *context = fc1.getContext();
  auto type = RankedTensorType::get(
      {cast<RankedTensorType>(fc1.getType()).getDimSize(1)},
      Float32Type::get(context));
  return deriveWeight(fc1, fc1.getSymName() + ".balance", type,
                      derivedFrom(context, DerivedKind::Balance, {fc1, gamma}),
                      symbols);
}

namespace {

struct FoldNormPass : public foresight::impl::FoldNormPassBase<FoldNormPass> {
  /// Makes `predict`, and the selection from its scores, read the LayerNorm
  /// without gamma and beta, balanced unless the weights are synthetic.
  void fold(PredictOp predict, bool synthetic, SymbolTable &symbols) {
    auto norm = predict.getX().getDefiningOp<LayerNormOp>();
    if (!norm || (!norm.getGamma() && !norm.getBeta()) ||
        predict.getPredictor().size() != 1)
      return;
    WeightOp copy = weightOf(predict.getPredictor().front(), symbols);
    auto derived =
        copy ? dyn_cast<DerivedAttr>(copy.getSource()) : DerivedAttr();
    if (!derived || derived.getKind() != DerivedKind::LowBit ||
        !derived.isMissing(2) || !derived.isMissing(3))
      return;
    WeightOp gamma =
        norm.getGamma() ? weightOf(norm.getGamma(), symbols) : WeightOp();
    WeightOp beta =
        norm.getBeta() ? weightOf(norm.getBeta(), symbols) : WeightOp();
    // Only the data of a named weight can be folded when it is packed.
    if ((norm.getGamma() && !gamma) || (norm.getBeta() && !beta))
      return;

    auto oldGet = predict.getPredictor().front().getDefiningOp<GetWeightOp>();
    WeightOp balance;
    OpBuilder builder(predict);
    Value factors;
    if (!synthetic) {
      auto fc1 = symbols.lookup<WeightOp>(derived.getSources()[0].getValue());
      balance = balanceOf(fc1, gamma, symbols);
      factors = GetWeightOp::create(builder, norm.getLoc(), balance.getType(),
                                    FlatSymbolRefAttr::get(balance));
    }
    WeightOp folded = foldInto(copy, oldGet, gamma, beta, balance, symbols);
    Value plain =
        LayerNormOp::create(builder, norm.getLoc(), norm.getType(), norm.getX(),
                            factors, Value(), norm.getEpsilonAttr());
    Value foldedCopy =
        GetWeightOp::create(builder, copy.getLoc(), folded.getType(),
                            FlatSymbolRefAttr::get(folded));
    Value oldCopy = oldGet.getResult();
    Value affine = predict.getX();
    for (Operation *user : predict.getScores().getUsers())
      if (auto select = dyn_cast<SelectCertifiedOp>(user)) {
        if (select.getX() == affine)
          select.getXMutable().assign(plain);
        if (select.getCopy() == oldCopy)
          select.getCopyMutable().assign(foldedCopy);
      }
    predict.getXMutable().assign(plain);
    predict.getPredictorMutable().assign(ValueRange(foldedCopy));
    if (oldCopy.use_empty())
      oldGet.erase();
  }

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    // Columns that were made up are alike.
    auto facts = getOperation()->getAttrOfType<DictionaryAttr>(kModelAttr);
    auto fact = facts ? facts.getAs<BoolAttr>("synthetic") : BoolAttr();
    const bool synthetic = fact && fact.getValue();
    SmallVector<PredictOp> predicts;
    getOperation().walk([&](PredictOp op) { predicts.push_back(op); });
    for (PredictOp predict : predicts)
      fold(predict, synthetic, symbols);
  }
};

} // namespace
