//===- KernelHarness.h - Compile kernels, load and run them -----*- C++ -*-===//
//
// Turns the text of a scheduled module into functions of this process, the way
// a bundle would: lowering, object, shared object, dlopen.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TEST_UNIT_CODEGEN_KERNELHARNESS_H
#define FORESIGHT_TEST_UNIT_CODEGEN_KERNELHARNESS_H

#include "foresight/Conversion/ForesightToCpu/ForesightToCpu.h"
#include "foresight/abi/Kernel.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresight::testing {

/// Zeroed memory, 64-byte aligned, of elements stored as f32, f16, bf16 or i32.
class Memory {
public:
  explicit Memory(int64_t bytes);
  void *data() const { return memory.get(); }
  template <typename T> T *as() const { return static_cast<T *>(data()); }
  int64_t size() const { return bytes; }

private:
  struct Free {
    void operator()(void *p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> memory;
  int64_t bytes;
};

enum class Element { F32, F16, BF16 };
std::string nameOf(Element element);
int64_t bytesOf(Element element);
/// The nearest number that the element type has.
float roundTo(Element element, float value);
void storeAs(Element element, void *base, int64_t index, float value);
float loadAs(Element element, const void *base, int64_t index);

int64_t padded(int64_t columns);
/// `rows` padded rows of f32.
Memory makeRows(int64_t rows, int64_t columns,
                std::span<const float> values = {});
/// A packed weight matrix.
Memory makeMatrix(Element element, int64_t rows, int64_t columns,
                  std::span<const float> values);
/// A packed vector: f32 whatever its type.
Memory makeVector(std::span<const float> values);

/// Uniform in [-1, 1), the same every time.
std::vector<float> randomValues(uint64_t seed, int64_t count,
                                float scale = 1.0f);

class Kernels {
public:
  /// Compiles for `variant`; on failure `error` has the diagnostics.
  static std::unique_ptr<Kernels> compile(const std::string &text,
                                          const CpuVariant &variant,
                                          std::string &error);
  ~Kernels();

  const KernelInfo &info(const std::string &name) const {
    return infos.at(name);
  }
  int64_t unitsOf(const std::string &name, int64_t tokens) const {
    const KernelInfo &i = info(name);
    return i.units * (i.perToken ? tokens : 1);
  }

  /// Runs prepare, then body on ranges of `cut` units (0: all at once), from
  /// the last range to the first, so that an order does not help.
  void run(const std::string &name, std::vector<void *> args,
           foresight_step step, int64_t cut = 0) const;

  /// For benchmarks: the functions themselves.
  foresight_prepare_fn prepareOf(const std::string &name) const;
  foresight_body_fn bodyOf(const std::string &name) const;

private:
  Kernels() = default;
  void *handle = nullptr;
  std::map<std::string, KernelInfo> infos;
};

/// Variants that this machine runs.
std::vector<CpuVariant> runnableVariants();

} // namespace foresight::testing

#endif // FORESIGHT_TEST_UNIT_CODEGEN_KERNELHARNESS_H
