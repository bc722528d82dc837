//===- Run.cpp - foresight run --------------------------------------------===//
#include "BatchGenerate.h"
#include "Commands.h"
#include "Model.h"
#include "RunOutput.h"
#include "TokenSources.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace foresight::tools {
namespace {

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

/// A bundle's tokenizer where text comes or goes: ids need none.
Result<std::optional<text::Tokenizer>> tokenizerFor(const Model &model,
                                                    const Args &args,
                                                    const GenerateOptions &made,
                                                    Output output) {
  std::optional<text::Tokenizer> tokenizer;
  if (!model.bundle->tokenizer().empty() || output == Output::Text ||
      !args.has("ids") || !made.stop.empty()) {
    FORESIGHT_TRY(tokenizer, model.tokenizer());
  }
  return tokenizer;
}

/// How many prompts are decoded together: as many as there are and fit.
Result<int64_t> batchOf(const Args &args, const Session &session,
                        size_t prompts) {
  const int64_t fits = session.sequences();
  FORESIGHT_TRY(const int64_t asked, args.integer("batch", fits, 1));
  if (asked > fits)
    return makeError(ErrorCode::Usage, "--batch=", asked, ": the bundle takes ",
                     fits, fits == 1 ? " sequence" : " sequences",
                     " at once (foresight-compile --max-batch)");
  return std::min(asked, static_cast<int64_t>(prompts));
}

/// One prompt after the other.
Status continueEach(Model &model, const Prompts &prompts,
                    const text::Tokenizer *tokenizer,
                    const GenerateOptions &options, Printer &printer) {
  Session &session = *model.session;
  for (size_t i = 0; i < prompts.size(); ++i) {
    FORESIGHT_CHECK(session.reset());
    FORESIGHT_CHECK(printer.begin(i));
    // Measuring stages takes a clock reading each, which only numbers need, and
    // a device that picks tokens cannot meanwhile.
    if (printer.needsNumbers() && !session.picksTokens())
      session.startTrace();
    const auto source = createTokenSource(session, options.sampler);
    FORESIGHT_TRY(const Generated made,
                  generate(*source, prompts[i], tokenizer, options,
                           [&](int32_t id, std::string_view text) {
                             return printer.token(i, id, text);
                           }));
    session.stopTrace();
    FORESIGHT_CHECK(printer.end(i, {made, prompts[i].size(), session, 0}));
  }
  return {};
}

/// `batch` prompts at a time.
Status continueTogether(Model &model, const Prompts &prompts, int64_t batch,
                        const text::Tokenizer *tokenizer,
                        const GenerateOptions &options, Printer &printer) {
  Session &session = *model.session;
  if (!session.isDense())
    std::fprintf(stderr, "prompts are continued together and dense; --batch=1 "
                         "continues one after the other, sparse\n");
  const auto most = static_cast<size_t>(batch);
  for (size_t first = 0; first < prompts.size(); first += most) {
    const auto group = std::span(prompts).subspan(
        first, std::min(most, prompts.size() - first));
    for (size_t i = 0; i < group.size(); ++i)
      FORESIGHT_CHECK(printer.begin(first + i));
    if (printer.needsNumbers())
      session.startTrace();
    BatchEvents events;
    events.onToken = [&](size_t i, int32_t id, std::string_view text) {
      return printer.token(first + i, id, text);
    };
    events.onEnd = [&](size_t i, const Generated &made) {
      return printer.end(first + i, {made, group[i].size(), session,
                                     static_cast<int64_t>(group.size())});
    };
    FORESIGHT_CHECK(generateBatch(session, group, tokenizer, options, events));
    session.stopTrace();
  }
  return {};
}

Status run(const Args &args) {
  FORESIGHT_TRY(GenerateOptions options, generateOptions(args));
  FORESIGHT_TRY(const std::string outputName,
                args.choice("output", {"text", "ids", "json"}));
  Output output = outputName == "text"  ? Output::Text
                  : outputName == "ids" ? Output::Ids
                                        : Output::Json;
  if (args.has("echo") && output != Output::Text)
    return makeError(ErrorCode::Usage, "--echo is for --output=text");
  if (args.has("no-special") && args.has("ids"))
    return makeError(ErrorCode::Usage,
                     "--no-special is for text; --ids are taken as they are");
  FORESIGHT_TRY(const std::vector<std::string> texts, promptsOf(args));
  FORESIGHT_TRY(Model model, loadModel(args));
  Session &session = *model.session;
  FORESIGHT_TRY(const int64_t batch, batchOf(args, session, texts.size()));
  if (args.has("dense"))
    FORESIGHT_CHECK(session.useDense(true));
  options.eosIds = model.manifest().model.eosTokenIds;
  if (model.bundle->tokenizer().empty() && args.has("ids") &&
      !args.has("output"))
    output = Output::Ids;
  FORESIGHT_TRY(const std::optional<text::Tokenizer> tokenizer,
                tokenizerFor(model, args, options, output));

  // A prompt that is wrong is found before the first is continued.
  Prompts prompts;
  for (const std::string &text : texts) {
    std::vector<int32_t> ids;
    if (args.has("ids")) {
      FORESIGHT_TRY(ids, parseIds(text));
    } else {
      FORESIGHT_TRY(ids, tokenizer->encode(text, !args.has("no-special")));
    }
    prompts.push_back(std::move(ids));
  }
  Printer printer(output, prompts.size(), args.has("stats"));
  if (args.has("echo") && output == Output::Text)
    for (const std::vector<int32_t> &ids : prompts)
      printer.echoes.push_back(tokenizer->decode(ids, /*skipSpecial=*/true));
  const text::Tokenizer *words = tokenizer ? &*tokenizer : nullptr;
  return batch == 1
             ? continueEach(model, prompts, words, options, printer)
             : continueTogether(model, prompts, batch, words, options, printer);
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
           {"batch", "N",
            "prompts to continue together (default: as many as the\nbundle "
            "takes)"},
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
