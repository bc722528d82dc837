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

/// What to continue: texts, or the values of --ids. Usage if prompts are given
/// in two ways.
Result<std::vector<std::string>> promptsOf(const Args &args) {
  const int given =
      args.has("prompt") + args.has("prompt-file") + args.has("ids");
  if (given > 1)
    return makeError(ErrorCode::Usage,
                     "give one of --prompt, --prompt-file and --ids");
  if (args.has("ids"))
    return args.all("ids");
  std::vector<std::string> texts = args.all("prompt");
  if (given == 0 && isatty(STDIN_FILENO))
    return makeError(ErrorCode::Usage, "no prompt: give --prompt, "
                                       "--prompt-file, --ids, or text on "
                                       "standard input");
  std::vector<std::string> files = args.all("prompt-file");
  if (given == 0)
    files = {"-"};
  for (const std::string &file : files) {
    FORESIGHT_TRY(std::string text, readTextFile(file));
    texts.push_back(std::move(text));
  }
  for (const std::string &text : texts)
    if (text.empty())
      return makeError(ErrorCode::Usage, "the prompt is empty");
  return texts;
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

/// Prints what is made of one prompt after the other.
class Printer {
public:
  /// `prompts` is how many there are: of one nothing says which it is.
  Printer(Output output, size_t prompts) : output(output), prompts(prompts) {}

  void begin(size_t index) {
    prompt = index;
    first = true;
    if (output == Output::Text && prompts > 1)
      std::printf("%s==> %zu <==\n", prompt ? "\n" : "", prompt);
  }
  Status token(int32_t id, std::string_view text) {
    if (output == Output::Text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
    } else if (output == Output::Ids) {
      if (id >= 0)
        std::printf(first ? "%d" : ",%d", id);
    } else {
      object({{"id", id < 0 ? OrderedJson() : OrderedJson(id)},
              {"text", std::string(text)}});
    }
    first = false;
    return flushOutput();
  }
  Status end(const Summary &summary) {
    if (output == Output::Json)
      object(summary.json());
    else
      std::printf("\n");
    return flushOutput();
  }

private:
  void object(const OrderedJson &members) {
    OrderedJson line;
    if (prompts > 1)
      line["prompt"] = prompt;
    line.update(members);
    std::printf("%s\n", dumpJson(line).c_str());
  }

  Output output;
  size_t prompts, prompt = 0;
  bool first = true;
};

Status run(const Args &args) {
  FORESIGHT_TRY(GenerateOptions options, generateOptions(args));
  FORESIGHT_TRY(const std::string outputName,
                args.choice("output", {"text", "ids", "json"}));
  Output output = outputName == "text"  ? Output::Text
                  : outputName == "ids" ? Output::Ids
                                        : Output::Json;
  FORESIGHT_TRY(const std::vector<std::string> prompts, promptsOf(args));
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
  // A prompt that is wrong is found before the first is continued.
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string &prompt : prompts) {
    std::vector<int32_t> ids;
    if (args.has("ids")) {
      FORESIGHT_TRY(ids, parseIds(prompt));
    } else {
      FORESIGHT_TRY(ids, tokenizer->encode(prompt, !args.has("no-special")));
    }
    sequences.push_back(std::move(ids));
  }

  Printer printer(output, sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<int32_t> &ids = sequences[i];
    FORESIGHT_CHECK(session.reset());
    printer.begin(i);
    if (args.has("echo") && output == Output::Text)
      std::fputs(tokenizer->decode(ids, /*skipSpecial=*/true).c_str(), stdout);
    // Measuring stages takes a clock reading each, which only numbers need.
    if (args.has("stats") || output == Output::Json)
      session.startTrace();
    SessionModel source(session);
    FORESIGHT_TRY(const Generated made,
                  generate(source, ids, tokenizer ? &*tokenizer : nullptr,
                           options, [&](int32_t id, std::string_view text) {
                             return printer.token(id, text);
                           }));
    session.stopTrace();
    const Summary summary{made, ids.size(), session};
    FORESIGHT_CHECK(printer.end(summary));
    if (made.finish == Finish::Capacity)
      std::fprintf(stderr,
                   "the sequence is full: the bundle holds %lld tokens "
                   "(foresight-compile --max-seq)\n",
                   static_cast<long long>(session.capacity()));
    if (args.has("stats"))
      summary.print();
  }
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
       "with\n\"done\": true. Of several prompts each is continued by itself, "
       "one after the other:\nas text behind a line ==> N <==, as ids a line "
       "each, as json with \"prompt\": N; N counts\nfrom 0.",
       withDeviceOptions({
           {"prompt", "TEXT", "text to continue; may be given again", true},
           {"prompt-file", "FILE",
            "the same from a file; - is standard "
            "input",
            true},
           {"ids", "2,5,9",
            "token ids to continue, as they are; may be given again", true},
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
