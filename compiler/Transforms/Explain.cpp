//===- Explain.cpp - What a scheduled module consists of ------------------===//

#include "Utils.h"

#include "foresight/Transforms/Passes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

namespace foresight {
#define GEN_PASS_DEF_EXPLAINPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

/// "proof with a copy of 6 bits"
static void printDecision(DictionaryAttr facts, llvm::raw_ostream &os) {
  os << facts.getAs<StringAttr>("rule").getValue();
  if (auto bits = facts.getAs<IntegerAttr>("bits"))
    os << " with a copy of " << bits.getInt() << " bits";
  auto kappa = facts.getAs<FloatAttr>("kappa");
  if (kappa && kappa.getValueAsDouble() < 1)
    os << llvm::format(", kappa %.3f", kappa.getValueAsDouble());
  if (auto lookahead = facts.getAs<StringAttr>("lookahead");
      lookahead && lookahead.getValue() != "here")
    os << ", predicted from " << lookahead.getValue();
  if (auto reason = facts.getAs<StringAttr>("reason"))
    os << " because " << reason.getValue();
}

/// A line for each run of layers that are decoded alike.
static void explainLayers(func::FuncOp decode, llvm::raw_ostream &os) {
  auto decisions = decode->getAttrOfType<ArrayAttr>(kSparsityAttr);
  if (!decisions)
    return;
  struct Run {
    int64_t first, last;
    std::string text;
  };
  SmallVector<Run> runs;
  for (auto facts : decisions.getAsRange<DictionaryAttr>()) {
    if (!facts.getAs<StringAttr>("rule") || !facts.getAs<IntegerAttr>("layer"))
      continue;
    int64_t layer = facts.getAs<IntegerAttr>("layer").getInt();
    std::string text;
    llvm::raw_string_ostream stream(text);
    printDecision(facts, stream);
    if (!runs.empty() && runs.back().text == text)
      runs.back().last = layer;
    else
      runs.push_back({layer, layer, text});
  }
  for (const Run &run : runs) {
    os << "  layer" << (run.first == run.last ? " " : "s ") << run.first;
    if (run.first != run.last)
      os << " to " << run.last;
    os << ": " << run.text << "\n";
  }
}

/// "2 layer_norm, predict, select_certified, gather_linear"
static std::string opsOf(KernelOp kernel) {
  llvm::MapVector<StringRef, unsigned> counts;
  for (Operation &op : kernel.getBody().front().without_terminator())
    ++counts[op.getName().stripDialect()];
  std::string text;
  for (auto &[name, count] : counts) {
    text += text.empty() ? "" : ", ";
    if (count > 1)
      text += std::to_string(count) + " ";
    text += name;
  }
  return text;
}

static void explainEntry(func::FuncOp entry, SymbolTable &symbols,
                         llvm::raw_ostream &os) {
  llvm::MapVector<KernelOp, unsigned> uses;
  unsigned stages = 0;
  for (auto launch : entry.getBody().front().getOps<LaunchOp>()) {
    ++stages;
    if (auto kernel = symbols.lookup<KernelOp>(launch.getKernel()))
      ++uses[kernel];
  }
  os << entry.getName() << ": " << stages << " stages, " << uses.size()
     << " kernels\n";
  for (auto &[kernel, count] : uses) {
    os << llvm::format("  %4u x ", count) << kernel.getSymName() << ": "
       << opsOf(kernel);
    if (std::optional<StringRef> library = kernel.getLibrary())
      os << " (library " << *library << ")";
    os << "\n";
  }
}

static void explainMemory(ModuleOp module, llvm::raw_ostream &os) {
  int64_t state = 0, arena = 0, values = 0, sum = 0;
  for (auto buffer : module.getOps<BufferOp>()) {
    int64_t bytes = buffer.getRows() * buffer.getRowBytes();
    if (buffer.getKind() == "state")
      state += bytes;
    if (buffer.getKind() != "work")
      continue;
    ++values;
    sum += bytes;
    arena = std::max<int64_t>(arena, buffer.getOffset().value_or(0) + bytes);
  }
  auto mib = [](int64_t bytes) {
    return llvm::format("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  };
  os << "memory: KV caches " << mib(state) << "; " << values
     << " work buffers in " << mib(arena) << " (" << mib(sum)
     << " if none overlapped)\n";
}

void foresight::explainSchedule(ModuleOp module, llvm::raw_ostream &os) {
  SymbolTable symbols(module);
  for (func::FuncOp entry : entriesOf(module)) {
    explainEntry(entry, symbols, os);
    explainLayers(entry, os);
  }
  explainMemory(module, os);
}

namespace {

struct ExplainPass : public foresight::impl::ExplainPassBase<ExplainPass> {
  void runOnOperation() override {
    explainSchedule(getOperation(), llvm::errs());
    markAllAnalysesPreserved();
  }
};

} // namespace
