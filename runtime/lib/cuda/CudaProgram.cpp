//===- CudaProgram.cpp - A bundle in a GPU's memory -----------------------===//
#include "CudaProgram.h"
#include "Range.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace foresight::cuda {
namespace {

/// Graph capture that other threads' calls do not disturb.
constexpr int kCaptureThreadLocal = 1;
constexpr unsigned kNonBlockingStream = 1;
/// Older kernels do not wait for what they depend on.
constexpr int kOverlapCapability = 90;

/// 90 of "sm_90".
int computeCapabilityOf(const CodeVariant &variant) {
  int capability = 0;
  const std::string_view name = variant.name;
  const char *digits = name.data() + name.find('_') + 1;
  std::from_chars(digits, name.data() + name.size(), capability);
  return capability;
}

/// Usage where no stage has one of the roles.
Status checkRoles(const Manifest &manifest,
                  const std::vector<std::string> &roles) {
  for (const std::string &role : roles)
    if (std::ranges::none_of(manifest.entries, [&](const EntryInfo &entry) {
          return std::ranges::count(entry.stages, role, &StageInfo::role) > 0;
        }))
      return makeError(ErrorCode::Usage, "no stage has the role '", role,
                       "': foresight inspect shows them");
  return {};
}

} // namespace

Result<std::unique_ptr<Program>> CudaProgram::load(const Bundle &bundle,
                                                   const Gpu &gpu,
                                                   const CudaOptions &options) {
  const Range range(("load " + bundle.path()).c_str());
  const Manifest &manifest = bundle.manifest();
  if (manifest.device != "cuda")
    return makeError(ErrorCode::BadBundle, bundle.path(),
                     ": is for the device '", manifest.device,
                     "', not for an NVIDIA GPU; compile it with --target=cuda");
  FORESIGHT_CHECK(checkRoles(manifest, options.without));
  std::unique_ptr<CudaProgram> program(new CudaProgram(manifest, gpu, options));
  const Driver &driver = program->driver;
  FORESIGHT_CHECK(driver.check(driver.contextSetCurrent(gpu.context),
                               "use GPU " + gpu.name));
  FORESIGHT_CHECK(program->checkFits(bundle));
  FORESIGHT_CHECK(
      driver.check(driver.streamCreate(&program->stream, kNonBlockingStream),
                   "create a stream"));
  for (Event &event : program->events)
    FORESIGHT_CHECK(
        driver.check(driver.eventCreate(&event, 0), "create an event"));
  FORESIGHT_CHECK(program->loadCode(bundle));
  FORESIGHT_CHECK(program->allocateBuffers());
  FORESIGHT_TRY(program->weights,
                DeviceMemory::allocate(driver, program->weightBytes(bundle)));
  if (manifest.generatedWeightBytes != 0) {
    const Range making("make weights");
    FORESIGHT_CHECK(program->generateWeights());
  } else {
    const Range uploading("upload weights");
    FORESIGHT_CHECK(program->copyWeights(bundle));
  }
  if (options.measure) {
    FORESIGHT_CHECK(program->measureLink());
    FORESIGHT_CHECK(program->measureMemory());
  }
  FORESIGHT_CHECK(program->narrowBiases());
  for (const EntryInfo &entry : manifest.entries)
    FORESIGHT_CHECK(program->buildEntry(entry));
  return std::unique_ptr<Program>(std::move(program));
}

CudaProgram::~CudaProgram() {
  driver.contextSetCurrent(gpu.context);
  if (stream)
    driver.streamSynchronize(stream);
  for (Entry &entry : entries) {
    if (entry.graph)
      driver.graphExecDestroy(entry.graph);
    for (GraphExec graph : entry.picking)
      if (graph)
        driver.graphExecDestroy(graph);
  }
  for (Event event : events)
    if (event)
      driver.eventDestroy(event);
  if (module)
    driver.moduleUnload(module);
  if (stream)
    driver.streamDestroy(stream);
}

/// The whole sum before the first byte is taken: a model that does not fit is
/// told so at once.
Status CudaProgram::checkFits(const Bundle &bundle) const {
  const Manifest &facts = manifest();
  int64_t state = 0, own = 0;
  for (const BufferInfo &buffer : facts.buffers) {
    if (buffer.kind == BufferKind::State)
      state += buffer.bytes();
    else if (buffer.kind != BufferKind::Work)
      own += buffer.bytes();
  }
  const int64_t work = own + facts.arenaBytes + castBytes() + biasBytes();
  size_t free = 0, total = 0;
  FORESIGHT_CHECK(
      driver.check(driver.memGetInfo(&free, &total), "ask for free memory"));
  // Code, the library's workspace and the driver's own needs.
  constexpr int64_t kReserve = 256 << 20;
  const int64_t need = weightBytes(bundle) + state + work + kReserve;
  if (need <= static_cast<int64_t>(free))
    return {};
  return makeError(
      ErrorCode::Resource, bundle.path(), ": needs ", need,
      " bytes of GPU memory: weights ", weightBytes(bundle), ", KV cache ",
      state, ", work ", work, ", reserve ", kReserve, "; ", gpu.name, " has ",
      free, " of ", total,
      " free. A smaller --max-seq or --max-batch makes the KV cache "
      "smaller");
}

int64_t CudaProgram::weightBytes(const Bundle &bundle) const {
  return manifest().generatedWeightBytes != 0
             ? manifest().generatedWeightBytes
             : static_cast<int64_t>(bundle.weights().size());
}

Status CudaProgram::loadCode(const Bundle &bundle) {
  const Manifest &facts = manifest();
  // The best variant that the GPU runs: "sm_90" runs on 90 and above.
  const CodeVariant *best = nullptr;
  int capability = 0;
  for (const CodeVariant &variant : facts.variants)
    if (const int needs = computeCapabilityOf(variant);
        needs <= gpu.computeCapability)
      best = &variant, capability = needs;
  overlaps = options.overlap && capability >= kOverlapCapability;
  if (!best)
    return makeError(
        ErrorCode::BadBundle, bundle.path(), ": holds code for ",
        facts.variants.empty() ? "no GPU" : facts.variants.front().name,
        " and newer; ", gpu.name, " is sm_", gpu.computeCapability);
  FORESIGHT_CHECK(loadModule(bundle, *best));
  // Absent where no product has such weights.
  driver.moduleGetFunction(&castF16, module, "foresight_cast_f16");
  driver.moduleGetFunction(&castBf16, module, "foresight_cast_bf16");
  driver.moduleGetFunction(&gelu, module, "foresight_activate_gelu");
  driver.moduleGetFunction(&geluTanh, module, "foresight_activate_gelu_tanh");
  findPickEntries();
  for (const KernelInfo &kernel : facts.kernels)
    if (kernel.library == "gemm") {
      FORESIGHT_TRY(products, CublasLt::open(driver));
      break;
    }
  return {};
}

/// A cubin runs on chips of its generation, from its own on. What a driver does
/// not take, because it is older than what made it, say, it compiles itself.
Status CudaProgram::loadModule(const Bundle &bundle,
                               const CodeVariant &variant) {
  const auto code = [&](const std::string &name) {
    const auto bytes = bundle.section(bundle::SectionKind::kCode, name);
    // The driver wants PTX with a terminating zero.
    return std::string(reinterpret_cast<const char *>(bytes.data()),
                       bytes.size());
  };
  const std::string binary = code(variant.name + bundle::kCubinSuffix);
  const int made = computeCapabilityOf(variant);
  isCubin = !binary.empty() && made / 10 == gpu.computeCapability / 10 &&
            driver.moduleLoad(&module, binary.data(), 0, nullptr, nullptr) == 0;
  if (isCubin)
    return {};
  const std::string text = code(variant.name);
  std::string log(8192, '\0');
  int keys[] = {kJitErrorLog, kJitErrorLogBytes};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver takes numbers so.
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size())};
  const Status loaded =
      driver.check(driver.moduleLoad(&module, text.c_str(), 2, keys, values),
                   "compile the bundle's PTX");
  if (loaded.ok())
    return {};
  return makeError(loaded.error().code, bundle.path(), ": ",
                   loaded.error().message, "\n", log.c_str());
}

Status CudaProgram::allocateBuffers() {
  const Manifest &facts = manifest();
  const auto zeroed = [&](int64_t bytes) -> Result<DeviceMemory> {
    FORESIGHT_TRY(DeviceMemory memory, DeviceMemory::allocate(driver, bytes));
    if (bytes > 0)
      FORESIGHT_CHECK(driver.check(
          driver.fill8(memory.data(), 0, static_cast<size_t>(bytes), stream),
          "clear GPU memory"));
    return memory;
  };
  FORESIGHT_TRY(arena, zeroed(facts.arenaBytes));
  FORESIGHT_TRY(stepMemory, zeroed(sizeof(foresight_step)));
  FORESIGHT_TRY(stepTwin,
                PinnedMemory::allocate(driver, sizeof(foresight_step)));
  FORESIGHT_TRY(cast, zeroed(castBytes()));
  for (const BufferInfo &buffer : facts.buffers) {
    PinnedMemory twin;
    if (buffer.kind == BufferKind::Work) {
      addresses.push_back(arena.data() + static_cast<Pointer>(buffer.offset));
    } else {
      FORESIGHT_TRY(DeviceMemory memory, zeroed(buffer.bytes()));
      addresses.push_back(memory.data());
      ownMemory.push_back(std::move(memory));
      if (buffer.kind != BufferKind::State) {
        FORESIGHT_TRY(twin, PinnedMemory::allocate(driver, buffer.bytes()));
        std::memset(twin.data(), 0, static_cast<size_t>(buffer.bytes()));
      }
    }
    twins.push_back(std::move(twin));
  }
  return finish("clear GPU memory");
}

Status CudaProgram::buildEntry(const EntryInfo &info) {
  const Manifest &facts = manifest();
  Entry &entry = entries.emplace_back();
  entry.stages.resize(info.stages.size());
  for (size_t i = 0; i < info.stages.size(); ++i) {
    const StageInfo &stage = info.stages[i];
    const KernelInfo &kernel = facts.kernels[static_cast<size_t>(stage.kernel)];
    if (stage.gemm) {
      continue;
    }
    Stage &built = entry.stages[i];
    if (!kernel.launch)
      return makeError(ErrorCode::BadBundle, "kernel '", kernel.name,
                       "' says nothing of its launch");
    const LaunchInfo &launch = *kernel.launch;
    FORESIGHT_CHECK(driver.check(
        driver.moduleGetFunction(&built.function, module, launch.entry.c_str()),
        "find kernel '" + launch.entry + "' of stage '" + stage.name + "'"));
    if (launch.sharedBytes > 0)
      FORESIGHT_CHECK(driver.check(
          driver.functionSetAttribute(built.function, kMaxDynamicShared,
                                      static_cast<int>(launch.sharedBytes)),
          "give stage '" + stage.name + "' " +
              std::to_string(launch.sharedBytes) + " bytes of shared memory"));
    const int64_t blocks =
        launch.blocksPerSm > 0
            ? std::max(launch.blocksPerSm * gpu.multiprocessors, launch.blocks)
            : launch.blocks;
    built.config = {static_cast<unsigned>(blocks),
                    1,
                    1,
                    static_cast<unsigned>(launch.threads),
                    1,
                    1,
                    static_cast<unsigned>(launch.sharedBytes),
                    stream,
                    nullptr,
                    0};
    built.tokensPerBlock = launch.tokensPerBlock;
    built.overlaps = launch.overlaps;
    for (const StageArg &arg : stage.args) {
      const auto index = static_cast<size_t>(arg.index);
      built.pointers.push_back(
          arg.isWeight ? weights.data() +
                             static_cast<Pointer>(facts.weights[index].offset)
                       : addresses[index]);
    }
    if (stage.counts >= 0)
      built.pointers.push_back(addresses[static_cast<size_t>(stage.counts)]);
    built.pointers.push_back(stepMemory.data());
    for (Pointer &pointer : built.pointers)
      built.parameters.push_back(&pointer);
  }
  joinProducts(info, entry);
  if (options.graph && (info.maxTokens == 1 || info.isBatch()))
    return captureGraph(info, entry);
  return {};
}

Status CudaProgram::capture(const std::string &what, GraphExec &executable,
                            const std::function<Status()> &queue) {
  const Range range(("capture " + what).c_str());
  FORESIGHT_CHECK(driver.check(
      driver.streamBeginCapture(stream, kCaptureThreadLocal), "capture"));
  Status queued = queue();
  Graph graph = nullptr;
  Status captured =
      driver.check(driver.streamEndCapture(stream, &graph), "capture " + what);
  if (queued.ok() && captured.ok())
    captured = driver.check(driver.graphInstantiate(&executable, graph, 0),
                            "instantiate " + what);
  if (graph)
    driver.graphDestroy(graph);
  FORESIGHT_CHECK(std::move(queued));
  return captured;
}

Status CudaProgram::captureGraph(const EntryInfo &info, Entry &entry) {
  // The library loads its code at its first call, which no capture may hold.
  for (size_t i = 0; i < entry.stages.size(); ++i)
    if (info.stages[i].gemm)
      FORESIGHT_CHECK(queueStage(info, entry, i, info.maxTokens, false,
                                 entry.stages[i].products));
  FORESIGHT_CHECK(finish("prepare entry '" + info.name + "'"));
  return capture("entry '" + info.name + "'", entry.graph, [&]() -> Status {
    FORESIGHT_CHECK(queueInputs(info));
    for (size_t i = 0; i < entry.stages.size(); ++i)
      // The first kernel waits for copies, which cannot be overlapped. Kernels
      // of a batch skip the rows that a step has not.
      FORESIGHT_CHECK(queueStage(info, entry, i, info.maxTokens,
                                 overlaps && i > 0, entry.stages[i].products));
    return queueLogits(info);
  });
}

Status CudaProgram::queueInputs(const EntryInfo &info) {
  FORESIGHT_CHECK(
      driver.check(driver.copyToDevice(stepMemory.data(), stepTwin.data(),
                                       sizeof(foresight_step), stream),
                   "copy the step"));
  for (int64_t buffer : {info.ids, info.positions, info.sequences}) {
    if (buffer < 0)
      continue;
    const auto index = static_cast<size_t>(buffer);
    const int64_t rows =
        buffer == info.sequences && !info.isBatch() ? 1 : info.maxTokens;
    const BufferInfo &facts = manifest().buffers[index];
    FORESIGHT_CHECK(driver.check(
        driver.copyToDevice(addresses[index], twins[index].data(),
                            static_cast<size_t>(facts.rowBytes * rows), stream),
        "copy token ids"));
  }
  return {};
}

Status CudaProgram::queueLogits(const EntryInfo &info) {
  const auto index = static_cast<size_t>(info.logits);
  const int64_t rows = info.isBatch() ? info.maxTokens : 1;
  return driver.check(
      driver.copyToHost(
          twins[index].data(), addresses[index],
          static_cast<size_t>(manifest().buffers[index].rowBytes * rows),
          stream),
      "copy logits");
}

Status CudaProgram::queueStage(const EntryInfo &info, Entry &entry,
                               size_t index, int64_t tokens, bool overlap,
                               int64_t products) {
  const StageInfo &facts = info.stages[index];
  if (std::ranges::count(options.without, facts.role) > 0)
    return {};
  const Range range(facts.name.c_str());
  // The library may sum in another order for another number of rows: of a batch
  // all are multiplied, whichever are asked for.
  if (facts.gemm)
    return products == 0
               ? Status()
               : queueProduct(info, index, products,
                              info.isBatch() ? info.maxTokens : tokens);
  Stage &stage = entry.stages[index];
  LaunchConfig config = stage.config;
  if (const int64_t each = stage.tokensPerBlock; each > 0)
    config.gridX *= static_cast<unsigned>((tokens + each - 1) / each);
  LaunchAttribute attribute{};
  if (overlap && stage.overlaps) {
    attribute.id = kProgrammaticSerialization;
    attribute.value.number = 1;
    config.attributes = &attribute;
    config.attributeCount = 1;
  }
  std::string where = "launch stage '" + facts.name + "'";
  const Status32 status =
      driver.launch(&config, stage.function, stage.parameters.data(), nullptr);
  if (status != 0)
    for (const std::string &source : facts.sources)
      where += " from " + source;
  return driver.check(status, where);
}

Status CudaProgram::finish(const std::string &doing) {
  return driver.check(driver.streamSynchronize(stream), doing);
}

Status CudaProgram::runTraced(int64_t entry, int64_t stage, int64_t tokens,
                              int64_t products, RunTrace::Stage *trace) {
  const EntryInfo &info = manifest().entries[static_cast<size_t>(entry)];
  const auto index = static_cast<size_t>(stage);
  FORESIGHT_CHECK(driver.check(driver.eventRecord(events[0], stream), "time"));
  FORESIGHT_CHECK(queueStage(info, entries[static_cast<size_t>(entry)], index,
                             tokens, /*overlap=*/false, products));
  FORESIGHT_CHECK(driver.check(driver.eventRecord(events[1], stream), "time"));
  FORESIGHT_CHECK(finish("run stage '" + info.stages[index].name + "'"));
  if (!trace)
    return {};
  float milliseconds = 0;
  FORESIGHT_CHECK(driver.check(
      driver.eventElapsed(&milliseconds, events[0], events[1]), "time"));
  trace->nanoseconds = static_cast<int64_t>(double(milliseconds) * 1e6);
  const StageInfo &facts = info.stages[index];
  trace->counted = 0;
  if (facts.counts >= 0) {
    const int64_t units = facts.perToken ? facts.units * tokens : facts.units;
    std::vector<int32_t> counts(static_cast<size_t>(units));
    FORESIGHT_CHECK(
        read(facts.counts, 0, std::as_writable_bytes(std::span(counts))));
    for (int32_t count : counts)
      trace->counted += count;
  }
  trace->weightBytes = facts.weightBytes + trace->counted * facts.countBytes;
  return {};
}

Status CudaProgram::run(int64_t entryIndex, const Step &step,
                        const RunOptions &runOptions) {
  FORESIGHT_CHECK(checkStep(entryIndex, step));
  FORESIGHT_CHECK(driver.check(driver.contextSetCurrent(gpu.context),
                               "use GPU " + gpu.name));
  const EntryInfo &info = manifest().entries[static_cast<size_t>(entryIndex)];
  Entry &entry = entries[static_cast<size_t>(entryIndex)];
  const Range range(info.name.c_str());
  const foresight_step now{step.tokens, step.position};
  std::memcpy(stepTwin.data(), &now, sizeof(now));
  const bool isWatched = runOptions.trace || runOptions.observer;
  if (entry.graph && !isWatched) {
    FORESIGHT_CHECK(driver.check(driver.graphLaunch(entry.graph, stream),
                                 "launch entry '" + info.name + "'"));
    return finish("run entry '" + info.name + "'");
  }
  FORESIGHT_CHECK(queueInputs(info));
  if (runOptions.trace)
    runOptions.trace->stages.resize(entry.stages.size());
  for (size_t i = 0; i < entry.stages.size(); ++i) {
    // Who looks at stages sees each by itself.
    const int64_t products = runOptions.observer ? 1 : entry.stages[i].products;
    if (!isWatched) {
      FORESIGHT_CHECK(queueStage(info, entry, i, step.tokens, false, products));
      continue;
    }
    const auto stage = static_cast<int64_t>(i);
    FORESIGHT_CHECK(
        runTraced(entryIndex, stage, step.tokens, products,
                  runOptions.trace ? &runOptions.trace->stages[i] : nullptr));
    if (runOptions.observer)
      FORESIGHT_CHECK(
          runOptions.observer->afterStage(*this, entryIndex, stage, step));
  }
  if (runOptions.logits)
    FORESIGHT_CHECK(queueLogits(info));
  return finish("run entry '" + info.name + "'");
}

Status CudaProgram::runStage(int64_t entry, int64_t stage, const Step &step,
                             RunTrace::Stage *trace) {
  FORESIGHT_CHECK(checkStage(entry, stage, step));
  const EntryInfo &info = manifest().entries[static_cast<size_t>(entry)];
  const foresight_step now{step.tokens, step.position};
  std::memcpy(stepTwin.data(), &now, sizeof(now));
  FORESIGHT_CHECK(queueInputs(info));
  FORESIGHT_CHECK(runTraced(entry, stage, step.tokens, 1, trace));
  return {};
}

Status CudaProgram::write(int64_t buffer, int64_t offset,
                          std::span<const std::byte> from) {
  FORESIGHT_CHECK(checkRange(buffer, offset, from.size()));
  const auto index = static_cast<size_t>(buffer);
  // An input travels with the next step; everything else now.
  if (manifest().buffers[index].kind == BufferKind::Input) {
    std::copy(from.begin(), from.end(), twins[index].data() + offset);
    return {};
  }
  FORESIGHT_CHECK(driver.check(
      driver.copyToDevice(addresses[index] + static_cast<Pointer>(offset),
                          from.data(), from.size(), stream),
      "write a buffer"));
  return finish("write a buffer");
}

Status CudaProgram::read(int64_t buffer, int64_t offset,
                         std::span<std::byte> to) {
  FORESIGHT_CHECK(checkRange(buffer, offset, to.size()));
  const auto index = static_cast<size_t>(buffer);
  // Logits have arrived with their step; what was written last is on the host.
  // Counters are outputs too, and stay where they are until somebody asks.
  const bool isLogits = std::any_of(
      manifest().entries.begin(), manifest().entries.end(),
      [&](const EntryInfo &entry) { return entry.logits == buffer; });
  if (isLogits || manifest().buffers[index].kind == BufferKind::Input) {
    const std::byte *from = twins[index].data() + offset;
    std::copy(from, from + to.size(), to.begin());
    return {};
  }
  FORESIGHT_CHECK(driver.check(
      driver.copyToHost(to.data(),
                        addresses[index] + static_cast<Pointer>(offset),
                        to.size(), stream),
      "read a buffer"));
  return finish("read a buffer");
}

Status CudaProgram::reset() {
  const Manifest &facts = manifest();
  for (size_t i = 0; i < facts.buffers.size(); ++i)
    if (facts.buffers[i].kind == BufferKind::State)
      FORESIGHT_CHECK(driver.check(
          driver.fill8(addresses[i], 0,
                       static_cast<size_t>(facts.buffers[i].bytes()), stream),
          "clear a cache"));
  return finish("clear caches");
}

std::string CudaProgram::description() const {
  std::string text =
      gpu.name + ", sm_" + std::to_string(gpu.computeCapability) +
      (isCubin ? ", code from the bundle" : ", code by the driver") +
      (options.graph ? ", decoding as a graph" : ", kernel by kernel") +
      (products ? ", prompt products by cuBLASLt" : "");
  const auto rate = [](double bytesPerSecond) {
    char number[32];
    std::snprintf(number, sizeof(number), "%.1f GB/s", bytesPerSecond * 1e-9);
    return std::string(number);
  };
  if (copyRate > 0)
    text += ", weights copied at " + rate(copyRate);
  if (linkRate > 0)
    text += ", link " + rate(linkRate);
  return text;
}

int64_t CudaProgram::memoryBytes() const {
  int64_t bytes = weights.size() + arena.size() + stepMemory.size() +
                  cast.size() + biases.size();
  for (const DeviceMemory &memory : ownMemory)
    bytes += memory.size();
  return bytes;
}

} // namespace foresight::cuda
