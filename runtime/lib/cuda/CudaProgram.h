//===- CudaProgram.h - A bundle in a GPU's memory ---------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_CUDA_CUDAPROGRAM_H
#define FORESIGHT_RUNTIME_CUDA_CUDAPROGRAM_H

#include "CublasLt.h"
#include "Memory.h"

#include "foresight/abi/Kernel.h"
#include "foresight/runtime/CudaDevice.h"

#include <functional>
#include <map>

namespace foresight::cuda {

/// What a program needs to know of its GPU.
struct Gpu {
  const Driver *driver = nullptr;
  Context context = nullptr;
  std::string name;
  int computeCapability = 0; ///< 90
  int multiprocessors = 0;
};

/// Inputs, the step and the logits have pinned twins on the host. Decoding is
/// one graph launch: copies in, all kernels, the copy of the logits out.
class CudaProgram final : public Program {
public:
  static Result<std::unique_ptr<Program>>
  load(const Bundle &bundle, const Gpu &gpu, const CudaOptions &options);
  ~CudaProgram() override;

  Status run(int64_t entry, const Step &step,
             const RunOptions &options) override;
  Status runStage(int64_t entry, int64_t stage, const Step &step,
                  RunTrace::Stage *trace) override;
  Status write(int64_t buffer, int64_t offset,
               std::span<const std::byte> from) override;
  Status read(int64_t buffer, int64_t offset, std::span<std::byte> to) override;
  bool picksTokens() const override { return pickLargest != nullptr; }
  Result<std::unique_ptr<TokenStream>>
  pickTokens(const TokenRequest &request) override;
  Status reset() override;
  double readBandwidth() const override { return memoryRate; }
  std::string description() const override;
  int64_t memoryBytes() const override;

private:
  struct Stage {
    Function function = nullptr; ///< null for a library stage
    LaunchConfig config{};
    int64_t tokensPerBlock = 0;
    bool overlaps = false;
    std::vector<Pointer> pointers;
    std::vector<void *> parameters;
    /// Of a library stage: products that are computed with this one, or 0 where
    /// an earlier stage does so.
    int64_t products = 1;
  };
  /// Graphs that end with a token differ in how it is picked.
  struct PickKind {
    bool drawn = false, timed = false;
    size_t index() const { return 2 * drawn + timed; }
  };
  struct Entry {
    std::vector<Stage> stages;
    GraphExec graph = nullptr;
    GraphExec picking[4] = {}; ///< captured when first asked for
  };
  /// What the kernels that pick tokens read and write.
  struct PickMemory {
    DeviceMemory states, sampling, forced;
    PinnedMemory tokens;
  };
  class Tokens;

  CudaProgram(const Manifest &manifest, const Gpu &gpu,
              const CudaOptions &options)
      : Program(manifest), gpu(gpu), driver(*gpu.driver), options(options) {}

  Status checkFits(const Bundle &bundle) const;
  Status loadCode(const Bundle &bundle);
  Status loadModule(const Bundle &bundle, const CodeVariant &variant);
  Status allocateBuffers();
  Status copyWeights(const Bundle &bundle);
  Status measureLink();
  Status measureMemory();
  Status generateWeights();
  Status makeWeight(const WeightInfo &weight, const std::string &entry,
                    int64_t blocks, void **parameters);
  int64_t weightBytes(const Bundle &bundle) const;
  Status buildEntry(const EntryInfo &info);
  Status capture(const std::string &what, GraphExec &graph,
                 const std::function<Status()> &queue);
  Status captureGraph(const EntryInfo &info, Entry &entry);
  Status capturePicking(const EntryInfo &info, Entry &entry, PickKind kind);
  void findPickEntries();
  Status queuePick(const EntryInfo &info, bool drawn, bool overlap);
  Status queueBegin();
  Status preparePicking(const TokenRequest &request);
  Status queueInputs(const EntryInfo &info);
  Status queueLogits(const EntryInfo &info);
  Status queueStage(const EntryInfo &info, Entry &entry, size_t stage,
                    int64_t tokens, bool overlap, int64_t products);
  Product productOf(const StageInfo &stage, int64_t tokens) const;
  void joinProducts(const EntryInfo &info, Entry &entry) const;
  Status queueProduct(const EntryInfo &info, size_t stage, int64_t count,
                      int64_t tokens);
  Status queueElementwise(Function function, Pointer from, Pointer to,
                          int64_t count, const std::string &stage);
  Status narrowBiases();
  Status runTraced(int64_t entry, int64_t stage, int64_t tokens,
                   int64_t products, RunTrace::Stage *trace);
  Status finish(const std::string &doing);
  /// Scratch for x of the largest product that is stored in more bits than its
  /// weight, and biases of those whose result is stored in 16, in bytes.
  int64_t castBytes() const;
  int64_t biasBytes() const;

  const Gpu gpu;
  const Driver &driver;
  const CudaOptions options;
  /// Whether kernels may start before those in front have ended.
  bool overlaps = false;
  Module module = nullptr;
  bool isCubin = false; ///< `module` was not compiled by the driver
  Stream stream = nullptr;
  Event events[2] = {};
  Function castF16 = nullptr, castBf16 = nullptr, gelu = nullptr,
           geluTanh = nullptr;
  Function pickLargest = nullptr, pickDrawn = nullptr, pickBegin = nullptr;
  PickMemory picking;
  /// Bytes a second: of the weights as they were copied, of the link; 0 where
  /// not measured.
  double copyRate = 0, linkRate = 0, memoryRate = 0;
  std::unique_ptr<CublasLt> products;
  DeviceMemory weights, arena, stepMemory, cast, biases;
  std::map<int64_t, Pointer> narrowBias; ///< by weight
  std::vector<DeviceMemory> ownMemory;
  std::vector<Pointer> addresses;  ///< one a buffer
  std::vector<PinnedMemory> twins; ///< one a buffer; empty but for in and out
  PinnedMemory stepTwin;
  std::vector<Entry> entries;
};

} // namespace foresight::cuda
#endif
