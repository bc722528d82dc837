//===- Predictors.cpp - Low-rank predictors beside a model ----------------===//

#include "foresight/Import/Predictors/Predictors.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/Opt/OptStep.h"
#include "foresight/support/Safetensors.h"
#include "foresight/support/Synthetic.h"

#include <cmath>

using namespace mlir;
using namespace foresight;

namespace {

/// Where the data of a predictor's weights come from.
class Source {
public:
  Source(MLIRContext &context, const PredictorOptions &options)
      : context(context), b(&context), options(options) {}

  Status open() {
    if (!options.file.empty()) {
      FORESIGHT_TRY(file, Safetensors::openFile(options.file));
    }
    return {};
  }

  Result<int64_t> rankOf(const std::string &first) const {
    if (!file)
      return options.rank;
    const TensorInfo *tensor = file->find(first);
    if (!tensor)
      return makeError(ErrorCode::BadInput, file->name(), ": tensor '", first,
                       "' is missing: every layer needs a predictor");
    if (tensor->shape.size() != 2)
      return makeError(ErrorCode::BadInput, file->name(), ": tensor '", first,
                       "' has shape ", shapeText(tensor->shape),
                       "; expected [rank, hidden size]");
    return tensor->shape[0];
  }

  /// The source of a weight; a missing bias is zero.
  Result<Attribute> of(const std::string &name,
                       const std::vector<int64_t> &shape) {
    if (!file)
      return synthetic(shape);
    const TensorInfo *tensor = file->find(name);
    if (!tensor && shape.size() == 1)
      return Attribute(DenseElementsAttr::get(
          RankedTensorType::get(shape, b.getF32Type()), 0.0f));
    if (!tensor)
      return makeError(ErrorCode::BadInput, file->name(), ": tensor '", name,
                       "' is missing");
    if (!isFloat(tensor->type))
      return makeError(ErrorCode::Unsupported, file->name(), ": tensor '", name,
                       "' has elements of type ", elementName(tensor->type),
                       "; predictors must be f32, f16 or bf16");
    if (tensor->shape != shape)
      return makeError(ErrorCode::BadInput, file->name(), ": tensor '", name,
                       "' has shape ", shapeText(tensor->shape),
                       " but the model and the predictor's rank ask for ",
                       shapeText(shape));
    return Attribute(externalSource(context, *tensor));
  }

  Attribute constant(double value) { return normal(value, 0); }

private:
  Attribute normal(double mean, double deviation) {
    return SyntheticAttr::get(
        &context, static_cast<int64_t>(deriveSeed(~options.seed, made++) >> 1),
        b.getF64FloatAttr(mean), b.getF64FloatAttr(deviation));
  }
  /// Rows keep the length of what they multiply, so that scores of a normalised
  /// row are close to standard normal over the neurons.
  Attribute synthetic(const std::vector<int64_t> &shape) {
    if (shape.size() == 1)
      return constant(normalQuantile(options.density));
    return normal(0, 1 / std::sqrt(static_cast<double>(shape[1])));
  }

  MLIRContext &context;
  Builder b;
  const PredictorOptions &options;
  std::optional<Safetensors> file;
  uint64_t made = 0;
};

} // namespace

Result<Profile> foresight::addPredictors(ModuleOp module,
                                         const PredictorOptions &options) {
  SmallVector<MlpOp> mlps;
  module.walk([&](MlpOp op) { mlps.push_back(op); });
  Source source(*module.getContext(), options);
  FORESIGHT_CHECK(source.open());
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  Profile profile;
  auto addWeight = [&](const std::string &name,
                       const std::vector<int64_t> &shape, Attribute data,
                       Type matrixElement = Type()) {
    Type element = shape.size() == 1 ? builder.getF32Type() : matrixElement;
    StringAttr symbol = builder.getStringAttr(name);
    WeightOp::create(builder, NameLoc::get(symbol), symbol,
                     TypeAttr::get(RankedTensorType::get(shape, element)),
                     data);
  };
  for (auto [layer, mlp] : llvm::enumerate(mlps)) {
    auto fc1 = cast<RankedTensorType>(mlp.getFc1().getType());
    const int64_t neurons = fc1.getDimSize(0), hidden = fc1.getDimSize(1);
    profile.hiddenSize = hidden;
    profile.ffnDim.push_back(neurons);
    LayerProfile &choice = profile.layers[static_cast<int64_t>(layer)];
    if (mlp.getActivation() != Activation::Relu)
      continue;
    choice.rule = LayerProfile::Rule::LowRank;
    const std::string prefix =
        "layers." + std::to_string(layer) + ".predictor.";
    FORESIGHT_TRY(const int64_t rank, source.rankOf(prefix + "first.weight"));
    struct Item {
      const char *name;
      std::vector<int64_t> shape;
    };
    const std::vector<Item> items = {{"first.weight", {rank, hidden}},
                                     {"second.weight", {neurons, rank}},
                                     {"second.bias", {neurons}}};
    for (const Item &item : items) {
      FORESIGHT_TRY(Attribute data, source.of(prefix + item.name, item.shape));
      addWeight(prefix + item.name, item.shape, data, fc1.getElementType());
    }
    // A device that makes its weights makes the copy of the second matrix with
    // the scale and shift that a copy of fc1 has.
    if (options.file.empty()) {
      addWeight(prefix + "second.gamma", {rank}, source.constant(1));
      addWeight(prefix + "second.beta", {rank}, source.constant(0));
    }
  }
  return profile;
}
