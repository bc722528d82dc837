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

/// Where tokens come from: a session, or a stand-in in tests.
class TokenSource {
public:
  virtual ~TokenSource() = default;
  /// Starts with a prompt; at most `mostTokens` will be asked for.
  virtual Status prompt(std::span<const int32_t> ids, int64_t mostTokens) = 0;
  /// The next token; the one before it becomes part of the sequence.
  virtual Result<int32_t> next() = 0;
  /// How many more tokens fit the sequence.
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
  std::vector<double> stepSeconds; ///< of every token but the first
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
  /// The same of a token that somebody else has picked.
  Result<std::optional<int32_t>> accept(int32_t id, int64_t room);
  /// Shows what was held back.
  Result<std::optional<int32_t>> end(Finish finish);

  Generated made;

private:
  bool isEos(int32_t id) const;

  const GenerateOptions &options;
  OnToken onToken;
  sampling::Sampler sampler;
  std::optional<text::Detokenizer> detokenizer;
  text::StopStrings stop;
};

/// `tokenizer` may be null: then there is no text and no stop strings work.
Result<Generated> generate(TokenSource &source, std::span<const int32_t> prompt,
                           const text::Tokenizer *tokenizer,
                           const GenerateOptions &options,
                           const OnToken &onToken);

} // namespace foresight::tools
#endif
