//===- Range.cpp - What the host is doing, for a profiler -----------------===//
#include "Range.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace foresight::cuda {
namespace {

using Function = void (*)();

/// The functions of NVTX come in modules: functions without and with domains,
/// and names of things of CUDA, OpenCL and the CUDA runtime. A profiler may ask
/// for each and fill what it has.
constexpr unsigned kMostFunctions = 16;
constexpr unsigned kModuleSizes[] = {0, 16, 9, 15, 7, 16, 7};
constexpr unsigned kModules = sizeof(kModuleSizes) / sizeof(kModuleSizes[0]);
constexpr unsigned kCore = 1, kPush = 9, kPop = 11;

struct ModuleTable {
  Function functions[kMostFunctions];
  /// Number 0 is none; a null ends the list.
  Function *places[kMostFunctions + 1];
};
ModuleTable modules[kModules];

int getModule(unsigned module, Function ***table, unsigned *size) {
  if (module == 0 || module >= kModules)
    return 0;
  ModuleTable &made = modules[module];
  for (unsigned i = 1; i < kModuleSizes[module]; ++i)
    made.places[i] = &made.functions[i];
  if (size)
    *size = kModuleSizes[module];
  if (table)
    *table = made.places;
  return 1;
}

/// What a profiler may ask for: modules, and the version of NVTX.
const struct {
  size_t bytes;
  int (*getModule)(unsigned, Function ***, unsigned *);
} callbacks = {sizeof(callbacks), getModule};
const struct {
  size_t bytes;
  uint32_t version, reserved;
  void (*setVersion)(uint32_t);
} versions = {sizeof(versions), 3, 0, [](uint32_t) {}};

const void *getTable(uint32_t id) {
  constexpr uint32_t kCallbacks = 1, kVersions = 3;
  return id == kCallbacks  ? static_cast<const void *>(&callbacks)
         : id == kVersions ? static_cast<const void *>(&versions)
                           : nullptr;
}

struct Profiler {
  int (*push)(const char *) = nullptr;
  int (*pop)() = nullptr;
};

Profiler openProfiler() {
  const char *path = std::getenv("NVTX_INJECTION64_PATH");
  void *library = path ? dlopen(path, RTLD_LAZY) : nullptr;
  if (!library)
    return {};
  const auto attach = reinterpret_cast<int (*)(const void *(*)(uint32_t))>(
      dlsym(library, "InitializeInjectionNvtx2"));
  if (!attach || attach(getTable) == 0) {
    dlclose(library);
    return {};
  }
  const Function *functions = modules[kCore].functions;
  // One without the other would leave ranges open.
  if (!functions[kPush] || !functions[kPop])
    return {};
  return {reinterpret_cast<int (*)(const char *)>(functions[kPush]),
          reinterpret_cast<int (*)()>(functions[kPop])};
}

const Profiler &profiler() {
  static const Profiler opened = openProfiler();
  return opened;
}

} // namespace

Range::Range(const char *name) {
  if (profiler().push)
    profiler().push(name);
}

Range::~Range() {
  if (profiler().pop)
    profiler().pop();
}

} // namespace foresight::cuda
