//===- CudaDevice.cpp - Runs bundles on NVIDIA GPUs -----------------------===//
#include "foresight/runtime/CudaDevice.h"

#include "CudaProgram.h"

namespace foresight {
namespace {

class CudaDevice final : public Device {
public:
  CudaDevice(cuda::Gpu gpu, cuda::DeviceId id, CudaOptions options)
      : gpu(std::move(gpu)), id(id), options(options) {}
  ~CudaDevice() override { gpu.driver->primaryContextRelease(id); }
  CudaDevice(const CudaDevice &) = delete;
  CudaDevice &operator=(const CudaDevice &) = delete;

  std::string_view kind() const override { return "cuda"; }

  Result<std::unique_ptr<Program>> load(const Bundle &bundle) override {
    return cuda::CudaProgram::load(bundle, gpu, options);
  }

private:
  cuda::Gpu gpu;
  cuda::DeviceId id;
  CudaOptions options;
};

} // namespace

Result<std::unique_ptr<Device>> createCudaDevice(const CudaOptions &options) {
  FORESIGHT_TRY(const cuda::Driver *driver, cuda::Driver::open());
  int count = 0;
  FORESIGHT_CHECK(driver->check(driver->deviceGetCount(&count), "count GPUs"));
  if (options.ordinal < 0 || options.ordinal >= count)
    return makeError(ErrorCode::Resource, "there is no GPU ", options.ordinal,
                     ": this machine has ", count, ", counted from 0");
  cuda::DeviceId id = 0;
  FORESIGHT_CHECK(
      driver->check(driver->deviceGet(&id, options.ordinal), "find the GPU"));
  cuda::Gpu gpu;
  gpu.driver = driver;
  char name[256] = {};
  FORESIGHT_CHECK(
      driver->check(driver->deviceGetName(name, sizeof(name), id), "name it"));
  gpu.name = name;
  int major = 0, minor = 0;
  for (auto [attribute, value] :
       {std::pair{cuda::kMultiprocessors, &gpu.multiprocessors},
        std::pair{cuda::kMajor, &major}, std::pair{cuda::kMinor, &minor}})
    FORESIGHT_CHECK(driver->check(
        driver->deviceGetAttribute(value, attribute, id), "ask the GPU"));
  gpu.computeCapability = 10 * major + minor;
  FORESIGHT_CHECK(driver->check(driver->primaryContextRetain(&gpu.context, id),
                                "start GPU " + gpu.name));
  return std::unique_ptr<Device>(
      std::make_unique<CudaDevice>(std::move(gpu), id, options));
}

} // namespace foresight
