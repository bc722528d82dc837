//===- TestBundle.h - Bundles for tests of the runtime ----------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_TEST_TESTBUNDLE_H
#define FORESIGHT_RUNTIME_TEST_TESTBUNDLE_H

#include "foresight/abi/BundleFormat.h"
#include "foresight/support/Json.h"

#include <cstdint>
#include <string>
#include <vector>

namespace foresight::test {

/// Sections of a bundle, and its bytes as BundleFormat.h lays them out.
struct BundleImage {
  struct Section {
    bundle::SectionKind kind;
    std::string name, bytes;
  };
  std::vector<Section> sections;
  std::string bytes() const;
  /// Offset of a section in `bytes()`.
  size_t offsetOf(bundle::SectionKind kind) const;
};

/// The made-up model of TestKernels.c: a manifest to be changed by tests, its
/// weights and its code.
///   decode        embed, mix (counts), tick, chain x 20, head
///   decode_dense  the same with mix_dense
///   prefill       embed, a product with bias and ReLU, tick, head
struct TestModel {
  static constexpr int64_t kColumns = 64, kVocab = 48, kMaxSeq = 32,
                           kMaxTokens = 4, kChains = 20, kChainUnits = 97;
  TestModel();

  /// Makes it one for a GPU (sm_90): every entry is one kernel, `step(ids,
  /// positions, logits, step)`.
  void targetCuda();

  Json manifest;
  std::vector<float> table, mixWeight, product, bias;
  std::string weights() const;

  /// Buffers and stages of `decode` by name.
  int64_t buffer(const std::string &name) const;
  int64_t stage(const std::string &entry, const std::string &name) const;

  BundleImage image() const;
  BundleImage image(const std::string &code) const;
  /// Writes the bundle to a file of its own in the test's temporary folder.
  std::string write(const std::string &name) const;

  /// Column `c` of what `decode` gives after `embed` and `mix`.
  float embedded(int32_t id, int64_t position, int64_t c) const;
  float mixed(int32_t id, int64_t position, int64_t c) const;
  /// Column `c` of the product in `prefill`.
  float projected(int32_t id, int64_t position, int64_t c) const;
};

/// A path in a folder that is empty when the process starts.
std::string temporaryPath(const std::string &name);
void writeFile(const std::string &path, const std::string &bytes);

} // namespace foresight::test
#endif
