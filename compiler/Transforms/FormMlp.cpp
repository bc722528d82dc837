//===- FormMlp.cpp - Two linear layers to an MLP --------------------------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"

#include "mlir/IR/PatternMatch.h"

namespace foresight {
#define GEN_PASS_DEF_FORMMLPPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

namespace {

/// The two products of an MLP and what is between them.
struct MlpMatch {
  LinearOp fc1;
  ActivationOp activate; // null where fc1 has the activation itself
  LinearOp fc2;
  Activation activation;
};

} // namespace

/// What ends in `fc2` as an MLP, if it is one whose hidden values nobody else
/// reads.
static std::optional<MlpMatch> matchMlp(LinearOp fc2) {
  if (fc2.getActivation() != Activation::None)
    return std::nullopt;
  Value hidden = fc2.getX();
  if (!hidden.hasOneUse())
    return std::nullopt;
  auto activate = hidden.getDefiningOp<ActivationOp>();
  auto fc1 = activate ? activate.getX().getDefiningOp<LinearOp>()
                      : hidden.getDefiningOp<LinearOp>();
  if (!fc1 || !fc1.getResult().hasOneUse())
    return std::nullopt;
  if (activate && fc1.getActivation() != Activation::None)
    return std::nullopt;
  Activation activation =
      activate ? activate.getActivation() : fc1.getActivation();
  if (activation == Activation::None)
    return std::nullopt;
  return MlpMatch{fc1, activate, fc2, activation};
}

/// The weight that is `weight` transposed; made beside it if there is none yet.
static WeightOp neuronMajor(WeightOp weight, SymbolTable &symbols) {
  std::string name = (weight.getSymName() + ".neuron_major").str();
  if (auto existing = symbols.lookup<WeightOp>(name))
    return existing;
  OpBuilder builder(weight->getContext());
  builder.setInsertionPointAfter(weight);
  auto type = cast<RankedTensorType>(weight.getType());
  auto transposed =
      type.clone(SmallVector<int64_t>{type.getDimSize(1), type.getDimSize(0)});
  auto source = DerivedAttr::get(builder.getContext(), DerivedKind::Transpose,
                                 {FlatSymbolRefAttr::get(weight)});
  auto result =
      WeightOp::create(builder, weight.getLoc(), builder.getStringAttr(name),
                       TypeAttr::get(transposed), source);
  symbols.insert(result);
  return result;
}

static void rewriteMlp(const MlpMatch &match, WeightOp fc2Weight,
                       IRRewriter &rewriter) {
  LinearOp fc1 = match.fc1, fc2 = match.fc2;
  rewriter.setInsertionPoint(fc2);
  Location loc = rewriter.getFusedLoc({fc1.getLoc(), fc2.getLoc()});
  auto fc2Get = GetWeightOp::create(rewriter, fc2.getWeight().getLoc(),
                                    fc2Weight.getType(),
                                    FlatSymbolRefAttr::get(fc2Weight));
  Operation *oldGet = fc2.getWeight().getDefiningOp();
  rewriter
      .replaceOpWithNewOp<MlpOp>(
          fc2, fc2.getType(), fc1.getX(), fc1.getWeight(), fc1.getBias(),
          fc2Get.getResult(), fc2.getBias(), match.activation)
      ->setLoc(loc);
  if (match.activate)
    rewriter.eraseOp(match.activate);
  rewriter.eraseOp(fc1);
  if (oldGet->use_empty())
    rewriter.eraseOp(oldGet);
}

namespace {

struct FormMlpPass : public foresight::impl::FormMlpPassBase<FormMlpPass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<LinearOp> linears;
    getOperation().walk([&](LinearOp op) { linears.push_back(op); });
    IRRewriter rewriter(&getContext());
    // From the last to the first: an op that is rewritten takes one before it
    // with it, which must not be visited any more.
    llvm::SmallPtrSet<Operation *, 8> gone;
    for (LinearOp fc2 : llvm::reverse(linears)) {
      if (gone.contains(fc2))
        continue;
      std::optional<MlpMatch> match = matchMlp(fc2);
      if (!match)
        continue;
      // Only the data of a named weight can be laid out anew.
      WeightOp weight = weightOf(fc2.getWeight(), symbols);
      if (!weight)
        continue;
      gone.insert(match->fc1);
      rewriteMlp(*match, neuronMajor(weight, symbols), rewriter);
    }
  }
};

} // namespace
