//===- Session.h - One sequence of tokens -----------------------*- C++ -*-===//
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

/// Feeds a sequence to a program: keeps the position, checks limits, cuts
/// prompts into chunks. Uses the program's state buffers, so there is one
/// session a program at a time. Move-only, not thread-safe; `program` must
/// outlive it.
class Session {
public:
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

  /// Of the last call; empty before the first. Valid until the next call.
  std::span<const float> logits() const { return lastLogits; }

  /// Tokens in the sequence so far, and how many fit.
  int64_t position() const { return tokens; }
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
  /// One an entry that ran since `startTrace`: prefill and decode apart.
  const std::vector<SessionTrace> &traces() const { return measured; }

  Program &program() const { return *runs; }
  const Manifest &manifest() const { return runs->manifest(); }
  /// Index of the entry that `decode` uses now.
  int64_t decodeEntry() const { return dense ? denseEntry : sparseEntry; }

private:
  Session() = default;
  Status step(int64_t entry, std::span<const int32_t> ids, bool wantLogits);
  Status checkIds(std::span<const int32_t> ids) const;
  void record(int64_t entry, const Step &step, std::span<const int64_t> active);
  class ActiveCounter;

  Program *runs = nullptr;
  int64_t prefillEntry = -1, sparseEntry = -1, denseEntry = -1;
  bool dense = false;
  bool tracing = false;
  int64_t tokens = 0;
  std::vector<int32_t> positions;
  std::vector<float> logitsCopy;
  std::span<const float> lastLogits;
  StageObserver *observer = nullptr;
  std::vector<int64_t> activeNow; ///< one a selection; -1: not counted
  std::vector<float> activationsCopy;
  RunTrace stepTrace;
  std::vector<SessionTrace> measured;
};

} // namespace foresight
#endif
