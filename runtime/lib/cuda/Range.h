//===- Range.h - What the host is doing, for a profiler ---------*- C++ -*-===//
//
// NVTX, NVIDIA's interface to profilers, as far as ranges need it: what its
// headers do, without the toolkit that they are part of. A profiler names a
// library in NVTX_INJECTION64_PATH, which is opened once and gives its
// functions.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RUNTIME_CUDA_RANGE_H
#define FORESIGHT_RUNTIME_CUDA_RANGE_H

namespace foresight::cuda {

/// A range of this thread, within the one that is open, while it lives. Without
/// a profiler it costs the look at a pointer.
class Range {
public:
  explicit Range(const char *name);
  Range(const Range &) = delete;
  Range &operator=(const Range &) = delete;
  ~Range();
};

} // namespace foresight::cuda
#endif
