//===- RunOutput.cpp - What foresight run prints --------------------------===//
#include "RunOutput.h"

#include "Model.h"
#include "Statistics.h"

#include <cstdio>

namespace foresight::tools {

/// Milliseconds with three digits that count.
static std::string milliseconds(double seconds) {
  return fixed(seconds * 1e3, seconds < 1e-2 ? 2 : seconds < 1 ? 1 : 0) + " ms";
}

double Summary::secondsPerToken() const { return medianOf(made.stepSeconds); }

double Summary::bytesPerToken() const {
  const int64_t entry =
      batch > 0 ? session.decodeBatchEntry() : session.decodeEntry();
  for (const SessionTrace &trace : session.traces())
    if (trace.entry == entry && trace.tokens > 0)
      return static_cast<double>(trace.weightBytes()) /
             static_cast<double>(trace.tokens);
  int64_t bytes = 0;
  for (const StageInfo &stage :
       session.manifest().entries[static_cast<size_t>(entry)].stages) {
    if (stage.countBytes > 0)
      return 0;
    bytes += stage.weightBytes;
  }
  return static_cast<double>(bytes);
}

const char *Summary::decode() const {
  return batch > 0 || session.isDense() ? "dense" : "sparse";
}

void Summary::print() const {
  std::fprintf(stderr, "prompt: %zu tokens, %s\n", promptTokens,
               milliseconds(made.promptSeconds).c_str());
  if (made.stepSeconds.empty())
    return;
  const std::string together =
      batch > 0 ? ", in a batch of " + std::to_string(batch) : "";
  std::fprintf(stderr, "%s%s: %zu tokens, %s a token (median), %s tokens/s",
               decode(), together.c_str(), made.ids.size(),
               milliseconds(secondsPerToken()).c_str(),
               fixed(1 / secondsPerToken(), 1).c_str());
  if (bytesPerToken() > 0)
    std::fprintf(stderr, ", %s MB of weights read a token",
                 fixed(bytesPerToken() / 1e6, 2).c_str());
  std::fprintf(stderr, "\n");
}

OrderedJson Summary::json() const {
  OrderedJson out = {{"done", true},
                     {"finish", finishName(made.finish)},
                     {"text", made.text},
                     {"ids", made.ids},
                     {"prompt_tokens", promptTokens},
                     {"decode", decode()}};
  if (batch > 0)
    out["batch"] = batch;
  out["prompt_seconds"] = made.promptSeconds;
  if (!made.stepSeconds.empty()) {
    out["seconds_per_token"] = secondsPerToken();
    if (bytesPerToken() > 0)
      out["weight_bytes_per_token"] = bytesPerToken();
  }
  if (session.manifest().model.synthetic)
    out["note"] = kSyntheticNote;
  return out;
}

void Printer::write(size_t prompt, std::string_view text) {
  if (prompt == shown)
    std::fwrite(text.data(), 1, text.size(), stdout);
  else
    held[prompt].text += text;
}

void Printer::object(size_t prompt, const OrderedJson &members) {
  OrderedJson line;
  if (held.size() > 1)
    line["prompt"] = prompt;
  line.update(members);
  std::printf("%s\n", dumpJson(line).c_str());
}

Status Printer::begin(size_t prompt) {
  if (output != Output::Text)
    return {};
  if (held.size() > 1)
    write(prompt,
          (prompt ? "\n==> " : "==> ") + std::to_string(prompt) + " <==\n");
  if (prompt < echoes.size())
    write(prompt, echoes[prompt]);
  return flushOutput();
}

Status Printer::token(size_t prompt, int32_t id, std::string_view text) {
  if (output == Output::Text)
    write(prompt, text);
  else if (output == Output::Json)
    object(prompt, {{"id", id < 0 ? OrderedJson() : OrderedJson(id)},
                    {"text", std::string(text)}});
  else if (id >= 0)
    write(prompt, (std::exchange(held[prompt].hasIds, true) ? "," : "") +
                      std::to_string(id));
  return flushOutput();
}

Status Printer::end(size_t prompt, const Summary &summary) {
  if (output == Output::Json)
    object(prompt, summary.json());
  else
    write(prompt, "\n");
  held[prompt].hasEnded = true;
  while (shown < held.size() && held[shown].hasEnded)
    if (++shown < held.size())
      write(shown, std::exchange(held[shown].text, {}));
  FORESIGHT_CHECK(flushOutput());
  if (summary.made.finish == Finish::Capacity)
    std::fprintf(stderr,
                 "the sequence is full: the bundle holds %lld tokens "
                 "(foresight-compile --max-seq)\n",
                 static_cast<long long>(summary.session.capacity()));
  if (stats)
    summary.print();
  return {};
}

} // namespace foresight::tools
