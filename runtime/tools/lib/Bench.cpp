//===- Bench.cpp - foresight bench ----------------------------------------===//
#include "BenchReport.h"
#include "Commands.h"
#include "Model.h"
#include "Statistics.h"

#include "foresight/sampling/Random.h"
#include "foresight/sampling/Sampler.h"
#include "foresight/support/AtomicFile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

namespace foresight::tools {
namespace {

struct BenchOptions {
  int64_t promptTokens = 128, tokens = 32, repeat = 5, batch = 0;
};

/// The tokens that every run feeds: the same for dense and sparse, so that only
/// the work differs.
struct Sequence {
  std::vector<int32_t> prompt, continuation;
};

/// The prompt is the start of the text or, without one, random ids; the
/// continuation is what the dense model makes of it, greedily.
Result<Sequence> makeSequence(Model &model, const Args &args,
                              const BenchOptions &options) {
  Session &session = *model.session;
  Sequence out;
  if (args.has("text")) {
    FORESIGHT_TRY(const std::string text, readTextFile(args.text("text")));
    FORESIGHT_TRY(const text::Tokenizer tokenizer, model.tokenizer());
    FORESIGHT_TRY(out.prompt, encodeText(tokenizer, text, TextSplit::None,
                                         args.text("text")));
    if (static_cast<int64_t>(out.prompt.size()) < options.promptTokens)
      return makeError(ErrorCode::Usage, args.text("text"), ": has ",
                       out.prompt.size(), " tokens, --prompt-tokens is ",
                       options.promptTokens);
    out.prompt.resize(options.promptTokens);
  } else {
    const auto vocab = static_cast<uint64_t>(model.manifest().model.vocabSize);
    for (int64_t i = 0; i < options.promptTokens; ++i)
      out.prompt.push_back(
          static_cast<int32_t>(sampling::randomBits(1, i) % vocab));
  }
  FORESIGHT_CHECK(session.useDense(true));
  FORESIGHT_CHECK(session.reset());
  FORESIGHT_TRY(auto logits, session.prompt(out.prompt));
  sampling::Sampler greedy({});
  for (int64_t i = 0; i < options.tokens; ++i) {
    FORESIGHT_TRY(const int32_t id, greedy.sample(logits, i));
    out.continuation.push_back(id);
    FORESIGHT_TRY(logits, session.decode(id));
  }
  return out;
}

Status timePrompt(Session &session, const Sequence &sequence,
                  std::vector<double> &seconds) {
  FORESIGHT_CHECK(session.reset());
  const auto start = std::chrono::steady_clock::now();
  FORESIGHT_CHECK(session.prompt(sequence.prompt));
  seconds.push_back(secondsSince(start));
  return {};
}

/// Behind the prompt, with the decoding entry that is asked for.
Status startDecode(Session &session, const Sequence &sequence, bool dense) {
  FORESIGHT_CHECK(
      session.truncate(static_cast<int64_t>(sequence.prompt.size())));
  return session.useDense(dense);
}

/// Has the device decode the continuation by itself, as `foresight run` does,
/// but fed with these tokens. `use(token)` for each step.
Status decodeOnDevice(Session &session, const Sequence &sequence, bool timed,
                      const std::function<void(const PickedToken &)> &use) {
  // The last token that is picked is fed to no step: any will do.
  std::vector<int32_t> fed = sequence.continuation;
  fed.push_back(fed.back());
  FORESIGHT_CHECK(
      session.startTokens({}, static_cast<int64_t>(fed.size()), fed, timed));
  // The first comes from the logits that are there, without a step.
  for (size_t i = 0; i < fed.size(); ++i) {
    FORESIGHT_TRY(const PickedToken token, session.nextToken());
    use(token);
  }
  session.stopTokens();
  return {};
}

/// Decodes the continuation behind the prompt; one time a token.
Status timeDecode(Session &session, const Sequence &sequence, bool dense,
                  std::vector<double> *seconds) {
  FORESIGHT_CHECK(startDecode(session, sequence, dense));
  auto start = std::chrono::steady_clock::now();
  if (seconds && session.picksTokens()) {
    bool isFirst = true;
    return decodeOnDevice(session, sequence, /*timed=*/false,
                          [&](const PickedToken &) {
                            if (!isFirst)
                              seconds->push_back(secondsSince(start));
                            isFirst = false;
                            start = std::chrono::steady_clock::now();
                          });
  }
  for (const int32_t id : sequence.continuation) {
    start = std::chrono::steady_clock::now();
    FORESIGHT_CHECK(session.decode(id));
    if (seconds)
      seconds->push_back(secondsSince(start));
  }
  return {};
}

/// How long the device rests between the last kernel of a step and the first of
/// the next, by its own clock.
Status timeIdle(Session &session, const Sequence &sequence, bool dense,
                std::vector<double> &seconds) {
  FORESIGHT_CHECK(startDecode(session, sequence, dense));
  int64_t ended = 0;
  return decodeOnDevice(
      session, sequence, /*timed=*/true, [&](const PickedToken &token) {
        if (ended != 0)
          seconds.push_back(static_cast<double>(token.begun - ended) * 1e-9);
        ended = token.ended;
      });
}

/// What stages take and read, with a clock reading at each: separate from the
/// times above, which have none.
Status traceDecode(Session &session, const Sequence &sequence, bool dense,
                   DecodeBench &out) {
  session.startTrace();
  const Status status = timeDecode(session, sequence, dense, nullptr);
  session.stopTrace();
  FORESIGHT_CHECK(status);
  if (const SessionTrace *trace = decodeTrace(session))
    out.trace = *trace;
  return {};
}

/// Other prompts of the same length in the other sequences.
Status fillSequences(Session &session, const Sequence &sequence,
                     int64_t batch) {
  std::vector<int32_t> prompt = sequence.prompt;
  for (int64_t i = 0; i < batch; ++i) {
    FORESIGHT_CHECK(session.select(i));
    FORESIGHT_CHECK(session.reset());
    FORESIGHT_CHECK(session.prompt(prompt));
    std::rotate(prompt.begin(), prompt.begin() + 1, prompt.end());
  }
  return session.select(0);
}

/// The same for all sequences together: one time a step.
Status timeBatch(Session &session, const Sequence &sequence, int64_t batch,
                 std::vector<double> *seconds) {
  for (int64_t i = 0; i < batch; ++i) {
    FORESIGHT_CHECK(session.select(i));
    FORESIGHT_CHECK(
        session.truncate(static_cast<int64_t>(sequence.prompt.size())));
  }
  FORESIGHT_CHECK(session.select(0));
  std::vector<Session::BatchRow> rows(static_cast<size_t>(batch));
  for (const int32_t id : sequence.continuation) {
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i] = {static_cast<int64_t>(i), id};
    const auto start = std::chrono::steady_clock::now();
    FORESIGHT_CHECK(session.decodeBatch(rows));
    if (seconds)
      seconds->push_back(secondsSince(start));
  }
  return {};
}

Status benchBatch(Session &session, const Sequence &sequence,
                  const BenchOptions &options, DecodeBench &out) {
  out.dense = true;
  out.batch = options.batch;
  FORESIGHT_CHECK(fillSequences(session, sequence, options.batch));
  for (int64_t i = 0; i < options.repeat; ++i)
    FORESIGHT_CHECK(timeBatch(session, sequence, options.batch, &out.seconds));
  session.startTrace();
  const Status status = timeBatch(session, sequence, options.batch, nullptr);
  session.stopTrace();
  FORESIGHT_CHECK(status);
  out.trace = session.traces().front();
  return {};
}

/// Events of a prompt and of a few decoded tokens for chrome://tracing.
Status writeChromeTrace(Session &session, const Sequence &sequence,
                        bool alsoSparse, const std::string &path) {
  ChromeTrace events;
  FORESIGHT_CHECK(session.reset());
  session.startTrace();
  FORESIGHT_CHECK(session.prompt(sequence.prompt));
  session.stopTrace();
  for (const SessionTrace &trace : session.traces())
    events.add(session.manifest(), trace, "prompt");
  for (const bool dense : {true, false}) {
    if (!dense && !alsoSparse)
      continue;
    FORESIGHT_CHECK(
        session.truncate(static_cast<int64_t>(sequence.prompt.size())));
    FORESIGHT_CHECK(session.useDense(dense));
    for (const int32_t id : sequence.continuation) {
      session.startTrace();
      const auto decoded = session.decode(id);
      session.stopTrace();
      if (!decoded.ok())
        return decoded.error();
      for (const SessionTrace &trace : session.traces())
        events.add(session.manifest(), trace,
                   dense ? "decode dense" : "decode sparse");
    }
  }
  return writeFileAtomically(path, events.json());
}

/// Of tokens and of repetitions; two of them can be added.
constexpr int64_t kMostCount = int64_t{1} << 24;

Status bench(const Args &args) {
  BenchOptions options;
  FORESIGHT_TRY(options.promptTokens,
                args.integer("prompt-tokens", 128, 1, kMostCount));
  FORESIGHT_TRY(options.tokens, args.integer("tokens", 32, 1, kMostCount));
  FORESIGHT_TRY(options.repeat, args.integer("repeat", 5, 1, kMostCount));
  FORESIGHT_TRY(options.batch, args.integer("batch", 0, 1));
  // Found out before the work, not after it.
  if (args.has("trace")) {
    FORESIGHT_TRY(const std::string bundle, bundlePath(args));
    FORESIGHT_CHECK(checkOutput("--trace", args.text("trace"),
                                {bundle, args.text("text")}));
  }
  FORESIGHT_TRY(Model model, loadModel(args, /*measure=*/true));
  Session &session = *model.session;
  if (options.batch > session.sequences())
    return makeError(ErrorCode::Usage, "--batch=", options.batch,
                     ": the bundle takes ", session.sequences(),
                     session.sequences() == 1 ? " sequence" : " sequences",
                     " at once (foresight-compile --max-batch)");
  if (options.batch > 0 && session.decodeBatchEntry() < 0)
    return makeError(ErrorCode::Usage,
                     "--batch: this bundle decodes one sequence at a time; "
                     "compile the model with --max-batch");
  if (options.promptTokens + options.tokens > session.capacity())
    return makeError(ErrorCode::Usage, "--prompt-tokens and --tokens are ",
                     options.promptTokens + options.tokens,
                     " together: the bundle holds ", session.capacity());

  BenchReport report(*model.bundle, *model.program);
  report.promptTokens = options.promptTokens;
  report.tokens = options.tokens;
  report.repeat = options.repeat;
  report.without = args.all("without");
  FORESIGHT_TRY(const int64_t threads,
                args.integer("threads", 0, 1, kMostThreads));
  if (model.manifest().device == "cpu") {
    FORESIGHT_TRY(report.bandwidth,
                  measureReadBandwidth(static_cast<int>(threads)));
  } else {
    report.bandwidth.bytesPerSecond = model.program->readBandwidth();
  }
  FORESIGHT_TRY(const Sequence sequence, makeSequence(model, args, options));

  // Dense and sparse take turns, so that a machine that slows down slows both.
  const bool sparse = model.isSparse();
  report.decodes.resize(sparse ? 2 : 1);
  report.decodes[0].dense = true;
  for (int64_t i = 0; i < options.repeat; ++i) {
    FORESIGHT_CHECK(timePrompt(session, sequence, report.promptSeconds));
    for (DecodeBench &decode : report.decodes)
      FORESIGHT_CHECK(
          timeDecode(session, sequence, decode.dense, &decode.seconds));
  }
  if (session.picksTokens())
    for (DecodeBench &decode : report.decodes)
      FORESIGHT_CHECK(
          timeIdle(session, sequence, decode.dense, decode.idleSeconds));
  for (DecodeBench &decode : report.decodes)
    FORESIGHT_CHECK(traceDecode(session, sequence, decode.dense, decode));
  if (options.batch > 0)
    FORESIGHT_CHECK(
        benchBatch(session, sequence, options, report.batch.emplace()));
  if (args.has("trace"))
    FORESIGHT_CHECK(
        writeChromeTrace(session, sequence, sparse, args.text("trace")));

  std::printf("%s\n", args.has("json") ? dumpJson(report.json(), 2).c_str()
                                       : report.text().c_str());
  return flushOutput();
}

} // namespace

Command benchCommand() {
  return {{"bench", "measure speed", "[BUNDLE] [OPTIONS]",
           "Times the prompt and decoding apart, and beside every sparse time "
           "the dense time of the\nsame bundle for the same tokens: the "
           "continuation that the dense model makes of the\nprompt. GB/s are "
           "weight bytes over time; the share is of the read bandwidth that "
           "this\nrun measures with as many threads.",
           withDeviceOptions({
               {"prompt-tokens", "N", "length of the prompt (default: 128)"},
               {"tokens", "N", "tokens to decode (default: 32)"},
               {"repeat", "N", "how often (default: 5)"},
               {"batch", "N",
                "also decode so many sequences together (a bundle of\n"
                "--max-batch)"},
               {"text", "FILE",
                "take the prompt from a text; without it ids are\nrandom, and "
                "density is not that of text"},
               {"trace", "FILE",
                "also write what every stage took, for chrome://tracing\nor "
                "Perfetto"},
               {"without", "ROLE",
                "on a GPU, do not run stages of a role (see foresight\n"
                "inspect), for the time that they add; may be given again",
                true},
               {"json", nullptr, "print JSON"},
           })},
          bench};
}

} // namespace foresight::tools
