//===- Driver.cpp - The CUDA driver, opened at run time -------------------===//
#include "Driver.h"

#include <dlfcn.h>

namespace foresight::cuda {
namespace {

constexpr Status32 kOutOfMemory = 2;

template <typename F> bool find(void *library, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

Result<Driver> openDriver() {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    return makeError(ErrorCode::Resource,
                     "no NVIDIA driver (libcuda.so.1) on this machine: run the "
                     "bundle where there is one, or compile it with "
                     "--target=cpu");
  Driver d{};
  const char *missing = nullptr;
  const auto need = [&](const char *name, auto &function) {
    if (!find(library, name, function) && !missing)
      missing = name;
  };
  need("cuInit", d.init);
  need("cuDriverGetVersion", d.driverGetVersion);
  need("cuGetErrorName", d.getErrorName);
  need("cuGetErrorString", d.getErrorString);
  need("cuDeviceGetCount", d.deviceGetCount);
  need("cuDeviceGet", d.deviceGet);
  need("cuDeviceGetName", d.deviceGetName);
  need("cuDeviceGetAttribute", d.deviceGetAttribute);
  need("cuDevicePrimaryCtxRetain", d.primaryContextRetain);
  need("cuDevicePrimaryCtxRelease_v2", d.primaryContextRelease);
  need("cuCtxSetCurrent", d.contextSetCurrent);
  need("cuMemAlloc_v2", d.memAlloc);
  need("cuMemFree_v2", d.memFree);
  need("cuMemGetInfo_v2", d.memGetInfo);
  need("cuMemHostAlloc", d.memHostAlloc);
  need("cuMemFreeHost", d.memFreeHost);
  need("cuMemHostRegister_v2", d.memHostRegister);
  need("cuMemHostUnregister", d.memHostUnregister);
  need("cuMemcpyHtoDAsync_v2", d.copyToDevice);
  need("cuMemcpyDtoHAsync_v2", d.copyToHost);
  need("cuMemsetD8Async", d.fill8);
  need("cuModuleLoadDataEx", d.moduleLoad);
  need("cuModuleUnload", d.moduleUnload);
  need("cuModuleGetFunction", d.moduleGetFunction);
  need("cuFuncSetAttribute", d.functionSetAttribute);
  need("cuLaunchKernelEx", d.launch);
  need("cuStreamCreate", d.streamCreate);
  need("cuStreamDestroy_v2", d.streamDestroy);
  need("cuStreamSynchronize", d.streamSynchronize);
  need("cuStreamQuery", d.streamQuery);
  need("cuStreamBeginCapture_v2", d.streamBeginCapture);
  need("cuStreamEndCapture", d.streamEndCapture);
  need("cuGraphInstantiateWithFlags", d.graphInstantiate);
  need("cuGraphLaunch", d.graphLaunch);
  need("cuGraphExecDestroy", d.graphExecDestroy);
  need("cuGraphDestroy", d.graphDestroy);
  need("cuEventCreate", d.eventCreate);
  need("cuEventDestroy_v2", d.eventDestroy);
  need("cuEventRecord", d.eventRecord);
  need("cuEventElapsedTime", d.eventElapsed);
  if (missing)
    return makeError(ErrorCode::Resource, "the NVIDIA driver lacks ", missing,
                     ": CUDA 12 or newer is needed");
  FORESIGHT_CHECK(d.check(d.init(0), "start the NVIDIA driver"));
  return d;
}

} // namespace

Result<const Driver *> Driver::open() {
  static const Result<Driver> driver = openDriver();
  if (!driver.ok())
    return driver.error();
  return &*driver;
}

Status Driver::check(Status32 status, const std::string &doing) const {
  if (status == 0)
    return {};
  const char *name = nullptr, *text = nullptr;
  getErrorName(status, &name);
  getErrorString(status, &text);
  return makeError(status == kOutOfMemory ? ErrorCode::Resource
                                          : ErrorCode::Internal,
                   "cannot ", doing, ": ", name ? name : "unknown error", ", ",
                   text ? text : "no description");
}

} // namespace foresight::cuda
