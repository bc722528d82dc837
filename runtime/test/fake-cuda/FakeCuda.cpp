//===- FakeCuda.cpp - A driver library for tests without a GPU ------------===//
#include "FakeCuda.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

namespace foresight::test {
namespace {

constexpr int kNotFound = 500, kInvalidValue = 1;

struct FakeFunction {
  std::string name;
};
struct FakeModule {
  std::map<std::string, std::unique_ptr<FakeFunction>> functions;
};
using Work = std::function<int()>;
struct FakeGraph {
  std::vector<Work> work;
};

/// What is being captured, if anything is.
FakeGraph *capturing = nullptr;

int submit(Work work) {
  if (!capturing)
    return work();
  capturing->work.push_back(std::move(work));
  return 0;
}

} // namespace

FakeCuda &fakeCuda() {
  static FakeCuda cuda;
  return cuda;
}

} // namespace foresight::test

using namespace foresight::test;

// The driver's names, and its addresses, which are numbers.
// NOLINTBEGIN(readability-identifier-naming, performance-no-int-to-ptr)
extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuGetErrorName(int, const char **name) { return *name = "FAKE_ERROR", 0; }
int cuGetErrorString(int, const char **text) {
  return *text = "a fault that the test asked for", 0;
}
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int) { return *device = 0, 0; }
int cuDeviceGetName(char *name, int bytes, int) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes));
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
  constexpr int kMajor = 75, kMinor = 76;
  *value = attribute == kMajor   ? fakeCuda().major
           : attribute == kMinor ? fakeCuda().minor
                                 : 4;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int) {
  return *context = &fakeCuda(), 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void *) { return 0; }
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
  *pointer = reinterpret_cast<uint64_t>(std::malloc(bytes));
  return 0;
}
int cuMemFree_v2(uint64_t pointer) {
  std::free(reinterpret_cast<void *>(pointer));
  return 0;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) {
  *free = fakeCuda().freeBytes;
  *total = size_t{1} << 40;
  return 0;
}
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
  return *pointer = std::malloc(bytes), 0;
}
int cuMemFreeHost(void *pointer) { return std::free(pointer), 0; }
int cuMemHostRegister_v2(void *, size_t, unsigned) { return 0; }
int cuMemHostUnregister(void *) { return 0; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *) {
  return submit([=] {
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
    return 0;
  });
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *) {
  return submit([=] {
    ++fakeCuda().copiesToHost;
    std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
    return 0;
  });
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *) {
  return submit([=] {
    std::memset(reinterpret_cast<void *>(to), value, bytes);
    return 0;
  });
}

int cuModuleLoadDataEx(FakeModule **module, const void *image, unsigned, int *,
                       void **) {
  const auto *bytes = static_cast<const char *>(image);
  const bool isBinary = std::memcmp(bytes,
                                    "\x7f"
                                    "ELF",
                                    4) == 0;
  fakeCuda().loaded.emplace_back(bytes, 4);
  if (const int result =
          isBinary ? fakeCuda().loadBinaryResult : fakeCuda().loadTextResult)
    return result;
  // Names stand behind ".entry " in text and in the fake's binaries.
  *module = new FakeModule;
  const std::string text(bytes + (isBinary ? 4 : 0));
  const std::string word = ".entry ";
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;) {
    at += word.size();
    const std::string name = text.substr(at, text.find('(', at) - at);
    (*module)->functions[name] =
        std::make_unique<FakeFunction>(FakeFunction{name});
  }
  return 0;
}
int cuModuleUnload(FakeModule *module) { return delete module, 0; }
int cuModuleGetFunction(FakeFunction **function, FakeModule *module,
                        const char *name) {
  const auto found = module->functions.find(name);
  if (found == module->functions.end())
    return kNotFound;
  return *function = found->second.get(), 0;
}
int cuFuncSetAttribute(FakeFunction *, int, int) { return 0; }
int cuLaunchKernelEx(const void *, FakeFunction *function, void **parameters,
                     void **) {
  const auto kernel = fakeCuda().kernels.find(function->name);
  if (kernel == fakeCuda().kernels.end())
    return kInvalidValue;
  // Parameters are read when a launch is queued, as the driver does.
  std::vector<uint64_t> values(kernel->second.parameters);
  for (size_t i = 0; i < values.size(); ++i)
    std::memcpy(&values[i], parameters[i], sizeof(uint64_t));
  return submit([values, run = kernel->second.run] {
    if (fakeCuda().launchResult == 0)
      run(values);
    return fakeCuda().launchResult;
  });
}

int cuStreamCreate(void **stream, unsigned) { return *stream = &fakeCuda(), 0; }
int cuStreamDestroy_v2(void *) { return 0; }
int cuStreamSynchronize(void *) { return 0; }
int cuStreamQuery(void *) { return fakeCuda().queryResult; }
int cuStreamBeginCapture_v2(void *, int) {
  return capturing = new FakeGraph, 0;
}
int cuStreamEndCapture(void *, FakeGraph **graph) {
  *graph = capturing;
  capturing = nullptr;
  return 0;
}
int cuGraphInstantiateWithFlags(FakeGraph **executable, FakeGraph *graph,
                                unsigned long long) {
  return *executable = new FakeGraph(*graph), 0;
}
int cuGraphLaunch(FakeGraph *graph, void *) {
  ++fakeCuda().graphLaunches;
  for (const Work &work : graph->work)
    if (const int result = work())
      return result;
  return 0;
}
int cuGraphExecDestroy(FakeGraph *graph) { return delete graph, 0; }
int cuGraphDestroy(FakeGraph *graph) { return delete graph, 0; }
int cuEventCreate(void **event, unsigned) { return *event = &fakeCuda(), 0; }
int cuEventDestroy_v2(void *) { return 0; }
int cuEventRecord(void *, void *) { return 0; }
int cuEventElapsedTime(float *milliseconds, void *, void *) {
  return *milliseconds = 1, 0;
}

/// As a profiler attaches: it looks for the functions without domains.
int InitializeInjectionNvtx2(const void *(*getTable)(uint32_t)) {
  using Function = void (*)();
  struct Callbacks {
    size_t bytes;
    int (*getModule)(unsigned, Function ***, unsigned *);
  };
  constexpr uint32_t kCallbacks = 1;
  constexpr unsigned kCore = 1, kCoreSize = 16, kPush = 9, kPop = 11;
  const auto *callbacks = static_cast<const Callbacks *>(getTable(kCallbacks));
  Function **places = nullptr;
  unsigned size = 0;
  if (!callbacks || callbacks->bytes < sizeof(Callbacks) ||
      !callbacks->getModule(kCore, &places, &size) || size != kCoreSize ||
      places[0] || places[kCoreSize])
    return 0;
  int (*push)(const char *) = [](const char *name) {
    std::vector<std::string> &ranges = fakeCuda().ranges;
    ranges.push_back(std::string(2 * fakeCuda().openRanges++, ' ') + name);
    return 0;
  };
  int (*pop)() = [] {
    --fakeCuda().openRanges;
    return 0;
  };
  *places[kPush] = reinterpret_cast<Function>(push);
  *places[kPop] = reinterpret_cast<Function>(pop);
  return 1;
}
}
// NOLINTEND(readability-identifier-naming, performance-no-int-to-ptr)
