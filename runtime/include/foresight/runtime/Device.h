//===- Device.h - What runs a bundle ----------------------------*- C++ -*-===//
//
// A device makes a `Program` of a bundle: its code, its weights and its buffers
// in the device's memory. A program runs entries; it knows stages, buffers and
// weights, not models.
//
// The order of stages is the bundle's: a stage starts when those in its `after`
// list have finished. Results do not depend on how many threads compute them.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RUNTIME_DEVICE_H
#define FORESIGHT_RUNTIME_DEVICE_H

#include "foresight/abi/Sampling.h"
#include "foresight/runtime/Bundle.h"
#include "foresight/support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace foresight {

/// What one call of an entry computes: `tokens` rows from `position` on.
struct Step {
  int64_t tokens = 1, position = 0;
};

/// What each stage of one call took. Filled by `Program::run` if given.
struct RunTrace {
  struct Stage {
    int64_t nanoseconds = 0;
    int64_t counted = 0;     ///< the stage's counters, summed; 0 if it has none
    int64_t weightBytes = 0; ///< weight_bytes + counted * count_bytes
  };
  std::vector<Stage> stages; ///< one a stage of the entry
};

class Program;

/// Called after each stage of an entry, from the thread that called `run`,
/// while nothing else runs: work buffers hold what the stage left. It may read
/// and write buffers and run single stages. An error ends the call of `run`,
/// which returns it.
class StageObserver {
public:
  virtual ~StageObserver() = default;
  virtual Status afterStage(Program &program, int64_t entry, int64_t stage,
                            const Step &step) = 0;
};

struct RunOptions {
  RunTrace *trace = nullptr;
  StageObserver *observer = nullptr;
  /// Whether the host will read the logits.
  bool logits = true;
};

/// How a device goes on by itself from the logits of the last call of `run`.
struct TokenRequest {
  int64_t entry = -1; ///< that decodes
  foresight_sampling sampling = {};
  int64_t position = 0; ///< of the first token that is picked
  int64_t limit = 0;    ///< most tokens
  /// Fed instead of the tokens picked, if not empty: as many as `limit`.
  std::span<const int32_t> forced = {};
  bool timed = false; ///< costs each step one small kernel
};

struct PickedToken {
  int32_t id = 0;
  /// On the device's clock, in nanoseconds: when its step began (0 for the
  /// first, or if not timed) and when it was picked.
  int64_t begun = 0, ended = 0;
};

/// Tokens that a device picks and feeds to the next step without waiting for
/// the host, a few of them ahead. While it lives nothing else may use the
/// program. Its end waits for what is under way and forgets it.
class TokenStream {
public:
  virtual ~TokenStream() = default;
  /// The next token. BadBundle if the logits are no numbers; Usage behind the
  /// last.
  virtual Result<PickedToken> next() = 0;
};

/// A bundle in a device's memory. Not thread-safe: one call at a time. The
/// bundle must outlive it. Entries are named by their index in the manifest.
class Program {
public:
  virtual ~Program() = default;

  const Manifest &manifest() const { return facts; }

  /// Runs all stages of an entry. Inputs were written by `write`; outputs are
  /// there on return. Allocates no memory.
  virtual Status run(int64_t entry, const Step &step,
                     const RunOptions &options = {}) = 0;
  /// Runs one stage: what it reads must be there. Used to look at a layer in
  /// two ways.
  virtual Status runStage(int64_t entry, int64_t stage, const Step &step,
                          RunTrace::Stage *trace = nullptr) = 0;

  /// Copies to or from a buffer, `offset` bytes from its start.
  virtual Status write(int64_t buffer, int64_t offset,
                       std::span<const std::byte> from) = 0;
  virtual Status read(int64_t buffer, int64_t offset,
                      std::span<std::byte> to) = 0;
  /// A view of a buffer where the host can read and write it; empty on devices
  /// where it cannot. Valid while the program lives.
  virtual std::span<std::byte> hostView(int64_t buffer) { return {}; }

  /// Whether `pickTokens` can be called.
  virtual bool picksTokens() const { return false; }
  virtual Result<std::unique_ptr<TokenStream>>
  pickTokens(const TokenRequest &request) {
    return makeError(ErrorCode::Usage, "this device picks no tokens");
  }

  /// Zeroes state buffers: as after loading.
  virtual Status reset() = 0;

  /// Bytes a second at which a kernel reads the device's memory, where that was
  /// asked for and is not the host's; 0 otherwise.
  virtual double readBandwidth() const { return 0; }

  /// For people: which code, how many threads, where the weights lie.
  virtual std::string description() const = 0;
  /// Device memory that buffers and weights take.
  virtual int64_t memoryBytes() const = 0;

protected:
  explicit Program(const Manifest &manifest) : facts(manifest) {}

  // What the caller may ask for: Usage otherwise.
  Status checkStep(int64_t entry, const Step &step) const;
  Status checkStage(int64_t entry, int64_t stage, const Step &step) const;
  Status checkRange(int64_t buffer, int64_t offset, size_t bytes) const;

private:
  const Manifest &facts;
};

class Device {
public:
  virtual ~Device() = default;

  /// "cpu": bundles for it say so in `target.device`.
  virtual std::string_view kind() const = 0;
  /// Fails with BadBundle if the bundle is for another device or instruction
  /// set or its weights are damaged, with Resource if memory is missing. The
  /// device must outlive the program.
  virtual Result<std::unique_ptr<Program>> load(const Bundle &bundle) = 0;
};

} // namespace foresight
#endif
