//===- KernelHarness.cpp - Compile kernels, load and run them -------------===//

#include "KernelHarness.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/TargetParser/Host.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using namespace foresight;
using namespace foresight::testing;

Memory::Memory(int64_t bytes) : bytes(bytes) {
  // Large ones in huge pages, as the runtime holds weights.
  constexpr int64_t kHuge = 2 << 20;
  const int64_t align = bytes >= kHuge ? kHuge : FORESIGHT_ALIGNMENT;
  const int64_t size = (bytes + align) / align * align;
  memory.reset(std::aligned_alloc(align, size));
  if (align == kHuge)
    madvise(data(), size, MADV_HUGEPAGE);
  std::memset(data(), 0, size);
}

std::string testing::nameOf(Element element) {
  return element == Element::F32   ? "f32"
         : element == Element::F16 ? "f16"
                                   : "bf16";
}

int64_t testing::bytesOf(Element element) {
  return element == Element::F32 ? 4 : 2;
}

void testing::storeAs(Element element, void *base, int64_t index, float value) {
  if (element == Element::F32) {
    static_cast<float *>(base)[index] = value;
  } else if (element == Element::F16) {
    static_cast<_Float16 *>(base)[index] = static_cast<_Float16>(value);
  } else {
    auto bits = std::bit_cast<uint32_t>(value);
    bits += 0x7fff + (bits >> 16 & 1);
    static_cast<uint16_t *>(base)[index] = static_cast<uint16_t>(bits >> 16);
  }
}

float testing::loadAs(Element element, const void *base, int64_t index) {
  if (element == Element::F32)
    return static_cast<const float *>(base)[index];
  if (element == Element::F16)
    return static_cast<float>(static_cast<const _Float16 *>(base)[index]);
  uint32_t bits = static_cast<const uint16_t *>(base)[index];
  return std::bit_cast<float>(bits << 16);
}

float testing::roundTo(Element element, float value) {
  uint32_t place = 0;
  storeAs(element, &place, 0, value);
  return loadAs(element, &place, 0);
}

int64_t testing::padded(int64_t columns) {
  return (columns + FORESIGHT_ROW_PAD - 1) / FORESIGHT_ROW_PAD *
         FORESIGHT_ROW_PAD;
}

Memory testing::makeMatrix(Element element, int64_t rows, int64_t columns,
                           std::span<const float> values) {
  Memory memory(rows * padded(columns) * bytesOf(element));
  for (int64_t i = 0; i < rows && !values.empty(); ++i)
    for (int64_t k = 0; k < columns; ++k)
      storeAs(element, memory.data(), i * padded(columns) + k,
              values[i * columns + k]);
  return memory;
}

Memory testing::makeRows(int64_t rows, int64_t columns,
                         std::span<const float> values) {
  return makeMatrix(Element::F32, rows, columns, values);
}

Memory testing::makeVector(std::span<const float> values) {
  return makeRows(1, static_cast<int64_t>(values.size()), values);
}

std::vector<float> testing::randomValues(uint64_t seed, int64_t count,
                                         float scale) {
  std::vector<float> values(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float &value : values) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value = scale * (static_cast<float>(state >> 40) / (1 << 23) - 1.0f);
  }
  return values;
}

std::unique_ptr<Kernels> Kernels::compile(const std::string &text,
                                          const CpuVariant &variant,
                                          std::string &error) {
  MLIRContext context;
  context.loadDialect<ForesightDialect>();
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    error += diagnostic.str() + "\n";
    return success();
  });
  auto module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return nullptr;
  std::unique_ptr<Kernels> kernels(new Kernels);
  for (KernelOp kernel : module->getOps<KernelOp>()) {
    FailureOr<KernelInfo> info = analyzeCpuKernel(kernel);
    if (failed(info))
      return nullptr;
    kernels->infos[kernel.getSymName().str()] = *info;
  }
  OwningOpRef<ModuleOp> lowered;
  SmallVector<char> object, shared;
  if (failed(lowerToCpu(*module, variant, lowered)) ||
      failed(emitCpuCode(*lowered, variant, CpuOutput::Object, object)) ||
      failed(linkSharedObject(object, module->getLoc(), shared)))
    return nullptr;

  char path[] = "/tmp/foresight-kernels-XXXXXX";
  int descriptor = mkstemp(path);
  if (descriptor < 0 || write(descriptor, shared.data(), shared.size()) !=
                            static_cast<ssize_t>(shared.size())) {
    error += "cannot write the shared object";
    return nullptr;
  }
  close(descriptor);
  kernels->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  if (!kernels->handle) {
    error += dlerror();
    return nullptr;
  }
  return kernels;
}

Kernels::~Kernels() {
  if (handle)
    dlclose(handle);
}

foresight_prepare_fn Kernels::prepareOf(const std::string &name) const {
  return reinterpret_cast<foresight_prepare_fn>(
      dlsym(handle, (name + ".prepare").c_str()));
}

foresight_body_fn Kernels::bodyOf(const std::string &name) const {
  return reinterpret_cast<foresight_body_fn>(
      dlsym(handle, (name + ".body").c_str()));
}

void Kernels::run(const std::string &name, std::vector<void *> args,
                  foresight_step step, int64_t cut) const {
  const KernelInfo &facts = info(name);
  Memory scratch(facts.scratchBytes);
  // What a kernel does not write it must not read.
  std::memset(scratch.data(), 0xff, facts.scratchBytes);
  auto prepare = prepareOf(name);
  if ((prepare != nullptr) != facts.hasPrepare)
    abort();
  if (prepare)
    prepare(args.data(), &step, scratch.data());
  int64_t units = unitsOf(name, step.tokens);
  if (cut == 0)
    cut = units;
  for (int64_t begin = (units - 1) / cut * cut; begin >= 0; begin -= cut)
    bodyOf(name)(args.data(), &step, scratch.data(), begin,
                 std::min(begin + cut, units));
}

std::vector<CpuVariant> testing::runnableVariants() {
  std::string error;
  llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  std::vector<CpuVariant> variants;
  auto all = cpuVariants("cpu", error);
  for (const CpuVariant &variant : *all)
    if (std::all_of(variant.features.begin(), variant.features.end(),
                    [&](const std::string &f) { return host.lookup(f); }))
      variants.push_back(variant);
  return variants;
}
