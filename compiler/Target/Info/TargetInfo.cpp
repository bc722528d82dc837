//===- TargetInfo.cpp - What transforms ask a target ----------------------===//

#include "foresight/Target/TargetInfo.h"

#include "foresight/abi/Kernel.h"

using namespace foresight;

TargetInfo::~TargetInfo() = default;

namespace {

/// A few cores that share memory. Reading weights is what costs: to compute a
/// LayerNorm again on every core is cheaper than to wait for one that did.
class CpuTargetInfo : public TargetInfo {
public:
  llvm::StringRef getName() const override { return "cpu"; }
  llvm::StringRef productLibrary(RowCount rows) const override {
    return rows == RowCount::Many ? "gemm" : "";
  }
  bool recomputesNorm(RowCount rows) const override {
    return rows == RowCount::One;
  }
  bool groupsProducts(RowCount rows) const override {
    return rows == RowCount::One;
  }
  // What computes on f32 would only widen them again.
  bool narrowsPromptRows() const override { return false; }
  int64_t mostFewRows() const override { return 0; }
  int64_t promptTokens() const override { return 512; }
  bool appendsInAttention(RowCount rows) const override {
    return rows == RowCount::One;
  }
  // The cores are busy with heads, and fc1's stage reads the scores at once.
  bool predictsBesideAttention() const override { return false; }
  // A core walks either at the speed of memory.
  bool multipliesByRows() const override { return false; }
  int64_t rowPadElements() const override { return FORESIGHT_ROW_PAD; }
  int64_t alignment() const override { return FORESIGHT_ALIGNMENT; }
};

/// Many multiprocessors, and launches that cost as much as reading megabytes:
/// the fewest stages, every block computing what is short for itself.
class CudaTargetInfo : public CpuTargetInfo {
public:
  llvm::StringRef getName() const override { return "cuda"; }
  // Attention leaves most multiprocessors idle, and who knows the rows two
  // stages ahead asks for them before the stage in front has ended.
  bool predictsBesideAttention() const override { return true; }
  // A block of columns reads pieces of rows and its groups' sums must meet.
  bool multipliesByRows() const override { return true; }
  // Weights are what is read, each once for two tiles of eight rows. With more
  // tiles the library is faster.
  int64_t mostFewRows() const override { return 16; }
  bool groupsProducts(RowCount rows) const override {
    return rows != RowCount::Many;
  }
  // A row's keys are its own sequence's.
  bool appendsInAttention(RowCount rows) const override {
    return rows != RowCount::Many;
  }
  // Tensor cores read 16 bits.
  bool narrowsPromptRows() const override { return true; }
  // The library's tiles of 128 x 256 fill the multiprocessors from here on.
  int64_t promptTokens() const override { return 1024; }
};

} // namespace

std::unique_ptr<TargetInfo> foresight::createTargetInfo(llvm::StringRef name) {
  if (name == "cpu")
    return std::make_unique<CpuTargetInfo>();
  if (name == "cuda")
    return std::make_unique<CudaTargetInfo>();
  return nullptr;
}
