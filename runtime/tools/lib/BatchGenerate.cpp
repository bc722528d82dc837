//===- BatchGenerate.cpp - Several texts at once --------------------------===//
#include "BatchGenerate.h"

#include "Statistics.h"

#include <memory>

namespace foresight::tools {

Status generateBatch(Session &session,
                     std::span<const std::vector<int32_t>> prompts,
                     const text::Tokenizer *tokenizer,
                     const GenerateOptions &options,
                     const BatchEvents &events) {
  std::vector<std::unique_ptr<Continuation>> texts;
  /// The tokens to decode, and the text of each: those that go on.
  std::vector<Session::BatchRow> rows, next;
  const auto take = [&](size_t i, std::span<const float> logits) -> Status {
    FORESIGHT_CHECK(session.select(static_cast<int64_t>(i)));
    FORESIGHT_TRY(
        const std::optional<int32_t> id,
        texts[i]->take(logits, session.capacity() - session.position()));
    if (!id)
      return events.onEnd(i, texts[i]->made);
    next.push_back({static_cast<int64_t>(i), *id});
    return {};
  };
  for (size_t i = 0; i < prompts.size(); ++i) {
    texts.push_back(std::make_unique<Continuation>(
        tokenizer, options, [&events, i](int32_t id, std::string_view text) {
          return events.onToken(i, id, text);
        }));
    FORESIGHT_CHECK(session.select(static_cast<int64_t>(i)));
    FORESIGHT_CHECK(session.reset());
    const auto start = std::chrono::steady_clock::now();
    FORESIGHT_TRY(const auto logits, session.prompt(prompts[i]));
    texts[i]->made.promptSeconds = secondsSince(start);
    FORESIGHT_CHECK(take(i, logits));
  }
  while (!next.empty()) {
    rows.swap(next);
    next.clear();
    const auto start = std::chrono::steady_clock::now();
    FORESIGHT_CHECK(session.decodeBatch(rows));
    const double seconds = secondsSince(start);
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto i = static_cast<size_t>(rows[r].sequence);
      texts[i]->made.stepSeconds.push_back(seconds);
      FORESIGHT_CHECK(take(i, session.batchLogits(static_cast<int64_t>(r))));
    }
  }
  return {};
}

} // namespace foresight::tools
