//===- BatchGenerate.h - Several texts at once ------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_BATCHGENERATE_H
#define FORESIGHT_TOOLS_BATCHGENERATE_H

#include "Generate.h"

#include "foresight/runtime/Session.h"

namespace foresight::tools {

using Prompts = std::vector<std::vector<int32_t>>;

/// What happens to text `i`. An error ends all texts.
struct BatchEvents {
  std::function<Status(size_t i, int32_t id, std::string_view text)> onToken;
  std::function<Status(size_t i, const Generated &made)> onEnd;
};

/// Continues up to `session.sequences()` prompts: each is read by itself into a
/// sequence of its own, then all are decoded together. A text that has ended
/// leaves the batch; what the others become does not depend on it.
Status generateBatch(Session &session,
                     std::span<const std::vector<int32_t>> prompts,
                     const text::Tokenizer *tokenizer,
                     const GenerateOptions &options, const BatchEvents &events);

} // namespace foresight::tools
#endif
