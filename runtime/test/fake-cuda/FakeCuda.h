//===- FakeCuda.h - A driver library for tests without a GPU ----*- C++ -*-===//
//
// A libcuda.so.1 whose GPU is the host: memory is host memory, a stream does
// its work at once, kernels are functions that a test names. A test that links
// it has it found by the runtime under the driver's name. It is a profiler too.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RUNTIME_TEST_FAKECUDA_H
#define FORESIGHT_RUNTIME_TEST_FAKECUDA_H

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace foresight::test {

/// A kernel: how many parameters it has, of 8 bytes each, and what it does.
struct FakeKernel {
  size_t parameters = 0;
  std::function<void(std::span<const uint64_t>)> run;
};

struct FakeCuda {
  std::map<std::string, FakeKernel> kernels;
  int major = 9, minor = 0;
  size_t freeBytes = size_t{1} << 40;
  /// Results of calls, in place of success.
  int launchResult = 0, queryResult = 0, loadTextResult = 0,
      loadBinaryResult = 0;

  /// What was done.
  std::vector<std::string> loaded; ///< the start of each module
  int graphLaunches = 0, copiesToHost = 0;
  /// NVTX ranges as they began, indented by two spaces for each one around.
  std::vector<std::string> ranges;
  size_t openRanges = 0;
};

/// The only one. A test starts from `fakeCuda() = {}`.
FakeCuda &fakeCuda();

} // namespace foresight::test
#endif
