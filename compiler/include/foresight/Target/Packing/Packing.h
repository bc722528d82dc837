//===- Packing.h - The weights section of a bundle --------------*- C++ -*-===//
//
// Every weight that a module uses, converted, transposed, joined or rounded to
// few bits, in the layouts of foresight/abi/BundleFormat.h. Sources are mapped
// and results leave in blocks, so that memory does not grow with the model.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TARGET_PACKING_PACKING_H
#define FORESIGHT_TARGET_PACKING_PACKING_H

#include "foresight/support/Result.h"

#include "mlir/IR/BuiltinOps.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace foresight {

/// One entry of the manifest's `weights`.
struct PackedWeight {
  std::string name;    ///< the symbol
  std::string element; ///< "f32", "f16", "bf16" or "low_bit"
  std::vector<int64_t> shape;
  int64_t bits = 0;    ///< low_bit only
  uint64_t offset = 0; ///< in the section; equal weights share it
  uint64_t bytes = 0;
  std::vector<std::string> tensors; ///< names in the source file
};

struct PackingOptions {
  /// 0: one a processor.
  unsigned threads = 0;
  /// Called now and then from any thread with bytes done and in all.
  std::function<void(uint64_t, uint64_t)> progress;
};

class Packing {
public:
  /// Finds the weights that `get_weight` ops of the module name, opens their
  /// files, checks ranges and shapes, finds weights of equal content, and gives
  /// each its place. With `isGenerated` the sources of low-bit copies too: they
  /// are made where the weights are. The module is not needed afterwards.
  static Result<Packing> plan(mlir::ModuleOp module, bool isGenerated = false);

  Packing(Packing &&) noexcept;
  Packing &operator=(Packing &&) noexcept;
  ~Packing();

  const std::vector<PackedWeight> &weights() const;
  /// The index of a symbol's weight, -1 if the module does not use it.
  int64_t indexOf(const std::string &symbol) const;
  /// Bytes of the section.
  uint64_t bytes() const;
  /// Bytes that equal weights did not take again.
  uint64_t savedBytes() const;

  /// Takes `bytes` at `offset` of the section. Called once for each block of
  /// bundle::kChecksumBlock bytes (the last may be shorter), with offsets that
  /// are multiples of it, in any order and from several threads at once.
  using Sink =
      std::function<Status(uint64_t offset, std::span<const std::byte> bytes)>;
  /// How long `write` would take, from making a few blocks all over the section
  /// and throwing them away. What the disk of the bundle adds is not in it.
  Result<double> estimateSeconds(const PackingOptions &options = {}) const;
  /// Makes the bytes. Fails if a weight is not finite (or not in its packed
  /// element type), naming tensor and index, or with the sink's error.
  Status write(const Sink &sink, const PackingOptions &options = {}) const;

private:
  struct Impl;
  explicit Packing(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace foresight
#endif
