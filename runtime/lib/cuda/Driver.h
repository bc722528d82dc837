//===- Driver.h - The CUDA driver, opened at run time -----------*- C++ -*-===//
//
// Only what is called is declared, with the driver's own names and layouts, so
// that no toolkit is needed to build.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RUNTIME_CUDA_DRIVER_H
#define FORESIGHT_RUNTIME_CUDA_DRIVER_H

#include "foresight/support/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace foresight::cuda {

using Status32 = int; ///< CUresult: 0 is success
using DeviceId = int;
using Context = struct ContextTag *;
using Module = struct ModuleTag *;
using Function = struct FunctionTag *;
using Stream = struct StreamTag *;
using Event = struct EventTag *;
using Graph = struct GraphTag *;
using GraphExec = struct GraphExecTag *;
using Pointer = unsigned long long; ///< CUdeviceptr

struct LaunchAttribute {
  uint32_t id;
  char pad[4];
  union {
    char bytes[64];
    int number;
  } value;
};

struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};

constexpr uint32_t kProgrammaticSerialization = 6;
constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;
constexpr int kMaxDynamicShared = 8;
/// What `streamQuery` gives while there is work.
constexpr int kNotReady = 600;
constexpr int kJitErrorLog = 5, kJitErrorLogBytes = 6;

struct Driver {
  Status32 (*init)(unsigned);
  Status32 (*driverGetVersion)(int *);
  Status32 (*getErrorName)(Status32, const char **);
  Status32 (*getErrorString)(Status32, const char **);
  Status32 (*deviceGetCount)(int *);
  Status32 (*deviceGet)(DeviceId *, int);
  Status32 (*deviceGetName)(char *, int, DeviceId);
  Status32 (*deviceGetAttribute)(int *, int, DeviceId);
  Status32 (*primaryContextRetain)(Context *, DeviceId);
  Status32 (*primaryContextRelease)(DeviceId);
  Status32 (*contextSetCurrent)(Context);
  Status32 (*memAlloc)(Pointer *, size_t);
  Status32 (*memFree)(Pointer);
  Status32 (*memGetInfo)(size_t *, size_t *);
  Status32 (*memHostAlloc)(void **, size_t, unsigned);
  Status32 (*memFreeHost)(void *);
  Status32 (*memHostRegister)(void *, size_t, unsigned);
  Status32 (*memHostUnregister)(void *);
  Status32 (*copyToDevice)(Pointer, const void *, size_t, Stream);
  Status32 (*copyToHost)(void *, Pointer, size_t, Stream);
  Status32 (*fill8)(Pointer, unsigned char, size_t, Stream);
  Status32 (*moduleLoad)(Module *, const void *, unsigned, int *, void **);
  Status32 (*moduleUnload)(Module);
  Status32 (*moduleGetFunction)(Function *, Module, const char *);
  Status32 (*functionSetAttribute)(Function, int, int);
  Status32 (*launch)(const LaunchConfig *, Function, void **, void **);
  Status32 (*streamCreate)(Stream *, unsigned);
  Status32 (*streamDestroy)(Stream);
  Status32 (*streamSynchronize)(Stream);
  Status32 (*streamQuery)(Stream);
  Status32 (*streamBeginCapture)(Stream, int);
  Status32 (*streamEndCapture)(Stream, Graph *);
  Status32 (*graphInstantiate)(GraphExec *, Graph, unsigned long long);
  Status32 (*graphLaunch)(GraphExec, Stream);
  Status32 (*graphExecDestroy)(GraphExec);
  Status32 (*graphDestroy)(Graph);
  Status32 (*eventCreate)(Event *, unsigned);
  Status32 (*eventDestroy)(Event);
  Status32 (*eventRecord)(Event, Stream);
  Status32 (*eventElapsed)(float *, Event, Event);

  /// Opens the driver once; fails with Resource where there is none.
  static Result<const Driver *> open();

  /// `ok()` for success, else Resource or Internal with what was being done and
  /// the driver's words.
  Status check(Status32 status, const std::string &doing) const;
};

} // namespace foresight::cuda
#endif
