//===- Sparsify.cpp - MLPs of the neurons that may be active --------------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"
#include "foresight/support/Profile.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

namespace foresight {
#define GEN_PASS_DEF_SPARSIFYPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

using Rule = LayerProfile::Rule;

static Lookahead toAttribute(LayerProfile::Lookahead lookahead) {
  switch (lookahead) {
  case LayerProfile::Lookahead::Here:
    return Lookahead::Here;
  case LayerProfile::Lookahead::HalfBlock:
    return Lookahead::HalfBlock;
  case LayerProfile::Lookahead::Block:
    return Lookahead::Block;
  case LayerProfile::Lookahead::TwoBlocks:
    return Lookahead::TwoBlocks;
  }
  llvm_unreachable("every lookahead is covered");
}

namespace {

/// What is done to one layer, and why if that is not what was asked for.
struct Decision {
  LayerProfile choice;
  std::string reason;
};

class MlpRewriter {
public:
  MlpRewriter(SymbolTable &symbols, MLIRContext *context)
      : symbols(symbols), rewriter(context) {}

  /// Why `mlp` cannot follow `choice`; empty if it can.
  std::string refusal(MlpOp mlp, int64_t layer, const LayerProfile &choice);
  void rewrite(MlpOp mlp, int64_t layer, const LayerProfile &choice);

private:
  WeightOp lowBitCopy(WeightOp matrix, WeightOp bias, int64_t bits,
                      WeightOp gamma = {}, WeightOp beta = {});
  Value select(MlpOp mlp, Value x, WeightOp copy, Lookahead lookahead,
               double kappa);
  Value selectRows(MlpOp mlp, const LayerProfile &choice);
  Value selectByLowRank(MlpOp mlp, int64_t layer);

  SymbolTable &symbols;
  IRRewriter rewriter;
};

} // namespace

/// The weights of a low-rank predictor: "first.weight", "second.weight" or
/// "second.bias" of a layer.
static std::string predictorName(int64_t layer, StringRef part) {
  return llvm::formatv("layers.{0}.predictor.{1}", layer, part);
}

/// The row that the attention in front of `mlp` multiplies, or null.
static Value attentionInput(MlpOp mlp) {
  AttentionOp last;
  for (Operation &op : *mlp->getBlock()) {
    if (&op == mlp)
      break;
    if (auto attention = dyn_cast<AttentionOp>(op))
      last = attention;
  }
  auto query = last ? last.getQuery().getDefiningOp<LinearOp>() : LinearOp();
  return query ? query.getX() : Value();
}

std::string MlpRewriter::refusal(MlpOp mlp, int64_t layer,
                                 const LayerProfile &choice) {
  if (choice.rule == Rule::Dense)
    return {};
  if (mlp.getActivation() != Activation::Relu)
    return llvm::formatv("activation {0} is never exactly 0",
                         stringifyActivation(mlp.getActivation()));
  if (choice.rule == Rule::LowRank) {
    for (StringRef part : {"first.weight", "second.weight", "second.bias"})
      if (!symbols.lookup<WeightOp>(predictorName(layer, part)))
        return "there is no weight '" + predictorName(layer, part) + "'";
    if (!attentionInput(mlp))
      return "no attention in front of it has a row that a predictor reads";
    return {};
  }
  if (!choice.usesCopy())
    return {};
  if (!weightOf(mlp.getFc1(), symbols) ||
      (mlp.getBias1() && !weightOf(mlp.getBias1(), symbols)))
    return "fc1 is not a named weight that a copy can be made of";
  return {};
}

/// The low-bit copy of a matrix; one for all that share it.
WeightOp MlpRewriter::lowBitCopy(WeightOp matrix, WeightOp bias, int64_t bits,
                                 WeightOp gamma, WeightOp beta) {
  auto tensor = cast<RankedTensorType>(matrix.getType());
  auto type = LowBitType::get(rewriter.getContext(), tensor.getDimSize(0),
                              tensor.getDimSize(1), bits);
  return deriveWeight(matrix, matrix.getSymName() + ".low_bit", type,
                      derivedFrom(rewriter.getContext(), DerivedKind::LowBit,
                                  {matrix, bias, gamma, beta}),
                      symbols);
}

/// The rows whose bound by `copy`, read from `x`, is above zero.
Value MlpRewriter::select(MlpOp mlp, Value x, WeightOp weight,
                          Lookahead lookahead, double kappa) {
  Location loc = mlp.getLoc();
  auto type = cast<LowBitType>(weight.getType());
  Value copy = GetWeightOp::create(rewriter, weight.getLoc(), type,
                                   FlatSymbolRefAttr::get(weight));
  auto row = cast<RankedTensorType>(x.getType());
  auto scores =
      row.clone(SmallVector<int64_t>{row.getDimSize(0), type.getRows()});
  auto predict = PredictOp::create(rewriter, loc, scores,
                                   TokenType::get(rewriter.getContext()), x,
                                   ValueRange(copy), lookahead);
  auto set =
      IndexSetType::get(rewriter.getContext(), type.getRows(), type.getRows());
  return SelectCertifiedOp::create(rewriter, loc, set, predict.getScores(), x,
                                   copy, ValueRange(predict.getDone()),
                                   rewriter.getF64FloatAttr(kappa));
}

Value MlpRewriter::selectRows(MlpOp mlp, const LayerProfile &choice) {
  WeightOp copy = lowBitCopy(weightOf(mlp.getFc1(), symbols),
                             mlp.getBias1() ? weightOf(mlp.getBias1(), symbols)
                                            : WeightOp(),
                             choice.bits);
  int64_t hidden = cast<LowBitType>(copy.getType()).getColumns();
  return select(mlp, mlp.getX(), copy, toAttribute(choice.lookahead),
                choice.kappa(hidden));
}

/// `first` multiplies beside query, key and value, in their type; `second` is
/// rounded to 8 bits. At kappa 0 its bias is the threshold.
Value MlpRewriter::selectByLowRank(MlpOp mlp, int64_t layer) {
  constexpr int64_t kBits = 8;
  auto weight = [&](StringRef part) {
    return symbols.lookup<WeightOp>(predictorName(layer, part));
  };
  Value x = attentionInput(mlp);
  WeightOp first = weight("first.weight");
  auto matrix = cast<RankedTensorType>(first.getType());
  auto row = cast<RankedTensorType>(x.getType());
  Value get = GetWeightOp::create(rewriter, first.getLoc(), matrix,
                                  FlatSymbolRefAttr::get(first));
  Value reduced = LinearOp::create(
      rewriter, mlp.getLoc(),
      row.clone(SmallVector<int64_t>{row.getDimSize(0), matrix.getDimSize(0)}),
      x, get, /*bias=*/Value(), Activation::None);
  return select(mlp, reduced,
                lowBitCopy(weight("second.weight"), weight("second.bias"),
                           kBits, weight("second.gamma"),
                           weight("second.beta")),
                Lookahead::Here, /*kappa=*/0);
}

void MlpRewriter::rewrite(MlpOp mlp, int64_t layer,
                          const LayerProfile &choice) {
  rewriter.setInsertionPoint(mlp);
  Value rows = choice.rule == Rule::LowRank ? selectByLowRank(mlp, layer)
               : choice.usesCopy()          ? selectRows(mlp, choice)
                                            : Value();
  rewriter.replaceOpWithNewOp<SparseMlpOp>(
      mlp, mlp.getType(), mlp.getX(), mlp.getFc1(), mlp.getBias1(),
      mlp.getFc2(), mlp.getBias2(), rows, mlp.getActivation(),
      /*skip_zeros=*/true);
}

namespace {

struct SparsifyPass : public foresight::impl::SparsifyPassBase<SparsifyPass> {
  using SparsifyPassBase::SparsifyPassBase;
  explicit SparsifyPass(const Profile &profile) : given(profile) {
    rule = "dense";
  }

  /// What the options say of a layer that no profile lists.
  FailureOr<LayerProfile> choiceOfOptions() {
    LayerProfile choice;
    auto knownRule = llvm::StringSwitch<std::optional<Rule>>(rule)
                         .Case("proof", Rule::Proof)
                         .Case("margin", Rule::Margin)
                         .Case("skip", Rule::Skip)
                         .Case("dense", Rule::Dense)
                         .Default(std::nullopt);
    using Distance = LayerProfile::Lookahead;
    auto knownLookahead = llvm::StringSwitch<std::optional<Distance>>(lookahead)
                              .Case("here", Distance::Here)
                              .Case("half_block", Distance::HalfBlock)
                              .Case("block", Distance::Block)
                              .Case("two_blocks", Distance::TwoBlocks)
                              .Default(std::nullopt);
    if (!knownRule)
      return getOperation().emitError()
             << "rule must be proof, margin, skip or dense, found '" << rule
             << "'";
    if (!knownLookahead)
      return getOperation().emitError()
             << "lookahead must be here, half_block, block or two_blocks, "
                "found '"
             << lookahead << "'";
    choice.rule = *knownRule;
    if (choice.usesCopy()) {
      choice.bits = bits;
      choice.lookahead = *knownLookahead;
    }
    if (choice.rule == Rule::Margin)
      choice.margin = margin;
    return choice;
  }

  LogicalResult readProfile(ArrayRef<MlpOp> mlps) {
    if (!profile.empty()) {
      Result<Profile> read = Profile::readFile(profile);
      if (!read.ok())
        return getOperation().emitError() << read.error().message;
      given = std::move(*read);
    }
    if (!given || mlps.empty())
      return success();
    std::vector<int64_t> ffn;
    for (MlpOp mlp : mlps)
      ffn.push_back(
          cast<RankedTensorType>(mlp->getOperand(1).getType()).getDimSize(0));
    auto x = cast<RankedTensorType>(mlps.front()->getOperand(0).getType());
    Status fits = given->checkModel(profile.empty() ? std::string("the profile")
                                                    : profile.getValue(),
                                    x.getDimSize(1), ffn);
    if (!fits.ok())
      return getOperation().emitError() << fits.error().message;
    return success();
  }

  /// Rules that no run could keep are the user's to correct.
  LogicalResult check(MlpOp mlp, int64_t layer, const LayerProfile &choice) {
    auto error = [&] { return mlp.emitError() << "layer " << layer << ": "; };
    if (choice.usesCopy() && (choice.bits < 2 || choice.bits > 8))
      return error() << "a low-bit copy has 2 to 8 bits, found " << choice.bits;
    if (choice.rule == Rule::LowRank)
      return success();
    if (choice.rule == Rule::Margin && !(choice.margin >= 0))
      return error() << "a margin is not negative, found " << choice.margin;
    if (choice.rule != Rule::Margin &&
        choice.lookahead != LayerProfile::Lookahead::Here)
      return error() << "rule " << StringRef(ruleName(choice.rule))
                     << " proves what the MLP's own input gives and cannot "
                        "look ahead from "
                     << StringRef(lookaheadName(choice.lookahead))
                     << "; use rule margin or lookahead here";
    return success();
  }

  /// Leaves what was decided on the entry and tells whoever listens.
  Attribute report(MlpOp mlp, int64_t layer, const Decision &decision) {
    const LayerProfile &choice = decision.choice;
    StringRef rule = ruleName(choice.rule);
    Builder builder(&getContext());
    auto fc1 = cast<RankedTensorType>(mlp.getFc1().getType());
    NamedAttrList facts;
    facts.set("layer", builder.getI64IntegerAttr(layer));
    facts.set("rule", builder.getStringAttr(rule));
    facts.set("neurons", builder.getI64IntegerAttr(fc1.getDimSize(0)));
    if (choice.usesCopy()) {
      facts.set("bits", builder.getI64IntegerAttr(choice.bits));
      facts.set("kappa",
                builder.getF64FloatAttr(choice.kappa(fc1.getDimSize(1))));
      facts.set("lookahead", builder.getStringAttr(
                                 StringRef(lookaheadName(choice.lookahead))));
    }
    if (!decision.reason.empty())
      facts.set("reason", builder.getStringAttr(decision.reason));
    auto opts = remark::RemarkOpts::name("sparsify").category("sparsity");
    if (decision.reason.empty())
      remark::passed(mlp.getLoc(), opts)
          << remark::add("layer {0}: {1}", layer, rule);
    else
      remark::missed(mlp.getLoc(), opts)
          << remark::add("layer {0}: stays dense", layer)
          << remark::reason("{0}", decision.reason);
    return facts.getDictionary(&getContext());
  }

  void setModelFact(ArrayRef<Decision> decisions) {
    auto model = getOperation()->getAttrOfType<DictionaryAttr>(kModelAttr);
    if (!model)
      return;
    StringRef sparsity = "none";
    for (const Decision &decision : decisions) {
      if (decision.choice.rule == Rule::Margin ||
          decision.choice.rule == Rule::LowRank)
        sparsity = "predicted";
      else if (decision.choice.rule != Rule::Dense && sparsity == "none")
        sparsity = "exact";
    }
    NamedAttrList facts(model);
    facts.set("sparsity", StringAttr::get(&getContext(), sparsity));
    getOperation()->setAttr(kModelAttr, facts.getDictionary(&getContext()));
  }

  void runOnOperation() override {
    func::FuncOp decode = findEntry(getOperation(), "decode");
    if (!decode) {
      getOperation().emitError()
          << "has no function with foresight.entry = \"decode\"; run "
             "foresight-specialize-entries first";
      return signalPassFailure();
    }
    SmallVector<MlpOp> mlps;
    decode.walk([&](MlpOp op) { mlps.push_back(op); });
    FailureOr<LayerProfile> fallback = choiceOfOptions();
    if (failed(fallback) || failed(readProfile(mlps)))
      return signalPassFailure();

    SymbolTable symbols(getOperation());
    MlpRewriter rewriter(symbols, &getContext());
    SmallVector<Decision> decisions;
    SmallVector<Attribute> reports;
    for (auto [layer, mlp] : llvm::enumerate(mlps)) {
      const LayerProfile *listed = given ? given->find(layer) : nullptr;
      Decision decision{listed ? *listed : *fallback, {}};
      if (failed(check(mlp, layer, decision.choice)))
        return signalPassFailure();
      decision.reason =
          rewriter.refusal(mlp, static_cast<int64_t>(layer), decision.choice);
      if (!decision.reason.empty())
        decision.choice = LayerProfile();
      reports.push_back(report(mlp, layer, decision));
      if (decision.choice.rule != Rule::Dense)
        rewriter.rewrite(mlp, static_cast<int64_t>(layer), decision.choice);
      decisions.push_back(std::move(decision));
    }
    decode->setAttr(kSparsityAttr, ArrayAttr::get(&getContext(), reports));
    setModelFact(decisions);
  }

  std::optional<Profile> given;
};

} // namespace

std::unique_ptr<Pass> foresight::createSparsifyPass(const Profile &profile) {
  return std::make_unique<SparsifyPass>(profile);
}
