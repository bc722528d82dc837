//===- Generate.cpp - Token after token -----------------------------------===//
#include "Generate.h"

#include "foresight/text/Detokenizer.h"
#include "foresight/text/StopStrings.h"

#include <algorithm>
#include <chrono>
#include <optional>

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

static double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

Result<Generated> generate(TokenModel &model, std::span<const int32_t> prompt,
                           const text::Tokenizer *tokenizer,
                           const GenerateOptions &options,
                           const OnToken &onToken) {
  Generated out;
  sampling::Sampler sampler(options.sampler);
  std::optional<text::Detokenizer> detokenizer;
  if (tokenizer)
    detokenizer.emplace(*tokenizer);
  text::StopStrings stop(tokenizer ? options.stop : std::vector<std::string>());
  const auto isEos = [&](int32_t id) {
    return !options.ignoreEos &&
           std::find(options.eosIds.begin(), options.eosIds.end(), id) !=
               options.eosIds.end();
  };

  auto start = std::chrono::steady_clock::now();
  FORESIGHT_TRY(std::span<const float> logits, model.prompt(prompt));
  out.promptSeconds = secondsSince(start);
  while (true) {
    if (static_cast<int64_t>(out.ids.size()) == options.maxNewTokens) {
      out.finish = Finish::Length;
      break;
    }
    FORESIGHT_TRY(const int32_t id, sampler.sample(logits, out.ids.size()));
    if (isEos(id)) {
      out.finish = Finish::Eos;
      break;
    }
    out.ids.push_back(id);
    const std::string piece =
        detokenizer ? stop.push(detokenizer->push(id)) : std::string();
    out.text += piece;
    FORESIGHT_CHECK(onToken(id, piece));
    if (stop.stopped()) {
      out.finish = Finish::Stop;
      break;
    }
    // The last token's logits would not be used.
    if (static_cast<int64_t>(out.ids.size()) == options.maxNewTokens)
      continue;
    if (model.room() == 0) {
      out.finish = Finish::Capacity;
      break;
    }
    start = std::chrono::steady_clock::now();
    FORESIGHT_TRY(logits, model.decode(id));
    out.stepSeconds.push_back(secondsSince(start));
  }

  if (detokenizer && !stop.stopped()) {
    std::string rest = stop.push(detokenizer->finish());
    if (!stop.stopped())
      rest += stop.finish();
    out.text += rest;
    if (!rest.empty())
      FORESIGHT_CHECK(onToken(-1, rest));
  }
  return out;
}

} // namespace foresight::tools
