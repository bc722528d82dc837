//===- Generate.h - Token after token ---------------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_GENERATE_H
#define FORESIGHT_TOOLS_GENERATE_H

#include "foresight/sampling/Sampler.h"
#include "foresight/support/Result.h"
#include "foresight/text/Detokenizer.h"
#include "foresight/text/StopStrings.h"
#include "foresight/text/Tokenizer.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace foresight::tools {

/// What a text is generated with: a session, or a stand-in in tests.
class TokenModel {
public:
  virtual ~TokenModel() = default;
  virtual Result<std::span<const float>>
  prompt(std::span<const int32_t> ids) = 0;
  virtual Result<std::span<const float>> decode(int32_t id) = 0;
  /// How many more tokens fit.
  virtual int64_t room() const = 0;
};

struct GenerateOptions {
  sampling::SamplerOptions sampler = {};
  int64_t maxNewTokens = 128;
  std::vector<std::string> stop = {};
  std::vector<int64_t> eosIds = {};
  bool ignoreEos = false;
};

enum class Finish {
  Length,  ///< maxNewTokens were made
  Eos,     ///< the model ended the text
  Stop,    ///< a stop string occurred
  Capacity ///< the sequence is as long as the model allows
};
const char *finishName(Finish finish);

struct Generated {
  std::vector<int32_t> ids; ///< without an end-of-text token that ended it
  std::string text;         ///< ends before a stop string; "" without tokenizer
  Finish finish = Finish::Length;
  double promptSeconds = 0;
  std::vector<double> stepSeconds; ///< of every decoded token
};

/// Called with every token and the text that can be shown once it has come;
/// with id -1 for text that was held back to the end. An error ends the text.
using OnToken = std::function<Status(int32_t id, std::string_view text)>;

/// A text while it grows: takes the logits that follow it, and says which token
/// to feed.
class Continuation {
public:
  /// `tokenizer` may be null: then there is no text and no stop strings work.
  /// Both it and `options` must outlive this.
  Continuation(const text::Tokenizer *tokenizer, const GenerateOptions &options,
               OnToken onToken);
  /// The token that comes next and is to be decoded, or none where the text
  /// ends. `room`: how many more tokens fit.
  Result<std::optional<int32_t>> take(std::span<const float> logits,
                                      int64_t room);

  Generated made;

private:
  Result<std::optional<int32_t>> end(Finish finish);
  bool isEos(int32_t id) const;

  const GenerateOptions &options;
  OnToken onToken;
  sampling::Sampler sampler;
  std::optional<text::Detokenizer> detokenizer;
  text::StopStrings stop;
};

/// `tokenizer` may be null: then there is no text and no stop strings work.
Result<Generated> generate(TokenModel &model, std::span<const int32_t> prompt,
                           const text::Tokenizer *tokenizer,
                           const GenerateOptions &options,
                           const OnToken &onToken);

} // namespace foresight::tools
#endif
