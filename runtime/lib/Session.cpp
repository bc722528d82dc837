//===- Session.cpp - Sequences of tokens ----------------------------------===//
#include "foresight/runtime/Session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

namespace foresight {

int64_t SessionTrace::weightBytes() const {
  int64_t bytes = 0;
  for (const Stage &stage : stages)
    bytes += stage.weightBytes;
  return bytes;
}

Result<Session> Session::create(Program &program) {
  const Manifest &facts = program.manifest();
  Session session;
  session.runs = &program;
  session.prefillEntry = facts.entryIndex("prefill");
  session.sparseEntry = facts.entryIndex("decode");
  const int64_t dense = facts.entryIndex("decode_dense");
  session.denseEntry = dense >= 0 ? dense : session.sparseEntry;
  session.dense = dense < 0;
  session.batchEntry = facts.entryIndex("decode_batch");
  int64_t sequences = 1;
  if (session.batchEntry >= 0)
    sequences =
        facts.entries[static_cast<size_t>(session.batchEntry)].maxTokens;
  session.lengths.resize(static_cast<size_t>(sequences));
  session.batchIds.resize(session.lengths.size());
  session.batchSequences.resize(session.lengths.size());
  // parseManifest has seen to it that both are there.
  int64_t longest = 1;
  for (const EntryInfo &entry : facts.entries)
    longest = std::max(longest, entry.maxTokens);
  session.positions.resize(static_cast<size_t>(longest));
  session.activeNow.resize(facts.selections.size());
  const int64_t logits =
      facts.entries[static_cast<size_t>(session.prefillEntry)].logits;
  if (program.hostView(logits).empty())
    session.logitsCopy.resize(
        static_cast<size_t>(facts.model.vocabSize * sequences));
  // Steps are measured without allocating: room for all of it is made here.
  for (int64_t entry :
       {session.prefillEntry, session.sparseEntry, session.denseEntry,
        std::max<int64_t>(session.batchEntry, 0)})
    session.stepTrace.stages.reserve(
        facts.entries[static_cast<size_t>(entry)].stages.size());
  return session;
}

int64_t Session::capacity() const { return manifest().model.maxSeq; }

Status Session::useDense(bool wanted) {
  if (!wanted && sparseEntry == denseEntry)
    return makeError(ErrorCode::Usage,
                     "this bundle is dense: it has no sparse decoding; compile "
                     "the model with --sparsity=exact or --sparsity=predicted");
  dense = wanted;
  return {};
}

Status Session::checkIds(std::span<const int32_t> ids) const {
  const ModelFacts &model = manifest().model;
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= model.vocabSize)
      return makeError(ErrorCode::Usage, "token id ", ids[i], " (number ", i,
                       " of the prompt) is not in the model's vocabulary: ids "
                       "are 0..",
                       model.vocabSize - 1);
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t tokens = position();
  if (count <= capacity() - tokens)
    return {};
  if (tokens == 0)
    return makeError(ErrorCode::Usage, "a prompt of ", count,
                     " tokens is too long: the model allows ", capacity(),
                     "; shorten it, or compile the model with a larger "
                     "--max-seq if the model has more positions");
  return makeError(ErrorCode::Usage, "the sequence is full: it has ", tokens,
                   " tokens, ", count,
                   " more were given, and the model allows ", capacity());
}

Status Session::chunks(std::span<const int32_t> ids, bool wantLogits) {
  stopTokens();
  if (ids.empty())
    return makeError(ErrorCode::Usage,
                     "the prompt is empty: give at least one token");
  FORESIGHT_CHECK(checkIds(ids));
  const auto chunk = static_cast<size_t>(
      manifest().entries[static_cast<size_t>(prefillEntry)].maxTokens);
  for (size_t done = 0; done < ids.size(); done += chunk) {
    const size_t count = std::min(chunk, ids.size() - done);
    FORESIGHT_CHECK(step(prefillEntry, ids.subspan(done, count),
                         wantLogits && done + count == ids.size()));
  }
  return {};
}

Result<std::span<const float>> Session::prompt(std::span<const int32_t> ids) {
  FORESIGHT_CHECK(chunks(ids, true));
  return lastLogits;
}

Status Session::feed(std::span<const int32_t> ids) {
  lastLogits = {};
  return chunks(ids, false);
}

Status Session::startTokens(const foresight_sampling &sampling, int64_t limit,
                            std::span<const int32_t> forced, bool timed) {
  stopTokens();
  TokenRequest request;
  request.entry = decodeEntry();
  request.sampling = sampling;
  request.position = position();
  // The last one is not fed: it needs no room.
  request.limit = std::min(limit, capacity() - position() + 1);
  request.forced = forced;
  request.timed = timed;
  lastLogits = {};
  FORESIGHT_CHECK(writeSequence(request.entry));
  hasTaken = false;
  FORESIGHT_TRY(stream, runs->pickTokens(request));
  return {};
}

Result<PickedToken> Session::nextToken() {
  if (!stream)
    return makeError(ErrorCode::Usage, "no tokens are being picked");
  FORESIGHT_TRY(const PickedToken token, stream->next());
  lengths[static_cast<size_t>(current)] += hasTaken;
  hasTaken = true;
  return token;
}

void Session::stopTokens() { stream.reset(); }

Result<std::span<const float>> Session::decode(int32_t id) {
  stopTokens();
  FORESIGHT_CHECK(checkIds({&id, 1}));
  FORESIGHT_CHECK(step(decodeEntry(), {&id, 1}, true));
  return lastLogits;
}

Status Session::select(int64_t sequence) {
  if (sequence < 0 || sequence >= sequences())
    return makeError(ErrorCode::Usage, "there is no sequence ", sequence,
                     ": the bundle holds ", sequences(),
                     " (foresight-compile --max-batch)");
  stopTokens();
  current = sequence;
  return {};
}

Status Session::checkRows(std::span<const BatchRow> rows) const {
  const ModelFacts &model = manifest().model;
  if (batchEntry < 0)
    return makeError(ErrorCode::Usage,
                     "this bundle decodes one sequence at a time; compile the "
                     "model with --max-batch");
  if (rows.empty() || std::ssize(rows) > sequences())
    return makeError(ErrorCode::Usage, "a batch of ", rows.size(),
                     ": the bundle takes 1..", sequences(),
                     " sequences at once (foresight-compile --max-batch)");
  for (size_t i = 0; i < rows.size(); ++i) {
    const BatchRow &row = rows[i];
    if (row.sequence < 0 || row.sequence >= sequences())
      return makeError(ErrorCode::Usage, "row ", i, " is of sequence ",
                       row.sequence, ": the bundle holds ", sequences());
    if (row.id < 0 || row.id >= model.vocabSize)
      return makeError(ErrorCode::Usage, "token id ", row.id, " of row ", i,
                       " is not in the model's vocabulary: ids are 0..",
                       model.vocabSize - 1);
    if (lengths[static_cast<size_t>(row.sequence)] >= capacity())
      return makeError(ErrorCode::Usage, "sequence ", row.sequence,
                       " is full: the model allows ", capacity(), " tokens");
    for (size_t j = 0; j < i; ++j)
      if (rows[j].sequence == row.sequence)
        return makeError(ErrorCode::Usage, "rows ", j, " and ", i,
                         " are both of sequence ", row.sequence);
  }
  return {};
}

Status Session::decodeBatch(std::span<const BatchRow> rows) {
  stopTokens();
  FORESIGHT_CHECK(checkRows(rows));
  const EntryInfo &info = manifest().entries[static_cast<size_t>(batchEntry)];
  for (size_t i = 0; i < rows.size(); ++i) {
    batchIds[i] = rows[i].id;
    batchSequences[i] = static_cast<int32_t>(rows[i].sequence);
    positions[i] =
        static_cast<int32_t>(lengths[static_cast<size_t>(rows[i].sequence)]);
  }
  const auto write = [&](int64_t buffer, const std::vector<int32_t> &from) {
    return runs->write(buffer, 0,
                       std::as_bytes(std::span(from.data(), rows.size())));
  };
  FORESIGHT_CHECK(write(info.ids, batchIds));
  FORESIGHT_CHECK(write(info.positions, positions));
  FORESIGHT_CHECK(write(info.sequences, batchSequences));
  FORESIGHT_CHECK(run(batchEntry, {std::ssize(rows), 0}, /*wantLogits=*/true));
  for (const BatchRow &row : rows)
    ++lengths[static_cast<size_t>(row.sequence)];
  return readLogits(batchEntry, std::ssize(rows));
}

std::span<const float> Session::batchLogits(int64_t row) const {
  return allLogits.subspan(static_cast<size_t>(row * logitsStride),
                           static_cast<size_t>(manifest().model.vocabSize));
}

/// Counts what is active in a selection's activations when they have just been
/// computed, before their memory is used for something else.
class Session::ActiveCounter final : public StageObserver {
public:
  ActiveCounter(Session &session, int64_t entry) : session(session) {
    const Manifest &facts = session.manifest();
    counts = entry == session.sparseEntry || entry == session.denseEntry;
    std::fill(session.activeNow.begin(), session.activeNow.end(), -1);
    sparse = entry == session.sparseEntry;
    counts = counts && !facts.selections.empty();
  }

  const std::vector<int64_t> &active() const { return session.activeNow; }

  Status afterStage(Program &program, int64_t entry, int64_t stage,
                    const Step &step) override {
    const std::vector<SelectionInfo> &selections =
        program.manifest().selections;
    for (size_t i = 0; counts && i < selections.size(); ++i)
      if (stage == (sparse ? selections[i].stage : selections[i].denseStage))
        FORESIGHT_CHECK(count(program, selections[i], session.activeNow[i]));
    return session.observer
               ? session.observer->afterStage(program, entry, stage, step)
               : Status();
  }

private:
  Status count(Program &program, const SelectionInfo &selection,
               int64_t &active) {
    const auto neurons = static_cast<size_t>(selection.neurons);
    std::span<const std::byte> bytes = program.hostView(selection.activations);
    if (bytes.empty()) {
      session.activationsCopy.resize(neurons);
      const auto copy =
          std::as_writable_bytes(std::span(session.activationsCopy));
      FORESIGHT_CHECK(program.read(selection.activations, 0, copy));
      bytes = copy;
    }
    const auto *values = reinterpret_cast<const float *>(bytes.data());
    active = std::count_if(values, values + neurons,
                           [](float value) { return value != 0.0f; });
    return {};
  }

  Session &session;
  bool counts = false, sparse = false;
};

Status Session::step(int64_t entry, std::span<const int32_t> ids,
                     bool wantLogits) {
  const EntryInfo &info = manifest().entries[static_cast<size_t>(entry)];
  int64_t &tokens = lengths[static_cast<size_t>(current)];
  const Step now{static_cast<int64_t>(ids.size()), tokens};
  const std::span<int32_t> places(positions.data(), ids.size());
  std::iota(places.begin(), places.end(), static_cast<int32_t>(tokens));
  FORESIGHT_CHECK(runs->write(info.ids, 0, std::as_bytes(ids)));
  FORESIGHT_CHECK(runs->write(info.positions, 0, std::as_bytes(places)));
  FORESIGHT_CHECK(writeSequence(entry));
  FORESIGHT_CHECK(run(entry, now, wantLogits));
  tokens += now.tokens;
  return wantLogits ? readLogits(entry, 1) : Status();
}

/// Says which sequence an entry of one is about, where there are several.
Status Session::writeSequence(int64_t entry) {
  const EntryInfo &info = manifest().entries[static_cast<size_t>(entry)];
  if (info.sequences < 0)
    return {};
  const auto sequence = static_cast<int32_t>(current);
  return runs->write(info.sequences, 0, std::as_bytes(std::span(&sequence, 1)));
}

Status Session::run(int64_t entry, const Step &now, bool wantLogits) {
  if (!tracing)
    return runs->run(entry, now, {nullptr, observer, wantLogits});
  ActiveCounter counter(*this, entry);
  FORESIGHT_CHECK(runs->run(entry, now, {&stepTrace, &counter, wantLogits}));
  record(entry, now, counter.active());
  return {};
}

/// Where the host can see the logits they are used in place.
Status Session::readLogits(int64_t entry, int64_t rows) {
  const int64_t buffer = manifest().entries[static_cast<size_t>(entry)].logits;
  const int64_t rowBytes =
      manifest().buffers[static_cast<size_t>(buffer)].rowBytes;
  const auto vocab = static_cast<size_t>(manifest().model.vocabSize);
  const std::span<std::byte> view = runs->hostView(buffer);
  if (view.empty()) {
    logitsStride = manifest().model.vocabSize;
    for (int64_t row = 0; row < rows; ++row)
      FORESIGHT_CHECK(runs->read(
          buffer, row * rowBytes,
          std::as_writable_bytes(
              std::span(logitsCopy)
                  .subspan(static_cast<size_t>(row) * vocab, vocab))));
    allLogits = logitsCopy;
  } else {
    logitsStride = rowBytes / static_cast<int64_t>(sizeof(float));
    allLogits = {reinterpret_cast<const float *>(view.data()),
                 view.size() / sizeof(float)};
  }
  lastLogits = allLogits.first(vocab);
  return {};
}

void Session::record(int64_t entry, const Step &now,
                     std::span<const int64_t> active) {
  auto found =
      std::find_if(measured.begin(), measured.end(),
                   [&](const SessionTrace &t) { return t.entry == entry; });
  if (found == measured.end())
    found = measured.emplace(measured.end());
  SessionTrace &trace = *found;
  trace.entry = entry;
  trace.steps += 1;
  trace.tokens += now.tokens;
  trace.stages.resize(stepTrace.stages.size());
  for (size_t i = 0; i < trace.stages.size(); ++i) {
    const RunTrace::Stage &stage = stepTrace.stages[i];
    trace.stages[i].nanoseconds += stage.nanoseconds;
    trace.stages[i].weightBytes += stage.weightBytes;
    trace.stages[i].counted += stage.counted;
    trace.nanoseconds += stage.nanoseconds;
  }
  const std::vector<SelectionInfo> &selections = manifest().selections;
  for (size_t i = 0; i < selections.size(); ++i) {
    if (active[i] < 0) // an entry that neither selects nor compares
      return;
    trace.selections.resize(selections.size());
    SessionTrace::Selection &sum = trace.selections[i];
    sum.layer = selections[i].layer;
    sum.neurons = selections[i].neurons;
    sum.active += active[i];
    const auto stage = static_cast<size_t>(selections[i].stage);
    const bool selects =
        entry == sparseEntry &&
        manifest().entries[static_cast<size_t>(entry)].stages[stage].counts >=
            0;
    sum.selected +=
        selects ? stepTrace.stages[stage].counted : selections[i].neurons;
  }
}

void Session::startTrace() {
  measured.clear();
  tracing = true;
}

void Session::stopTrace() { tracing = false; }

Status Session::truncate(int64_t position) {
  stopTokens();
  int64_t &tokens = lengths[static_cast<size_t>(current)];
  if (position < 0 || position > tokens)
    return makeError(ErrorCode::Usage, "cannot go back to token ", position,
                     " of a sequence of ", tokens);
  for (const BufferInfo &buffer : manifest().buffers)
    if (buffer.kind == BufferKind::State && !buffer.kv && position != tokens)
      return makeError(ErrorCode::Unsupported,
                       "this model's state cannot go back to an earlier token");
  tokens = position;
  return {};
}

Status Session::reset() {
  stopTokens();
  // A cache is never read beyond the position: it need not be cleared.
  for (const BufferInfo &buffer : manifest().buffers)
    if (buffer.kind == BufferKind::State && !buffer.kv) {
      FORESIGHT_CHECK(runs->reset());
      break;
    }
  lengths[static_cast<size_t>(current)] = 0;
  lastLogits = {};
  return {};
}

} // namespace foresight
