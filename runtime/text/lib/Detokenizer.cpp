//===- Detokenizer.cpp - Text of tokens as they come ----------------------===//
#include "foresight/text/Detokenizer.h"

#include "foresight/text/Utf8.h"

namespace foresight::text {

std::string Detokenizer::push(int32_t id) {
  if (skipSpecial && tokenizer->isSpecial(id))
    return {};
  pending += tokenizer->bytesOf(id);
  size_t complete = 0;
  while (complete < pending.size()) {
    const Utf8Step step = stepUtf8(std::string_view(pending).substr(complete));
    if (step.kind == Utf8Step::kTruncated)
      break;
    complete += step.length;
  }
  std::string out =
      replaceInvalidUtf8(std::string_view(pending).substr(0, complete));
  pending.erase(0, complete);
  return out;
}

std::string Detokenizer::finish() {
  std::string out = replaceInvalidUtf8(pending);
  pending.clear();
  return out;
}

} // namespace foresight::text
