//===- Manifest.cpp - The manifest of a scheduled module ------------------===//

#include "foresight/Target/Bundle/Manifest.h"
#include "ManifestBuilder.h"

#include "llvm/ADT/TypeSwitch.h"

#include <array>
#include <map>

using namespace mlir;
using namespace foresight;

static std::string elementName(Type type) {
  std::string name;
  llvm::raw_string_ostream(name) << type;
  return name;
}

static OrderedJson toJson(Attribute attr) {
  return llvm::TypeSwitch<Attribute, OrderedJson>(attr)
      .Case([](BoolAttr a) { return OrderedJson(a.getValue()); })
      .Case([](IntegerAttr a) {
        return OrderedJson(a.getValue().getSExtValue());
      })
      .Case([](FloatAttr a) { return OrderedJson(a.getValueAsDouble()); })
      .Case([](StringAttr a) { return OrderedJson(a.getValue().str()); })
      .Case([](UnitAttr) { return OrderedJson(true); })
      .Case([](DenseI64ArrayAttr a) {
        OrderedJson array = OrderedJson::array();
        for (int64_t value : a.asArrayRef())
          array.push_back(value);
        return array;
      })
      .Case([](ArrayAttr a) {
        OrderedJson array = OrderedJson::array();
        for (Attribute value : a)
          array.push_back(toJson(value));
        return array;
      })
      .Case([](DictionaryAttr a) {
        OrderedJson object = OrderedJson::object();
        for (NamedAttribute item : a)
          object[item.getName().str()] = toJson(item.getValue());
        return object;
      })
      .Default([](Attribute a) {
        std::string text;
        llvm::raw_string_ostream(text) << a;
        return OrderedJson(text);
      });
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// The rule that a synthetic matrix or vector, or what it is a transpose of, is
/// made by.
static SyntheticAttr syntheticSource(ModuleOp module, StringRef name) {
  auto weight = module.lookupSymbol<WeightOp>(name);
  while (weight) {
    auto derived = dyn_cast<DerivedAttr>(weight.getSource());
    if (!derived)
      return dyn_cast<SyntheticAttr>(weight.getSource());
    if (derived.getKind() == DerivedKind::SliceRows)
      return {}; // the rule begins at its first element
    weight = module.lookupSymbol<WeightOp>(derived.getSources()[0].getValue());
  }
  return {};
}

/// What a GPU makes a low-bit copy from.
LogicalResult ManifestBuilder::addQuantised(WeightOp weight) {
  auto derived = dyn_cast<DerivedAttr>(weight.getSource());
  auto copy = weightIndex.find(weight.getSymName());
  if (!derived || copy == weightIndex.end())
    return success();
  if (!derived.isMissing(4))
    return weight.emitError()
           << "@" << weight.getSymName()
           << " is balanced: a GPU makes copies of synthetic weights without";
  OrderedJson rule = OrderedJson::object();
  for (auto [key, source] :
       llvm::zip(std::array{"weight", "bias", "gamma", "beta"},
                 derived.getSources())) {
    auto place = weightIndex.find(source.getValue());
    if (place == weightIndex.end())
      return weight.emitError()
             << "@" << weight.getSymName() << " is derived from @"
             << source.getValue() << ", which was not packed";
    rule[key] = place->second;
  }
  weights[copy->second]["quantised"] = std::move(rule);
  return success();
}

LogicalResult ManifestBuilder::addWeights() {
  for (const PackedWeight &weight : inputs.weights) {
    OrderedJson entry = OrderedJson::object();
    entry["name"] = weight.name;
    entry["element"] = weight.element;
    entry["shape"] = weight.shape;
    if (weight.bits)
      entry["bits"] = weight.bits;
    entry["offset"] = weight.offset;
    entry["bytes"] = weight.bytes;
    entry["tensors"] = weight.tensors;
    if (auto rule = inputs.generateWeights && !weight.bits
                        ? syntheticSource(module, weight.name)
                        : SyntheticAttr())
      entry["synthetic"] = {
          {"seed", rule.getSeed()},
          {"mean", rule.getMean().getValueAsDouble()},
          {"deviation", rule.getDeviation().getValueAsDouble()}};
    weightIndex[weight.name] = weights.size();
    weights.push_back(std::move(entry));
  }
  if (inputs.generateWeights)
    for (auto weight : module.getOps<WeightOp>())
      if (isa<LowBitType>(weight.getType()) && failed(addQuantised(weight)))
        return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

LogicalResult ManifestBuilder::addBuffers() {
  for (auto buffer : module.getOps<BufferOp>()) {
    OrderedJson entry = OrderedJson::object();
    entry["name"] = buffer.getSymName().str();
    entry["kind"] = buffer.getKind().str();
    std::optional<KvCacheType> cache;
    if (auto tensor = dyn_cast<RankedTensorType>(buffer.getType())) {
      entry["element"] = elementName(tensor.getElementType());
      entry["columns"] = tensor.getRank() > 1 ? tensor.getShape().back() : 1;
    } else if (auto type = dyn_cast<KvCacheType>(buffer.getType())) {
      cache = type;
      entry["element"] = elementName(type.getElementType());
      entry["columns"] = type.getHeadDim();
    } else {
      return buffer.emitError()
             << "@" << buffer.getSymName() << " holds values of type "
             << buffer.getType() << ", which have no place in memory";
    }
    entry["row_bytes"] = buffer.getRowBytes();
    entry["rows"] = buffer.getRows();
    if (std::optional<uint64_t> offset = buffer.getOffset()) {
      entry["offset"] = *offset;
      arenaBytes = std::max<int64_t>(
          arenaBytes, *offset + buffer.getRows() * buffer.getRowBytes());
    }
    if (cache)
      entry["kv"] = {{"heads", cache->getHeads()},
                     {"head_dim", cache->getHeadDim()},
                     {"capacity", cache->getCapacity()},
                     {"sequences", cache->getSequences()}};
    bufferIndex[buffer.getSymName()] = buffers.size();
    buffers.push_back(std::move(entry));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Kernels and the rest
//===----------------------------------------------------------------------===//

void ManifestBuilder::addKernels() {
  for (auto kernel : module.getOps<KernelOp>()) {
    OrderedJson entry = OrderedJson::object();
    entry["name"] = kernel.getSymName().str();
    entry["library"] = kernel.getLibrary().value_or("").str();
    entry["ops"] = OrderedJson::array();
    for (Operation &op : kernel.getBody().front().without_terminator())
      entry["ops"].push_back(op.getName().stripDialect().str());
    auto facts = inputs.kernels.find(kernel.getSymName());
    bool known = facts != inputs.kernels.end() && !kernel.getLibrary();
    entry["has_prepare"] = known && facts->second.hasPrepare;
    entry["scratch_bytes"] = known ? facts->second.scratchBytes : 0;
    auto launch = inputs.launches.find(kernel.getSymName());
    if (launch != inputs.launches.end() && !kernel.getLibrary()) {
      const GpuLaunch &l = launch->second;
      entry["launch"] = {{"entry", gpuEntryName(kernel.getSymName())},
                         {"blocks", l.blocks},
                         {"tokens_per_block", l.tokensPerBlock},
                         {"blocks_per_sm", l.blocksPerSm},
                         {"threads", l.threads},
                         {"shared_bytes", l.sharedBytes},
                         {"overlaps", l.overlaps}};
    }
    kernelIndex[kernel.getSymName()] = kernels.size();
    kernels.push_back(std::move(entry));
  }
}

OrderedJson ManifestBuilder::model() const {
  OrderedJson model = OrderedJson::object();
  if (auto facts = module->getAttrOfType<DictionaryAttr>("foresight.model"))
    model = toJson(facts);
  for (auto &[key, value] : inputs.model.items())
    model[key] = value;
  return model;
}

FailureOr<OrderedJson> ManifestBuilder::build() {
  if (failed(addWeights()) || failed(addBuffers()))
    return failure();
  addKernels();
  std::map<StringRef, func::FuncOp> functions;
  for (auto entry : module.getOps<func::FuncOp>()) {
    auto name = entry->getAttrOfType<StringAttr>("foresight.entry");
    if (!name)
      return entry.emitError()
             << "@" << entry.getSymName() << " has no foresight.entry";
    functions[name.getValue()] = entry;
    if (failed(addEntry(entry)))
      return failure();
  }
  for (StringRef name : {"decode", "prefill"})
    if (!functions.count(name))
      return module.emitError() << "has no entry '" << name << "'";
  auto dense = functions.find("decode_dense");
  if (dense != functions.end() &&
      failed(addSelections(functions["decode"], dense->second)))
    return failure();

  OrderedJson manifest = OrderedJson::object();
  manifest["format"] = 1;
  manifest["producer"] = inputs.producer;
  manifest["build"] = {{"version", inputs.version},
                       {"llvm", inputs.llvm},
                       {"commit", inputs.commit}};
  manifest["options"] = OrderedJson::object();
  for (const auto &[option, value] : inputs.options)
    manifest["options"][option] = value;
  manifest["model"] = model();
  manifest["target"] = {{"device", inputs.device},
                        {"variants", OrderedJson::array()}};
  for (const CpuVariant &variant : inputs.variants)
    manifest["target"]["variants"].push_back(
        {{"name", variant.name}, {"features", variant.features}});
  manifest["buffers"] = std::move(buffers);
  manifest["arena_bytes"] = arenaBytes;
  manifest["weights"] = std::move(weights);
  if (inputs.generateWeights)
    manifest["generated_weight_bytes"] = inputs.weightBytes;
  manifest["kernels"] = std::move(kernels);
  manifest["entries"] = std::move(entries);
  manifest["selections"] = std::move(selections);
  return manifest;
}

FailureOr<OrderedJson> foresight::buildManifest(ModuleOp module,
                                                const ManifestInputs &inputs) {
  return ManifestBuilder(module, inputs).build();
}
