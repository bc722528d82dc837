//===- Run.cpp - foresight run --------------------------------------------===//
#include "Commands.h"
#include "Generate.h"
#include "Model.h"
#include "Statistics.h"

#include "foresight/support/Json.h"

#include <cstdio>
#include <unistd.h>

namespace foresight::tools {
namespace {

class SessionModel : public TokenModel {
public:
  explicit SessionModel(Session &session) : session(session) {}
  Result<std::span<const float>> prompt(std::span<const int32_t> ids) override {
    return session.prompt(ids);
  }
  Result<std::span<const float>> decode(int32_t id) override {
    return session.decode(id);
  }
  int64_t room() const override {
    return session.capacity() - session.position();
  }

private:
  Session &session;
};

enum class Output { Text, Ids, Json };

Result<GenerateOptions> generateOptions(const Args &args) {
  GenerateOptions options;
  // Asking for a kind of sampling is asking for sampling.
  const bool samples = args.has("top-k") || args.has("top-p");
  FORESIGHT_TRY(options.sampler.temperature,
                args.number("temperature", samples ? 1 : 0));
  FORESIGHT_TRY(options.sampler.topK, args.integer("top-k", 0, 0));
  FORESIGHT_TRY(options.sampler.topP, args.number("top-p", 1));
  FORESIGHT_TRY(const int64_t seed, args.integer("seed", 0, 0));
  options.sampler.seed = static_cast<uint64_t>(seed);
  FORESIGHT_CHECK(sampling::checkOptions(options.sampler));
  FORESIGHT_TRY(options.maxNewTokens, args.integer("max-new-tokens", 128, 0));
  options.stop = args.all("stop");
  options.ignoreEos = args.has("ignore-eos");
  return options;
}

/// The prompt as text, unless --ids gives it; Usage if it is not given once.
Result<std::string> promptText(const Args &args) {
  const int given =
      args.has("prompt") + args.has("prompt-file") + args.has("ids");
  if (given > 1)
    return makeError(ErrorCode::Usage,
                     "give one of --prompt, --prompt-file and --ids");
  if (args.has("ids"))
    return std::string();
  std::string text = args.text("prompt");
  if (args.has("prompt-file")) {
    FORESIGHT_TRY(text, readTextFile(args.text("prompt-file")));
  } else if (given == 0) {
    if (isatty(STDIN_FILENO))
      return makeError(ErrorCode::Usage, "no prompt: give --prompt, "
                                         "--prompt-file, --ids, or text on "
                                         "standard input");
    FORESIGHT_TRY(text, readTextFile("-"));
  }
  if (text.empty())
    return makeError(ErrorCode::Usage, "the prompt is empty");
  return text;
}

/// Milliseconds with three digits that count.
std::string milliseconds(double seconds) {
  return fixed(seconds * 1e3, seconds < 1e-2 ? 2 : seconds < 1 ? 1 : 0) + " ms";
}

struct Summary {
  const Generated &made;
  size_t promptTokens;
  const Session &session;

  double secondsPerToken() const { return medianOf(made.stepSeconds); }
  double bytesPerToken() const {
    for (const SessionTrace &trace : session.traces())
      if (trace.entry == session.decodeEntry() && trace.tokens > 0)
        return static_cast<double>(trace.weightBytes()) / trace.tokens;
    return 0;
  }

  void print() const {
    std::fprintf(stderr, "prompt: %zu tokens, %s\n", promptTokens,
                 milliseconds(made.promptSeconds).c_str());
    if (made.stepSeconds.empty())
      return;
    std::fprintf(stderr,
                 "%s: %zu tokens, %s a token (median), %s tokens/s, %s MB of "
                 "weights read a token\n",
                 session.isDense() ? "dense" : "sparse", made.ids.size(),
                 milliseconds(secondsPerToken()).c_str(),
                 fixed(1 / secondsPerToken(), 1).c_str(),
                 fixed(bytesPerToken() / 1e6, 2).c_str());
  }

  OrderedJson json() const {
    const ModelFacts &model = session.manifest().model;
    OrderedJson out = {{"done", true},
                       {"finish", finishName(made.finish)},
                       {"text", made.text},
                       {"ids", made.ids},
                       {"prompt_tokens", promptTokens},
                       {"decode", session.isDense() ? "dense" : "sparse"},
                       {"prompt_seconds", made.promptSeconds}};
    if (!made.stepSeconds.empty()) {
      out["seconds_per_token"] = secondsPerToken();
      out["weight_bytes_per_token"] = bytesPerToken();
    }
    if (model.synthetic)
      out["note"] = kSyntheticNote;
    return out;
  }
};

Status run(const Args &args) {
  FORESIGHT_TRY(GenerateOptions options, generateOptions(args));
  FORESIGHT_TRY(const std::string outputName,
                args.choice("output", {"text", "ids", "json"}));
  Output output = outputName == "text"  ? Output::Text
                  : outputName == "ids" ? Output::Ids
                                        : Output::Json;
  FORESIGHT_TRY(const std::string prompt, promptText(args));
  FORESIGHT_TRY(Model model, loadModel(args));
  Session &session = *model.session;
  if (args.has("dense"))
    FORESIGHT_CHECK(session.useDense(true));
  options.eosIds = model.manifest().model.eosTokenIds;

  // Ids need no tokenizer unless text is asked for.
  std::optional<text::Tokenizer> tokenizer;
  const bool hasTokenizer = !model.bundle->tokenizer().empty();
  if (!hasTokenizer && args.has("ids") && !args.has("output"))
    output = Output::Ids;
  if (hasTokenizer || output == Output::Text || !args.has("ids") ||
      !options.stop.empty()) {
    FORESIGHT_TRY(tokenizer, model.tokenizer());
  }
  std::vector<int32_t> ids;
  if (args.has("ids")) {
    FORESIGHT_TRY(ids, parseIds(args.text("ids")));
  } else {
    FORESIGHT_TRY(ids, tokenizer->encode(prompt, !args.has("no-special")));
  }

  const bool stats = args.has("stats");
  if (args.has("echo") && output == Output::Text)
    std::fputs(tokenizer->decode(ids, /*skipSpecial=*/true).c_str(), stdout);
  bool first = true;
  const auto show = [&](int32_t id, std::string_view text) -> Status {
    if (output == Output::Text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
    } else if (output == Output::Ids) {
      if (id >= 0)
        std::printf(first ? "%d" : ",%d", id);
    } else {
      const OrderedJson line = {
          {"id", id < 0 ? OrderedJson() : OrderedJson(id)},
          {"text", std::string(text)}};
      std::printf("%s\n", dumpJson(line).c_str());
    }
    first = false;
    return flushOutput();
  };
  // Measuring stages takes a clock reading each, which only numbers need.
  if (stats || output == Output::Json)
    session.startTrace();
  SessionModel source(session);
  FORESIGHT_TRY(
      const Generated made,
      generate(source, ids, tokenizer ? &*tokenizer : nullptr, options, show));
  session.stopTrace();

  const Summary summary{made, ids.size(), session};
  if (output == Output::Json)
    std::printf("%s\n", dumpJson(summary.json()).c_str());
  else
    std::printf("\n");
  FORESIGHT_CHECK(flushOutput());
  if (made.finish == Finish::Capacity)
    std::fprintf(stderr,
                 "the sequence is full: the bundle holds %lld tokens "
                 "(foresight-compile --max-seq)\n",
                 static_cast<long long>(session.capacity()));
  if (stats)
    summary.print();
  return {};
}

} // namespace

Command runCommand() {
  return {
      {"run", "generate text", "[BUNDLE] [OPTIONS]",
       "Streams the continuation of a prompt to standard output.\n"
       "The prompt is --prompt, --prompt-file, --ids, or standard input. "
       "Special tokens written\nin it (</s>) are special. --output=ids "
       "gives ids with commas between; --output=json one\nobject a token "
       "({\"id\", \"text\"}; id null: text held back to the end) and one "
       "with\n\"done\": true.",
       withDeviceOptions({
           {"prompt", "TEXT", "text to continue"},
           {"prompt-file", "FILE",
            "the same from a file; - is standard "
            "input"},
           {"ids", "2,5,9", "token ids to continue, as they are"},
           {"no-special", nullptr,
            "do not put the tokenizer's special tokens (</s>) in\n"
            "front of the prompt"},
           {"max-new-tokens", "N", "most tokens to make (default: 128)"},
           {"temperature", "T", "0: greedy (default); above: sample"},
           {"top-k", "K", "sample from the K likeliest (0: all)"},
           {"top-p", "P",
            "sample from the likeliest that reach P together\n(default: "
            "1)"},
           {"seed", "N", "of the random numbers (default: 0)"},
           {"stop", "TEXT", "end before this text; may be given again", true},
           {"ignore-eos", nullptr, "go on behind an end-of-text token"},
           {"dense", nullptr, "read all weights: decode_dense"},
           {"output", "text|ids|json", "what to print (default: text)"},
           {"echo", nullptr, "print the prompt first (text only)"},
           {"stats", nullptr,
            "also tell, on stderr, tokens/s and weight bytes read a token"},
       })},
      run};
}

} // namespace foresight::tools
