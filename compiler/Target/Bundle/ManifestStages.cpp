//===- ManifestStages.cpp - Entries and their stages ----------------------===//

#include "ManifestBuilder.h"

#include "foresight/abi/Kernel.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace foresight;

namespace {

int64_t padRow(int64_t elements) {
  return llvm::alignTo(elements, FORESIGHT_ROW_PAD);
}

/// Names of the source graph's nodes in a location.
void collectNodes(Location location, llvm::SetVector<StringRef> &nodes) {
  llvm::TypeSwitch<LocationAttr>(location)
      .Case([&](NameLoc named) {
        nodes.insert(named.getName().getValue());
        collectNodes(named.getChildLoc(), nodes);
      })
      .Case([&](FusedLoc fused) {
        for (Location part : fused.getLocations())
          collectNodes(part, nodes);
      })
      .Case([&](CallSiteLoc call) { collectNodes(call.getCallee(), nodes); })
      .Default([](LocationAttr) {});
}

OrderedJson toJson(Argument argument) {
  return {{argument.weight ? "weight" : "buffer", argument.index}};
}

} // namespace

FailureOr<Argument> ManifestBuilder::argument(LaunchOp launch, Value value) {
  if (auto weight = value.getDefiningOp<GetWeightOp>()) {
    auto place = weightIndex.find(weight.getWeight());
    if (place == weightIndex.end())
      return weight.emitError()
             << "weight '" << weight.getWeight() << "' was not packed";
    return Argument{true, place->second};
  }
  if (auto producer = value.getDefiningOp<LaunchOp>()) {
    unsigned number = cast<OpResult>(value).getResultNumber();
    if (number < producer.getOuts().size())
      return Argument{
          false,
          bufferIndex.lookup(
              cast<FlatSymbolRefAttr>(producer.getOuts()[number]).getValue())};
  }
  if (auto arg = dyn_cast<BlockArgument>(value))
    if (auto entry = dyn_cast<func::FuncOp>(arg.getOwner()->getParentOp()))
      if (auto name = entry.getArgAttrOfType<FlatSymbolRefAttr>(
              arg.getArgNumber(), "foresight.buffer"))
        return Argument{false, bufferIndex.lookup(name.getValue())};
  return launch.emitError() << "'" << launch.getName()
                            << "' has an input that is neither a weight nor "
                               "in a buffer: "
                            << value;
}

int64_t ManifestBuilder::addCounters(StringRef entry, StringRef stage,
                                     int64_t units) {
  OrderedJson buffer = OrderedJson::object();
  buffer["name"] = (entry + "." + stage + ".counts").str();
  buffer["kind"] = "output";
  buffer["element"] = "i32";
  buffer["columns"] = units;
  buffer["row_bytes"] = padRow(units) * 4;
  buffer["rows"] = 1;
  buffers.push_back(std::move(buffer));
  return buffers.size() - 1;
}

int64_t ManifestBuilder::sharedBuffer(StringRef kernel, int64_t bytes) {
  // Launches of one kernel are ordered by their data: they take turns.
  auto [place, isNew] = sharedIndex.try_emplace(kernel, buffers.size());
  if (isNew) {
    OrderedJson buffer = OrderedJson::object();
    buffer["name"] = (kernel + ".shared").str();
    buffer["kind"] = "output";
    buffer["element"] = "f32";
    buffer["columns"] = bytes / 4;
    buffer["row_bytes"] = padRow(bytes / 4) * 4;
    buffer["rows"] = 1;
    buffers.push_back(std::move(buffer));
  }
  return place->second;
}

LogicalResult ManifestBuilder::addStage(LaunchOp launch, StringRef entryName,
                                        OrderedJson &stages) {
  KernelOp kernel = kernelOf(launch);
  if (!kernel)
    return launch.emitError() << "runs " << launch.getKernelAttr()
                              << ", which is not a kernel of this module";
  OrderedJson stage = OrderedJson::object();
  stage["name"] = launch.getName().str();
  stage["role"] = launch.getRole().str();
  stage["layer"] = static_cast<int64_t>(launch.getLayer());
  stage["kernel"] = kernelIndex.lookup(kernel.getSymName());

  stage["args"] = OrderedJson::array();
  llvm::SetVector<int64_t> reads, writes;
  for (Value input : launch.getInputs()) {
    FailureOr<Argument> arg = argument(launch, input);
    if (failed(arg))
      return failure();
    stage["args"].push_back(toJson(*arg));
    if (!arg->weight)
      reads.insert(arg->index);
  }
  for (Attribute out : launch.getOuts()) {
    int64_t buffer =
        bufferIndex.lookup(cast<FlatSymbolRefAttr>(out).getValue());
    stage["args"].push_back(toJson(Argument{false, buffer}));
    writes.insert(buffer);
  }

  auto found = inputs.kernels.find(kernel.getSymName());
  if (found == inputs.kernels.end())
    return kernel.emitError()
           << "@" << kernel.getSymName() << " was not lowered";
  const KernelInfo &info = found->second;
  if (info.sharedBytes > 0)
    stage["args"].push_back(toJson(
        Argument{false, sharedBuffer(kernel.getSymName(), info.sharedBytes)}));
  stage["units"] = info.units;
  stage["per_token"] = info.perToken;
  stage["grain"] = info.grain;
  stage["counts"] = info.hasCounts
                        ? addCounters(entryName, launch.getName(), info.units)
                        : -1;
  stage["weight_bytes"] = info.weightBytes;
  stage["count_bytes"] = info.countBytes;

  stage["after"] = OrderedJson::array();
  for (Value token : launch.getAfter()) {
    Operation *before = token.getDefiningOp();
    auto place = stageIndex.find(before);
    if (!before || place == stageIndex.end())
      return launch.emitError()
             << "'" << launch.getName()
             << "' waits for something that is not an earlier launch";
    stage["after"].push_back(place->second);
  }
  stage["reads"] = reads.takeVector();
  stage["writes"] = writes.takeVector();
  llvm::SetVector<StringRef> nodes;
  collectNodes(launch.getLoc(), nodes);
  stage["sources"] = OrderedJson::array();
  for (StringRef node : nodes)
    stage["sources"].push_back(node.str());
  if (kernel.getLibrary() && failed(gemm(launch, kernel, stage)))
    return failure();

  stageIndex[launch] = stages.size();
  stages.push_back(std::move(stage));
  return success();
}

/// A library product: `linear` or `column_linear`, then an activation and the
/// addition of a residual, if any.
LogicalResult ManifestBuilder::gemm(LaunchOp launch, KernelOp kernel,
                                    OrderedJson &stage) {
  auto place = [&](Value inKernel) -> int64_t {
    auto arg = dyn_cast_or_null<BlockArgument>(inKernel);
    return arg ? (stage["args"][arg.getArgNumber()].begin())
                     .value()
                     .get<int64_t>()
               : -1;
  };
  OrderedJson gemm = OrderedJson::object();
  Activation activation = Activation::None;
  Value weight, bias, residual, result;
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    bool understood =
        llvm::TypeSwitch<Operation *, bool>(&op)
            .Case([&](LinearOp linear) {
              if (weight)
                return false;
              gemm["n"] = linear.getWeight().getType().getDimSize(0);
              gemm["k"] = linear.getWeight().getType().getDimSize(1);
              gemm["layout"] = "out_in";
              gemm["x"] = place(linear.getX());
              weight = linear.getWeight();
              bias = linear.getBias();
              activation = linear.getActivation();
              result = linear.getResult();
              return true;
            })
            .Case([&](ColumnLinearOp linear) {
              if (weight || linear.getRows())
                return false;
              gemm["n"] = linear.getWeight().getType().getDimSize(1);
              gemm["k"] = linear.getWeight().getType().getDimSize(0);
              gemm["layout"] = "in_out";
              gemm["x"] = place(linear.getX());
              weight = linear.getWeight();
              bias = linear.getBias();
              result = linear.getResult();
              return true;
            })
            .Case([&](ActivationOp act) {
              if (act.getX() != result || activation != Activation::None)
                return false;
              activation = act.getActivation();
              result = act.getResult();
              return true;
            })
            .Case([&](AddOp add) {
              if (residual ||
                  (add.getLhs() != result && add.getRhs() != result))
                return false;
              residual = add.getLhs() == result ? add.getRhs() : add.getLhs();
              result = add.getResult();
              return isa<BlockArgument>(residual);
            })
            .Default([](Operation *) { return false; });
    if (!understood)
      return op.emitError() << "is not a part of a library product";
  }
  Operation *yield = kernel.getBody().front().getTerminator();
  if (!weight || yield->getNumOperands() != 1 || yield->getOperand(0) != result)
    return kernel.emitError()
           << "@" << kernel.getSymName() << " is not one library product";
  gemm["weight"] = place(weight);
  gemm["bias"] = bias ? place(bias) : -1;
  gemm["residual"] = residual ? place(residual) : -1;
  gemm["activation"] = stringifyActivation(activation).str();
  gemm["out"] = stage["args"].back()["buffer"];
  stage["gemm"] = std::move(gemm);
  return success();
}

LogicalResult ManifestBuilder::addEntry(func::FuncOp entry) {
  StringRef name =
      entry->getAttrOfType<StringAttr>("foresight.entry").getValue();
  OrderedJson json = OrderedJson::object();
  auto tokens = entry->getAttrOfType<IntegerAttr>("foresight.max_tokens");
  json["max_tokens"] = tokens ? tokens.getInt() : 1;
  json["inputs"] = OrderedJson::object();
  SmallVector<StringRef> names = {"ids", "positions"};
  // Where caches hold several sequences, which ones are meant.
  auto third = entry.getNumArguments() > 2
                   ? dyn_cast<RankedTensorType>(entry.getArgumentTypes()[2])
                   : RankedTensorType();
  if (third && third.getElementType().isInteger(32))
    names.push_back("sequences");
  for (auto [number, input] : llvm::enumerate(names)) {
    auto buffer = number < entry.getNumArguments()
                      ? entry.getArgAttrOfType<FlatSymbolRefAttr>(
                            number, "foresight.buffer")
                      : FlatSymbolRefAttr();
    if (!buffer)
      return entry.emitError()
             << "argument " << number << " of @" << entry.getSymName() << ", "
             << input << ", has no foresight.buffer";
    json["inputs"][input.str()] = bufferIndex.lookup(buffer.getValue());
  }
  json["outputs"] = OrderedJson::object();
  json["stages"] = OrderedJson::array();
  for (Operation &op : entry.getBody().front()) {
    if (auto launch = dyn_cast<LaunchOp>(op)) {
      if (failed(addStage(launch, name, json["stages"])))
        return failure();
    } else if (auto ret = dyn_cast<func::ReturnOp>(op)) {
      for (Value value : ret.getOperands()) {
        if (isa<KvCacheType>(value.getType()))
          continue;
        auto launch = value.getDefiningOp<LaunchOp>();
        if (!launch)
          return ret.emitError() << "returns a value that no launch computed";
        FailureOr<Argument> logits = argument(launch, value);
        if (failed(logits))
          return failure();
        json["outputs"]["logits"] = logits->index;
      }
    } else if (!isa<GetWeightOp>(op)) {
      return op.emitError() << "has no place in a schedule";
    }
  }
  if (!json["outputs"].contains("logits"))
    return entry.emitError()
           << "@" << entry.getSymName() << " returns no logits";
  entries[name.str()] = std::move(json);
  return success();
}
