//===- CpuProgram.h - A bundle in memory ------------------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_CPU_CPUPROGRAM_H
#define FORESIGHT_RUNTIME_CPU_CPUPROGRAM_H

#include "CodeObject.h"
#include "HugeMemory.h"
#include "ThreadPool.h"
#include "WeightStore.h"

#include "foresight/gemm/Gemm.h"
#include "foresight/runtime/CpuDevice.h"

#include <memory>
#include <vector>

namespace foresight::cpu {

class CpuProgram final : public Program {
public:
  static Result<std::unique_ptr<Program>> load(const Bundle &bundle,
                                               const CpuOptions &options,
                                               const gemm::Engine &engine,
                                               ThreadPool &pool);

  Status run(int64_t entry, const Step &step,
             const RunOptions &options) override;
  Status runStage(int64_t entry, int64_t stage, const Step &step,
                  RunTrace::Stage *trace) override;
  Status write(int64_t buffer, int64_t offset,
               std::span<const std::byte> from) override;
  Status read(int64_t buffer, int64_t offset, std::span<std::byte> to) override;
  std::span<std::byte> hostView(int64_t buffer) override;
  Status reset() override;
  std::string description() const override;
  int64_t memoryBytes() const override;

private:
  /// A product as a task: its one argument.
  struct Product {
    gemm::Product product;
    const gemm::Engine *engine = nullptr;
    int64_t rows = 0;   ///< most rows of the output
    int64_t padded = 0; ///< columns of an output row with padding
    int64_t tokens(int64_t asked) const { return asked < rows ? asked : rows; }
    static void prepare(void *const *args, const foresight_step *step,
                        void *scratch);
    static void body(void *const *args, const foresight_step *step,
                     void *scratch, int64_t begin, int64_t end);
  };
  struct Entry {
    std::vector<Task> tasks;
    std::vector<std::vector<void *>> args;
    std::vector<std::unique_ptr<Product>> products; ///< null: generated
    int64_t tokens = 0; ///< what the tasks' units were computed for
  };

  CpuProgram(const Manifest &manifest, ThreadPool &pool)
      : Program(manifest), pool(pool) {}
  Status allocateBuffers();
  Status buildEntry(const EntryInfo &info, const gemm::Engine &engine);
  std::unique_ptr<Product> buildProduct(const GemmInfo &gemm,
                                        const gemm::Engine &engine) const;
  void setTokens(int64_t entry, int64_t tokens);
  void runTraced(int64_t entry, int64_t stage, const foresight_step &step,
                 RunTrace::Stage *trace);

  ThreadPool &pool;
  CodeObject code;
  WeightStore weights;
  HugeMemory arena;
  std::vector<HugeMemory> ownMemory;  ///< of buffers outside the arena
  std::vector<std::byte *> addresses; ///< of all buffers
  std::vector<Entry> entries;
  std::string variantName, engineName;
};

} // namespace foresight::cpu
#endif
