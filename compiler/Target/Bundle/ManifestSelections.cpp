//===- ManifestSelections.cpp - How each sparse MLP selects ---------------===//
//
// A sparse MLP is recognised in the scheduled entry @decode by what follows the
// selection: an fc2 that skips zero activations. The launch that computed these
// is its fc1 stage.
//
//===----------------------------------------------------------------------===//

#include "ManifestBuilder.h"

#include <cmath>

using namespace mlir;
using namespace foresight;

/// The op of this type in a kernel, if it is there.
template <typename Op> static Op find(KernelOp kernel) {
  for (Op op : kernel.getBody().getOps<Op>())
    return op;
  return {};
}

/// The launch whose result the kernel of `launch` reads as `inKernel`.
static LaunchOp producerOf(LaunchOp launch, Value inKernel) {
  auto arg = dyn_cast<BlockArgument>(inKernel);
  return arg ? launch.getInputs()[arg.getArgNumber()].getDefiningOp<LaunchOp>()
             : LaunchOp();
}

/// Index of the weight or buffer behind a kernel's argument, -1 for no value.
FailureOr<int64_t> ManifestBuilder::indexOf(LaunchOp launch, Value inKernel,
                                            bool weight) {
  if (!inKernel)
    return -1;
  auto arg = dyn_cast<BlockArgument>(inKernel);
  FailureOr<Argument> argument =
      arg ? this->argument(launch, launch.getInputs()[arg.getArgNumber()])
          : FailureOr<Argument>(failure());
  if (failed(argument) || argument->weight != weight)
    return launch.emitError()
           << "'" << launch.getName() << "' computes what must be its "
           << (weight ? "weight" : "input") << ": " << inKernel;
  return argument->index;
}

LogicalResult ManifestBuilder::addSelection(LaunchOp launch, LaunchOp dense,
                                            int64_t layer) {
  KernelOp kernel = kernelOf(launch);
  auto gather = find<GatherLinearOp>(kernel);
  auto linear = find<LinearOp>(kernel);
  if (!gather && !linear)
    return launch.emitError()
           << "'" << launch.getName()
           << "' feeds an fc2 that skips rows but has no fc1";
  Value x = gather ? gather.getX() : linear.getX();
  Value weight = gather ? gather.getWeight() : linear.getWeight();
  Value bias = gather ? gather.getBias() : linear.getBias();
  auto norm = x.getDefiningOp<LayerNormOp>();
  if (!norm)
    return launch.emitError() << "'" << launch.getName()
                              << "' does not normalise the input of its fc1";
  auto fc1 = cast<RankedTensorType>(weight.getType());

  OrderedJson json = OrderedJson::object();
  json["layer"] = layer;
  json["stage"] = stageIndex.lookup(launch);
  json["dense_stage"] = stageIndex.lookup(dense);
  json["activations"] = bufferIndex.lookup(
      cast<FlatSymbolRefAttr>(launch.getOuts().getValue().back()).getValue());
  json["epsilon"] = norm.getEpsilon().convertToDouble();
  json["neurons"] = fc1.getDimSize(0);
  json["hidden"] = fc1.getDimSize(1);

  // The stage itself selects, or one before it whose set it takes.
  LaunchOp selecting =
      gather ? producerOf(launch, gather.getRows()) : LaunchOp();
  if (!selecting)
    selecting = launch;
  auto select = find<SelectCertifiedOp>(kernelOf(selecting));
  auto predict = find<PredictOp>(kernelOf(selecting));
  struct Item {
    const char *key;
    Value value;
    bool weight;
  };
  for (Item item :
       {Item{"input", norm.getX(), false}, Item{"fc1", weight, true},
        Item{"bias1", bias, true}, Item{"gamma", norm.getGamma(), true},
        Item{"beta", norm.getBeta(), true},
        Item{"copy", select ? select.getCopy() : Value(), true}}) {
    bool isCopy = StringRef(item.key) == "copy";
    FailureOr<int64_t> index =
        indexOf(isCopy ? selecting : launch, item.value, item.weight);
    if (failed(index))
      return failure();
    json[item.key] = *index;
  }
  double kappa = select ? select.getKappa().convertToDouble() : 0;
  json["bits"] =
      select ? cast<LowBitType>(select.getCopy().getType()).getBits() : 0;
  json["kappa"] = kappa;
  // A copy of fc1 scores the normalised row itself.
  bool isLowRank = select && !select.getX().getDefiningOp<LayerNormOp>();
  json["rule"] = !select      ? "skip"
                 : isLowRank  ? "low_rank"
                 : kappa >= 1 ? "proof"
                              : "margin";
  json["lookahead"] =
      stringifyLookahead(predict ? predict.getLookahead() : Lookahead::Here)
          .str();
  json["selected"] = -1;
  for (auto &[name, entry] : entries.items())
    if (name == "decode")
      json["selected"] = entry["stages"][stageIndex.lookup(launch)]["counts"];
  selections.push_back(std::move(json));
  return success();
}

LogicalResult ManifestBuilder::addSelections(func::FuncOp decode,
                                             func::FuncOp dense) {
  llvm::StringMap<LaunchOp> denseStages;
  dense.walk([&](LaunchOp launch) { denseStages[launch.getName()] = launch; });
  for (auto fc2 : decode.getOps<LaunchOp>()) {
    auto product = find<ColumnLinearOp>(kernelOf(fc2));
    if (!product || !(product.getSkipZeros() || product.getRows()))
      continue;
    LaunchOp fc1 = producerOf(fc2, product.getX());
    if (!fc1)
      return fc2.emitError() << "'" << fc2.getName()
                             << "' skips rows by what no stage computed";
    auto twin = denseStages.find(fc1.getName());
    if (twin == denseStages.end())
      return fc1.emitError()
             << "'" << fc1.getName() << "' has no twin in @decode_dense";
    int64_t stage = stageIndex.lookup(fc1);
    int64_t layer = entries["decode"]["stages"][stage]["layer"];
    if (failed(addSelection(fc1, twin->second, layer)))
      return failure();
  }
  return success();
}
