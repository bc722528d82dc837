//===- CpuProgram.cpp - A bundle in memory --------------------------------===//
#include "CpuProgram.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace foresight::cpu {

void CpuProgram::Product::prepare(void *const *args, const foresight_step *step,
                                  void *scratch) {
  const Product &self = *static_cast<const Product *>(args[0]);
  self.engine->prepare(self.product, self.tokens(step->tokens), scratch);
}

void CpuProgram::Product::body(void *const *args, const foresight_step *step,
                               void *scratch, int64_t begin, int64_t end) {
  const Product &self = *static_cast<const Product *>(args[0]);
  const int64_t tokens = self.tokens(step->tokens);
  self.engine->compute(self.product, tokens, scratch, begin, end);
  // Work buffers overlap: an earlier one may have left something here.
  if (begin == 0 && self.padded > self.product.n)
    for (int64_t t = 0; t < tokens; ++t)
      std::fill(self.product.y + t * self.product.yStride + self.product.n,
                self.product.y + t * self.product.yStride + self.padded, 0.0f);
}

Result<std::unique_ptr<Program>> CpuProgram::load(const Bundle &bundle,
                                                  const CpuOptions &options,
                                                  const gemm::Engine &engine,
                                                  ThreadPool &pool) {
  const Manifest &manifest = bundle.manifest();
  if (manifest.device != "cpu")
    return makeError(ErrorCode::BadBundle, bundle.path(),
                     ": is for the device '", manifest.device,
                     "', not for a CPU; compile it with --target=cpu");
  if (manifest.generatedWeightBytes != 0)
    return makeError(ErrorCode::BadBundle, bundle.path(),
                     ": holds no weights: only a GPU makes them at load");
  FORESIGHT_TRY(const CodeVariant *variant,
                chooseVariant(bundle, options.variant));
  std::unique_ptr<CpuProgram> program(new CpuProgram(manifest, pool));
  program->variantName = variant->name;
  program->engineName = engine.name();
  FORESIGHT_TRY(program->code, CodeObject::load(bundle, *variant));
  FORESIGHT_CHECK(program->allocateBuffers());
  FORESIGHT_TRY(
      program->weights,
      WeightStore::load(bundle, options.weights, program->memoryBytes(), pool));
  for (const EntryInfo &entry : manifest.entries)
    FORESIGHT_CHECK(program->buildEntry(entry, engine));
  return std::unique_ptr<Program>(std::move(program));
}

Status CpuProgram::allocateBuffers() {
  const Manifest &facts = manifest();
  FORESIGHT_TRY(arena, HugeMemory::allocate(facts.arenaBytes));
  for (const BufferInfo &buffer : facts.buffers) {
    if (buffer.kind == BufferKind::Work) {
      addresses.push_back(arena.data() + buffer.offset);
      continue;
    }
    FORESIGHT_TRY(HugeMemory memory, HugeMemory::allocate(buffer.bytes()));
    addresses.push_back(memory.data());
    ownMemory.push_back(std::move(memory));
  }
  return {};
}

Status CpuProgram::buildEntry(const EntryInfo &info,
                              const gemm::Engine &engine) {
  const Manifest &facts = manifest();
  Entry &entry = entries.emplace_back();
  int64_t scratch = 0;
  for (const StageInfo &stage : info.stages) {
    const KernelInfo &kernel = facts.kernels[static_cast<size_t>(stage.kernel)];
    scratch = std::max(scratch, kernel.scratchBytes);
    Task task{.grain = static_cast<uint32_t>(stage.grain)};
    std::vector<void *> args;
    std::unique_ptr<Product> product;
    if (stage.gemm) {
      product = buildProduct(*stage.gemm, engine);
      // Not always largest for the most tokens: few are packed in another way.
      for (int64_t tokens = 1; tokens <= info.maxTokens; ++tokens)
        scratch =
            std::max(scratch, engine.scratchBytes(product->product,
                                                  product->tokens(tokens)));
      task.prepare = Product::prepare;
      task.body = Product::body;
      task.grain = 1;
      args = {product.get()};
    } else {
      FORESIGHT_TRY(const CodeObject::Functions functions, code.find(kernel));
      task.prepare = functions.prepare;
      task.body = functions.body;
      for (const StageArg &arg : stage.args) {
        const auto index = static_cast<size_t>(arg.index);
        // Code has the type of what it reads; it does not write weights.
        args.push_back(arg.isWeight
                           ? const_cast<std::byte *>(
                                 weights.data() + facts.weights[index].offset)
                           : addresses[index]);
      }
      if (stage.counts >= 0)
        args.push_back(addresses[static_cast<size_t>(stage.counts)]);
    }
    entry.tasks.push_back(task);
    entry.args.push_back(std::move(args));
    entry.products.push_back(std::move(product));
  }
  for (size_t i = 0; i < entry.tasks.size(); ++i)
    entry.tasks[i].args = entry.args[i].data();
  return pool.reserveScratch(scratch);
}

std::unique_ptr<CpuProgram::Product>
CpuProgram::buildProduct(const GemmInfo &gemm,
                         const gemm::Engine &engine) const {
  const Manifest &facts = manifest();
  const auto stride = [&](int64_t buffer) {
    return facts.buffers[static_cast<size_t>(buffer)].rowBytes / 4;
  };
  const auto floats = [&](int64_t buffer) {
    return reinterpret_cast<float *>(addresses[static_cast<size_t>(buffer)]);
  };
  const WeightInfo &weight = facts.weights[static_cast<size_t>(gemm.weight)];
  auto result = std::make_unique<Product>();
  result->engine = &engine;
  result->rows = facts.buffers[static_cast<size_t>(gemm.out)].rows;
  gemm::Product &product = result->product;
  product.n = gemm.n;
  product.k = gemm.k;
  product.layout = gemm.inOut ? gemm::Layout::InOut : gemm::Layout::OutIn;
  product.type = weight.element == Element::F32   ? gemm::WeightType::F32
                 : weight.element == Element::F16 ? gemm::WeightType::F16
                                                  : gemm::WeightType::BF16;
  switch (gemm.activation) {
  case Activation::None:
    product.activation = gemm::Activation::None;
    break;
  case Activation::Relu:
    product.activation = gemm::Activation::Relu;
    break;
  case Activation::Gelu:
    product.activation = gemm::Activation::Gelu;
    break;
  case Activation::GeluTanh:
    product.activation = gemm::Activation::GeluTanh;
    break;
  }
  product.weight = weights.data() + weight.offset;
  product.weightStride = (weight.shape[1] + FORESIGHT_ROW_PAD - 1) /
                         FORESIGHT_ROW_PAD * FORESIGHT_ROW_PAD;
  product.x = floats(gemm.x);
  product.xStride = stride(gemm.x);
  if (gemm.bias >= 0)
    product.bias = reinterpret_cast<const float *>(
        weights.data() + facts.weights[static_cast<size_t>(gemm.bias)].offset);
  if (gemm.residual >= 0) {
    product.residual = floats(gemm.residual);
    product.residualStride = stride(gemm.residual);
  }
  product.y = floats(gemm.out);
  product.yStride = stride(gemm.out);
  result->padded = product.yStride;
  return result;
}

void CpuProgram::setTokens(int64_t entry, int64_t tokens) {
  Entry &state = entries[static_cast<size_t>(entry)];
  if (state.tokens == tokens)
    return;
  state.tokens = tokens;
  const EntryInfo &info = manifest().entries[static_cast<size_t>(entry)];
  for (size_t i = 0; i < state.tasks.size(); ++i) {
    const StageInfo &stage = info.stages[i];
    int64_t units = stage.perToken ? stage.units * tokens : stage.units;
    if (const Product *product = state.products[i].get())
      units = product->engine->units(product->product, product->tokens(tokens));
    state.tasks[i].units = static_cast<uint32_t>(units);
  }
}

void CpuProgram::runTraced(int64_t entry, int64_t stage,
                           const foresight_step &step, RunTrace::Stage *trace) {
  const Task &task =
      entries[static_cast<size_t>(entry)].tasks[static_cast<size_t>(stage)];
  if (!trace)
    return pool.run({&task, 1}, step);
  const auto start = std::chrono::steady_clock::now();
  pool.run({&task, 1}, step);
  const auto end = std::chrono::steady_clock::now();
  trace->nanoseconds =
      std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
  const StageInfo &info = manifest()
                              .entries[static_cast<size_t>(entry)]
                              .stages[static_cast<size_t>(stage)];
  trace->counted = 0;
  if (info.counts >= 0) {
    const auto *counts = reinterpret_cast<const int32_t *>(
        addresses[static_cast<size_t>(info.counts)]);
    for (uint32_t i = 0; i < task.units; ++i)
      trace->counted += counts[i];
  }
  trace->weightBytes = info.weightBytes + trace->counted * info.countBytes;
}

Status CpuProgram::run(int64_t entry, const Step &step,
                       const RunOptions &options) {
  FORESIGHT_CHECK(checkStep(entry, step));
  setTokens(entry, step.tokens);
  const foresight_step now{step.tokens, step.position};
  const std::vector<Task> &tasks = entries[static_cast<size_t>(entry)].tasks;
  if (!options.trace && !options.observer) {
    pool.run(tasks, now);
    return {};
  }
  if (options.trace)
    options.trace->stages.resize(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto stage = static_cast<int64_t>(i);
    runTraced(entry, stage, now,
              options.trace ? &options.trace->stages[i] : nullptr);
    if (options.observer) {
      FORESIGHT_CHECK(options.observer->afterStage(*this, entry, stage, step));
      // The observer may have run a stage of this entry with other tokens.
      setTokens(entry, step.tokens);
    }
  }
  return {};
}

Status CpuProgram::runStage(int64_t entry, int64_t stage, const Step &step,
                            RunTrace::Stage *trace) {
  FORESIGHT_CHECK(checkStage(entry, stage, step));
  setTokens(entry, step.tokens);
  runTraced(entry, stage, {step.tokens, step.position}, trace);
  return {};
}

Status CpuProgram::write(int64_t buffer, int64_t offset,
                         std::span<const std::byte> from) {
  FORESIGHT_CHECK(checkRange(buffer, offset, from.size()));
  std::copy(from.begin(), from.end(),
            addresses[static_cast<size_t>(buffer)] + offset);
  return {};
}

Status CpuProgram::read(int64_t buffer, int64_t offset,
                        std::span<std::byte> to) {
  FORESIGHT_CHECK(checkRange(buffer, offset, to.size()));
  const std::byte *from = addresses[static_cast<size_t>(buffer)] + offset;
  std::copy(from, from + to.size(), to.begin());
  return {};
}

std::span<std::byte> CpuProgram::hostView(int64_t buffer) {
  if (!checkRange(buffer, 0, 0).ok())
    return {};
  const auto index = static_cast<size_t>(buffer);
  return {addresses[index],
          static_cast<size_t>(manifest().buffers[index].bytes())};
}

Status CpuProgram::reset() {
  const Manifest &facts = manifest();
  for (size_t i = 0; i < facts.buffers.size(); ++i) {
    const BufferInfo &buffer = facts.buffers[i];
    if (buffer.kind == BufferKind::State)
      std::memset(addresses[i], 0, static_cast<size_t>(buffer.bytes()));
  }
  return {};
}

std::string CpuProgram::description() const {
  return variantName + " code, " + std::to_string(pool.threads()) +
         (pool.threads() == 1 ? " thread" : " threads") +
         (weights.isCopy() ? ", weights in memory" : ", weights mapped") +
         ", prompt products by " + engineName;
}

int64_t CpuProgram::memoryBytes() const {
  int64_t bytes = weights.memoryBytes() + arena.size();
  for (const HugeMemory &memory : ownMemory)
    bytes += memory.size();
  return bytes;
}

} // namespace foresight::cpu
