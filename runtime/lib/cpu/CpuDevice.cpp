//===- CpuDevice.cpp - Runs bundles on x86-64 -----------------------------===//
#include "foresight/runtime/CpuDevice.h"

#include "CpuProgram.h"

namespace foresight {
namespace {

/// More threads than any machine has; stops a slip from starting a million.
constexpr int kMostThreads = 1024;

class CpuDevice final : public Device {
public:
  CpuDevice(CpuOptions options, const gemm::Engine &engine, int threads)
      : options(std::move(options)), engine(engine), pool(threads) {}

  std::string_view kind() const override { return "cpu"; }

  Result<std::unique_ptr<Program>> load(const Bundle &bundle) override {
    return cpu::CpuProgram::load(bundle, options, engine, pool);
  }

private:
  CpuOptions options;
  const gemm::Engine &engine;
  cpu::ThreadPool pool;
};

} // namespace

Result<std::unique_ptr<Device>> createCpuDevice(const CpuOptions &options) {
  if (options.threads < 0 || options.threads > kMostThreads)
    return makeError(ErrorCode::Usage, "cannot run ", options.threads,
                     " threads; 1..", kMostThreads,
                     " are possible, 0 means as many as this process may use");
  std::string reason;
  const gemm::Engine *engine = gemm::findEngine(options.gemm, &reason);
  if (!engine)
    return makeError(ErrorCode::Usage, "no prompt products by '", options.gemm,
                     "': ", reason);
  const int threads =
      options.threads > 0 ? options.threads : availableThreads();
  return std::unique_ptr<Device>(
      std::make_unique<CpuDevice>(options, *engine, threads));
}

} // namespace foresight
