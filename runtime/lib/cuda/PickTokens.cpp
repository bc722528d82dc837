//===- PickTokens.cpp - Tokens that the GPU picks by itself ---------------===//
//
// A step's graph ends with the kernels of foresight/abi/Sampling.h: they leave
// the token where the next replay reads it, and write it to pinned memory. The
// host keeps a few replays queued, so that none waits for it, and reads tokens
// as they come.
//
//===----------------------------------------------------------------------===//
#include "CudaProgram.h"
#include "Range.h"

#include <atomic>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foresight::cuda {
namespace {

/// Slots of tokens, and replays that are queued beyond the one waited for.
constexpr int64_t kSlots = 64, kAhead = 2;
/// Readings of a slot between two questions whether the GPU still works.
constexpr int kReadings = 4096;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

} // namespace

class CudaProgram::Tokens final : public TokenStream {
public:
  Tokens(CudaProgram &program, const TokenRequest &request, GraphExec graph)
      : program(program), graph(graph),
        name(program.manifest()
                 .entries[static_cast<size_t>(request.entry)]
                 .name),
        limit(request.limit) {}
  ~Tokens() override { program.driver.streamSynchronize(program.stream); }
  Tokens(const Tokens &) = delete;
  Tokens &operator=(const Tokens &) = delete;

  Result<PickedToken> next() override {
    if (taken == limit)
      return makeError(ErrorCode::Usage, "only ", limit,
                       " tokens were asked for");
    const Driver &driver = program.driver;
    // The first was queued by itself.
    for (; queued < limit && queued <= taken + kAhead; ++queued) {
      // Around the launch alone: a profiler shows with it what the GPU does.
      const Range range(name.c_str());
      FORESIGHT_CHECK(driver.check(driver.graphLaunch(graph, program.stream),
                                   "run a step"));
    }
    auto *slots =
        reinterpret_cast<foresight_token *>(program.picking.tokens.data());
    foresight_token &slot = slots[taken % kSlots];
    FORESIGHT_TRY(const uint64_t word, waitFor(slot));
    const auto id = static_cast<int32_t>(word);
    if (id < 0)
      return makeError(ErrorCode::BadBundle, "the logits of token ", taken,
                       " are not all numbers, or none is finite: the model's "
                       "weights are damaged or out of range");
    ++taken;
    return PickedToken{id, static_cast<int64_t>(slot.begun),
                       static_cast<int64_t>(slot.ended)};
  }

private:
  Result<uint64_t> waitFor(foresight_token &slot) const {
    const std::atomic_ref<uint64_t> word(slot.word);
    const auto number = static_cast<uint64_t>(taken) + 1;
    const auto hasCome = [&](uint64_t value) { return value >> 32 == number; };
    while (true) {
      for (int i = 0; i < kReadings; ++i) {
        if (const uint64_t value = word.load(std::memory_order_acquire);
            hasCome(value))
          return value;
        pause();
      }
      const Status32 status = program.driver.streamQuery(program.stream);
      if (status == kNotReady)
        continue;
      FORESIGHT_CHECK(program.driver.check(status, "run a step"));
      if (const uint64_t value = word.load(std::memory_order_acquire);
          hasCome(value))
        return value;
      return makeError(ErrorCode::Internal,
                       "the GPU ended a step without a token");
    }
  }

  CudaProgram &program;
  GraphExec graph;
  const std::string &name; ///< of the entry
  int64_t limit, queued = 1, taken = 0;
};

/// Absent in bundles of older compilers: then the host picks.
void CudaProgram::findPickEntries() {
  const auto find = [&](Function &function, const char *name) {
    return driver.moduleGetFunction(&function, module, name) == 0;
  };
  if (!find(pickLargest, FORESIGHT_PICK_LARGEST) ||
      !find(pickDrawn, FORESIGHT_PICK_DRAWN) ||
      !find(pickBegin, FORESIGHT_PICK_BEGIN))
    pickLargest = nullptr;
}

Status CudaProgram::queuePick(const EntryInfo &info, bool drawn, bool overlap) {
  const BufferInfo &buffer =
      manifest().buffers[static_cast<size_t>(info.logits)];
  const auto address = [&](int64_t index) {
    return addresses[static_cast<size_t>(index)];
  };
  Pointer pointers[] = {address(info.logits),
                        picking.states.data(),
                        picking.sampling.data(),
                        address(info.ids),
                        address(info.positions),
                        stepMemory.data(),
                        reinterpret_cast<Pointer>(picking.tokens.data())};
  int64_t vocabulary = manifest().model.vocabSize, rowBytes = buffer.rowBytes;
  int64_t blocks = (vocabulary + FORESIGHT_PICK_TILE - 1) / FORESIGHT_PICK_TILE;
  int64_t slots = kSlots;
  std::vector<void *> parameters;
  for (Pointer &pointer : pointers)
    parameters.push_back(&pointer);
  for (int64_t *number : {&vocabulary, &rowBytes, &blocks, &slots})
    parameters.push_back(number);
  LaunchConfig config{};
  config.gridX = static_cast<unsigned>(blocks);
  config.gridY = config.gridZ = config.blockY = config.blockZ = 1;
  config.blockX = FORESIGHT_PICK_THREADS;
  config.sharedBytes = FORESIGHT_PICK_SHARED;
  config.stream = stream;
  LaunchAttribute attribute{};
  if (overlap) {
    attribute.id = kProgrammaticSerialization;
    attribute.value.number = 1;
    config.attributes = &attribute;
    config.attributeCount = 1;
  }
  FORESIGHT_CHECK(driver.check(
      driver.launch(&config, pickLargest, parameters.data(), nullptr),
      "find the likeliest token"));
  if (!drawn)
    return {};
  return driver.check(
      driver.launch(&config, pickDrawn, parameters.data(), nullptr),
      "draw a token");
}

Status CudaProgram::queueBegin() {
  LaunchConfig config{1, 1, 1, 1, 1, 1, 0, stream, nullptr, 0};
  Pointer states = picking.states.data();
  void *parameters[] = {&states};
  return driver.check(driver.launch(&config, pickBegin, parameters, nullptr),
                      "note the time");
}

Status CudaProgram::capturePicking(const EntryInfo &info, Entry &entry,
                                   PickKind kind) {
  return capture("entry '" + info.name + "' with its token",
                 entry.picking[kind.index()], [&]() -> Status {
                   if (kind.timed)
                     FORESIGHT_CHECK(queueBegin());
                   for (size_t i = 0; i < entry.stages.size(); ++i)
                     FORESIGHT_CHECK(queueStage(info, entry, i, 1,
                                                overlaps && i > 0,
                                                entry.stages[i].products));
                   return queuePick(info, kind.drawn, overlaps);
                 });
}

/// Memory of the kernels as it is before the first token.
Status CudaProgram::preparePicking(const TokenRequest &request) {
  if (!picking.states.data()) {
    FORESIGHT_TRY(picking.states,
                  DeviceMemory::allocate(driver, sizeof(foresight_pick_state)));
    FORESIGHT_TRY(picking.sampling,
                  DeviceMemory::allocate(driver, sizeof(foresight_sampling)));
    FORESIGHT_TRY(
        picking.tokens,
        PinnedMemory::allocate(driver, kSlots * sizeof(foresight_token)));
  }
  std::memset(picking.tokens.data(), 0,
              static_cast<size_t>(picking.tokens.size()));
  foresight_sampling sampling = request.sampling;
  if (!request.forced.empty()) {
    const std::span<const std::byte> ids = std::as_bytes(request.forced);
    FORESIGHT_TRY(
        picking.forced,
        DeviceMemory::allocate(driver, static_cast<int64_t>(ids.size())));
    FORESIGHT_CHECK(
        driver.check(driver.copyToDevice(picking.forced.data(), ids.data(),
                                         ids.size(), stream),
                     "copy token ids"));
    sampling.forced = picking.forced.data();
  }
  // Ids, positions and the step are written by the kernels; what else a step
  // reads stays as it is.
  FORESIGHT_CHECK(
      queueInputs(manifest().entries[static_cast<size_t>(request.entry)]));
  const auto copy = [&](Pointer to, const auto &value) {
    return driver.check(driver.copyToDevice(to, &value, sizeof(value), stream),
                        "copy how tokens are picked");
  };
  FORESIGHT_CHECK(
      driver.check(driver.fill8(picking.states.data(), 0,
                                sizeof(foresight_pick_state), stream),
                   "clear what picks tokens"));
  FORESIGHT_CHECK(
      copy(picking.states.data() + offsetof(foresight_pick_state, position),
           request.position));
  FORESIGHT_CHECK(copy(picking.sampling.data(), sampling));
  FORESIGHT_CHECK(copy(stepMemory.data(), foresight_step{1, request.position}));
  return finish("start picking tokens");
}

Result<std::unique_ptr<TokenStream>>
CudaProgram::pickTokens(const TokenRequest &request) {
  if (!picksTokens())
    return makeError(ErrorCode::Usage,
                     "the bundle has no code that picks tokens");
  FORESIGHT_CHECK(checkStep(request.entry, {1, request.position - 1}));
  if (request.limit < 1 ||
      request.position + request.limit - 1 > manifest().model.maxSeq)
    return makeError(ErrorCode::Usage, request.limit, " tokens from position ",
                     request.position, " on do not fit a sequence of ",
                     manifest().model.maxSeq);
  if (!request.forced.empty() &&
      static_cast<int64_t>(request.forced.size()) < request.limit)
    return makeError(ErrorCode::Usage, request.forced.size(),
                     " tokens were given, ", request.limit, " asked for");
  FORESIGHT_CHECK(driver.check(driver.contextSetCurrent(gpu.context),
                               "use GPU " + gpu.name));
  FORESIGHT_CHECK(preparePicking(request));
  const EntryInfo &info =
      manifest().entries[static_cast<size_t>(request.entry)];
  Entry &entry = entries[static_cast<size_t>(request.entry)];
  const PickKind kind{request.sampling.scale != 0, request.timed};
  GraphExec &graph = entry.picking[kind.index()];
  if (!graph)
    FORESIGHT_CHECK(capturePicking(info, entry, kind));
  FORESIGHT_CHECK(queuePick(info, kind.drawn, /*overlap=*/false));
  return std::unique_ptr<TokenStream>(
      std::make_unique<Tokens>(*this, request, graph));
}

} // namespace foresight::cuda
