//===- Session.h - Sequences of tokens --------------------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_SESSION_H
#define FORESIGHT_RUNTIME_SESSION_H

#include "foresight/runtime/Device.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace foresight {

/// What was measured since `startTrace`, of the steps of one entry.
struct SessionTrace {
  struct Stage {
    int64_t nanoseconds = 0, weightBytes = 0, counted = 0;
  };
  struct Selection {
    int64_t layer = 0;
    int64_t neurons = 0;
    int64_t selected = 0; ///< neurons whose fc1 row was read, over all steps
    int64_t active = 0;   ///< of these, not zero afterwards
  };
  int64_t entry = -1; ///< index in the manifest
  int64_t steps = 0, tokens = 0;
  int64_t nanoseconds = 0;           ///< in stages
  std::vector<Stage> stages;         ///< one a stage of the entry
  std::vector<Selection> selections; ///< as in the manifest; decoding only
  int64_t weightBytes() const;
};

/// Feeds sequences to a program: keeps their positions, checks limits, cuts
/// prompts into chunks. A bundle of --max-batch holds several; what is about
/// one of them is about the one that `select` names, at first sequence 0. Uses
/// the program's state buffers, so there is one session a program at a time.
/// Move-only, not thread-safe; `program` must outlive it.
class Session {
public:
  /// The next token of a sequence.
  struct BatchRow {
    int64_t sequence = 0;
    int32_t id = 0;
  };

  /// Fails with BadBundle if the bundle lacks the entries a session needs.
  static Result<Session> create(Program &program);

  /// Whether decoding goes through `decode` or `decode_dense`. May change
  /// between any two tokens: both share the KV cache. Always true in a dense
  /// bundle.
  Status useDense(bool dense);
  bool isDense() const { return dense; }

  /// Appends a prompt and computes the logits of its last token, with the
  /// `prefill` entry, in chunks. Usage if it is empty, an id is out of range or
  /// it does not fit; then nothing has changed.
  Result<std::span<const float>> prompt(std::span<const int32_t> ids);
  /// Appends one token and computes its logits, with the decoding entry. Valid
  /// at any position, the first too: this is how `eval` reads a text.
  Result<std::span<const float>> decode(int32_t id);

  /// Sequences that the bundle holds, and rows that `decodeBatch` takes.
  int64_t sequences() const { return static_cast<int64_t>(lengths.size()); }
  Status select(int64_t sequence);
  int64_t selected() const { return current; }
  /// Appends a token to each of several sequences, with the `decode_batch`
  /// entry, which is dense. A row's logits depend neither on the other rows nor
  /// on how many there are nor on its place among them. Usage if a bundle of
  /// one sequence has no such entry, if there are too many rows or none, or if
  /// one is out of range, full or given twice; then nothing has changed.
  Status decodeBatch(std::span<const BatchRow> rows);
  /// Of a row of the last `decodeBatch`. Valid until the next call.
  std::span<const float> batchLogits(int64_t row) const;

  /// `prompt` for who will have the device pick what follows: logits stay
  /// there.
  Status feed(std::span<const int32_t> ids);
  /// Whether the device picks tokens itself.
  bool picksTokens() const { return runs->picksTokens(); }
  /// Has the device go on behind `feed`, for at most `limit` tokens and as far
  /// as the sequence has room. `forced`, `timed`: see TokenRequest.
  Status startTokens(const foresight_sampling &sampling, int64_t limit,
                     std::span<const int32_t> forced = {}, bool timed = false);
  /// The next token. It is part of the sequence once the one behind it has
  /// been taken.
  Result<PickedToken> nextToken();
  /// Forgets what was computed ahead. Every call that computes does so first.
  void stopTokens();

  /// Of the last call; empty before the first. Valid until the next call.
  std::span<const float> logits() const { return lastLogits; }

  /// Tokens in the sequence so far, and how many fit.
  int64_t position() const { return lengths[static_cast<size_t>(current)]; }
  int64_t capacity() const;
  /// Goes back to the first `position` tokens. Later ones are forgotten.
  Status truncate(int64_t position);
  /// Starts a new sequence.
  Status reset();

  /// Called after every stage of every step until set to null.
  void setObserver(StageObserver *now) { observer = now; }

  /// Measures all steps until `stopTrace`. Costs nothing when off.
  void startTrace();
  void stopTrace();
  bool isTracing() const { return tracing; }
  /// One an entry that ran since `startTrace`: prefill and decode apart.
  const std::vector<SessionTrace> &traces() const { return measured; }

  Program &program() const { return *runs; }
  const Manifest &manifest() const { return runs->manifest(); }
  /// Index of the entry that `decode` uses now.
  int64_t decodeEntry() const { return dense ? denseEntry : sparseEntry; }
  /// Index of `decode_batch`, or -1.
  int64_t decodeBatchEntry() const { return batchEntry; }

private:
  Session() = default;
  Status step(int64_t entry, std::span<const int32_t> ids, bool wantLogits);
  Status run(int64_t entry, const Step &step, bool wantLogits);
  Status writeSequence(int64_t entry);
  Status readLogits(int64_t entry, int64_t rows);
  Status chunks(std::span<const int32_t> ids, bool wantLogits);
  Status checkIds(std::span<const int32_t> ids) const;
  Status checkRows(std::span<const BatchRow> rows) const;
  void record(int64_t entry, const Step &step, std::span<const int64_t> active);
  class ActiveCounter;

  Program *runs = nullptr;
  int64_t prefillEntry = -1, sparseEntry = -1, denseEntry = -1, batchEntry = -1;
  bool dense = false;
  bool tracing = false;
  std::vector<int64_t> lengths; ///< one a sequence
  int64_t current = 0;
  std::vector<int32_t> positions, batchIds, batchSequences;
  std::vector<float> logitsCopy;
  std::span<const float> lastLogits;
  /// All rows of the last call, and elements from one to the next.
  std::span<const float> allLogits;
  int64_t logitsStride = 0;
  std::unique_ptr<TokenStream> stream;
  bool hasTaken = false; ///< a token of the stream
  StageObserver *observer = nullptr;
  std::vector<int64_t> activeNow; ///< one a selection; -1: not counted
  std::vector<float> activationsCopy;
  RunTrace stepTrace;
  std::vector<SessionTrace> measured;
};

} // namespace foresight
#endif
