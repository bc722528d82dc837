//===- Generate.cpp - Token after token -----------------------------------===//
#include "Generate.h"

#include "Statistics.h"

#include <algorithm>

namespace foresight::tools {

const char *finishName(Finish finish) {
  switch (finish) {
  case Finish::Length:
    return "length";
  case Finish::Eos:
    return "eos";
  case Finish::Stop:
    return "stop";
  case Finish::Capacity:
    return "capacity";
  }
  return "";
}

Continuation::Continuation(const text::Tokenizer *tokenizer,
                           const GenerateOptions &options, OnToken onToken)
    : options(options), onToken(std::move(onToken)), sampler(options.sampler),
      stop(tokenizer ? options.stop : std::vector<std::string>()) {
  if (tokenizer)
    detokenizer.emplace(*tokenizer);
}

bool Continuation::isEos(int32_t id) const {
  return !options.ignoreEos &&
         std::find(options.eosIds.begin(), options.eosIds.end(), id) !=
             options.eosIds.end();
}

Result<std::optional<int32_t>> Continuation::take(std::span<const float> logits,
                                                  int64_t room) {
  if (std::ssize(made.ids) == options.maxNewTokens)
    return end(Finish::Length);
  FORESIGHT_TRY(const int32_t id, sampler.sample(logits, made.ids.size()));
  return accept(id, room);
}

Result<std::optional<int32_t>> Continuation::accept(int32_t id, int64_t room) {
  if (isEos(id))
    return end(Finish::Eos);
  made.ids.push_back(id);
  const std::string piece =
      detokenizer ? stop.push(detokenizer->push(id)) : std::string();
  made.text += piece;
  FORESIGHT_CHECK(onToken(id, piece));
  if (stop.stopped())
    return end(Finish::Stop);
  // The last token's logits would not be used.
  if (std::ssize(made.ids) == options.maxNewTokens)
    return end(Finish::Length);
  if (room == 0)
    return end(Finish::Capacity);
  return std::optional(id);
}

Result<std::optional<int32_t>> Continuation::end(Finish finish) {
  made.finish = finish;
  if (detokenizer && !stop.stopped()) {
    std::string rest = stop.push(detokenizer->finish());
    if (!stop.stopped())
      rest += stop.finish();
    made.text += rest;
    if (!rest.empty())
      FORESIGHT_CHECK(onToken(-1, rest));
  }
  return std::optional<int32_t>();
}

Result<Generated> generate(TokenSource &source, std::span<const int32_t> prompt,
                           const text::Tokenizer *tokenizer,
                           const GenerateOptions &options,
                           const OnToken &onToken) {
  Continuation text(tokenizer, options, onToken);
  auto start = std::chrono::steady_clock::now();
  FORESIGHT_CHECK(source.prompt(prompt, options.maxNewTokens));
  text.made.promptSeconds = secondsSince(start);
  if (options.maxNewTokens == 0) {
    FORESIGHT_CHECK(text.end(Finish::Length));
    return std::move(text.made);
  }
  while (true) {
    start = std::chrono::steady_clock::now();
    FORESIGHT_TRY(const int32_t id, source.next());
    if (!text.made.ids.empty())
      text.made.stepSeconds.push_back(secondsSince(start));
    FORESIGHT_TRY(const std::optional<int32_t> goesOn,
                  text.accept(id, source.room()));
    if (!goesOn)
      return std::move(text.made);
  }
}

} // namespace foresight::tools
