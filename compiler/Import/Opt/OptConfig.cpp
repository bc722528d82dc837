//===- OptConfig.cpp - What config.json says ------------------------------===//

#include "foresight/Import/Opt/OptStep.h"

#include "foresight/Dialect/Foresight.h"

#include <algorithm>

using namespace foresight;

/// Far beyond any model. With these all parameters can be counted without
/// overflow, and a step of as many layers is built in seconds.
static constexpr int64_t kLargest = int64_t{1} << 24, kMostLayers = 4096;

/// Fails unless the config is of an OPT that writes text.
static Status checkFamily(const JsonObject &object) {
  FORESIGHT_TRY(std::string type,
                readOr<std::string>(object, "model_type", "opt"));
  if (type != "opt")
    return makeError(ErrorCode::Unsupported, object.where, ": model_type is '",
                     type, "'; Foresight compiles OPT models");
  FORESIGHT_TRY(auto architectures,
                readOr<std::vector<std::string>>(object, "architectures", {}));
  for (const std::string &architecture : architectures)
    if (architecture != "OPTForCausalLM" && architecture != "OPTModel")
      return makeError(ErrorCode::Unsupported, object.where,
                       ": architecture is ", architecture,
                       ", which does not write text; expected OPTForCausalLM");
  if (auto found = object.value.find("quantization_config");
      found != object.value.end() && !found->is_null())
    return makeError(ErrorCode::Unsupported, object.where,
                     ": the weights are quantised (quantization_config); save "
                     "the model as float16 and compile that");
  return {};
}

static Result<int64_t> readSize(const JsonObject &object, const char *key,
                                int64_t fallback) {
  FORESIGHT_TRY(int64_t value, readOr<int64_t>(object, key, fallback));
  if (value < 1 || value > kLargest)
    return makeError(object.code, object.where, ": \"", key, "\" is ", value,
                     "; it must be from 1 to ", kLargest);
  return value;
}

/// The dialect's name of an activation of transformers.
static Result<std::string> readActivation(const JsonObject &object) {
  FORESIGHT_TRY(std::string name,
                readOr<std::string>(object, "activation_function", "relu"));
  if (name == "relu" || name == "gelu")
    return name;
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh")
    return std::string("gelu_tanh");
  return makeError(ErrorCode::Unsupported, object.where,
                   ": activation_function is '", name,
                   "'; supported are relu, gelu and gelu_new");
}

Result<OptConfig> OptConfig::parse(const Json &json,
                                   const std::string &source) {
  const JsonObject object{json, source};
  FORESIGHT_CHECK(checkFamily(object));

  OptConfig config;
  FORESIGHT_TRY(config.vocabSize, readSize(object, "vocab_size", 50272));
  // Configs of 2022 say d_model.
  FORESIGHT_TRY(int64_t model, readSize(object, "d_model", 768));
  FORESIGHT_TRY(config.hiddenSize, readSize(object, "hidden_size", model));
  FORESIGHT_TRY(config.layers, readSize(object, "num_hidden_layers", 12));
  FORESIGHT_TRY(config.heads, readSize(object, "num_attention_heads", 12));
  FORESIGHT_TRY(config.maxPositions,
                readSize(object, "max_position_embeddings", 2048));
  FORESIGHT_TRY(config.embedSize,
                readSize(object, "word_embed_proj_dim", config.hiddenSize));
  FORESIGHT_TRY(int64_t ffn, readSize(object, "ffn_dim", 3072));
  if (config.layers > kMostLayers)
    return makeError(ErrorCode::BadInput, source, ": \"num_hidden_layers\" is ",
                     config.layers, ", which cannot be right");
  if (config.hiddenSize % config.heads)
    return makeError(ErrorCode::BadInput, source, ": hidden_size ",
                     config.hiddenSize, " is not a multiple of ", config.heads,
                     " heads (num_attention_heads)");
  config.ffnDim.assign(static_cast<size_t>(config.layers), ffn);

  FORESIGHT_TRY(config.normBefore,
                readOr<bool>(object, "do_layer_norm_before", true));
  FORESIGHT_TRY(bool removed,
                readOr<bool>(object, "_remove_final_layer_norm", false));
  config.finalNorm = config.normBefore && !removed;
  FORESIGHT_TRY(config.biases, readOr<bool>(object, "enable_bias", true));
  FORESIGHT_TRY(config.normAffine,
                readOr<bool>(object, "layer_norm_elementwise_affine", true));
  FORESIGHT_TRY(config.tiedHead,
                readOr<bool>(object, "tie_word_embeddings", true));
  FORESIGHT_TRY(config.activation, readActivation(object));
  FORESIGHT_TRY(config.dtype, readOr<std::string>(object, "torch_dtype", ""));
  FORESIGHT_TRY(config.dtype,
                readOr<std::string>(object, "dtype", config.dtype));
  return config;
}
