//===- Manifest.h - What a bundle says of itself ----------------*- C++ -*-===//
//
// The manifest of docs/design/bundle.md as plain data. A `Manifest` that
// `parseManifest` returned is consistent: every index, range, size and
// dependence in it was checked, so that code which runs it needs no checks.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RUNTIME_MANIFEST_H
#define FORESIGHT_RUNTIME_MANIFEST_H

#include "foresight/support/Result.h"
#include "foresight/support/Synthetic.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foresight {

/// Element types of buffers and weights.
enum class Element { F32, F16, BF16, I32, LowBit };
/// Bytes of one element; 0 for LowBit, whose records have a layout of their
/// own.
int64_t elementBytes(Element element);
std::string_view elementName(Element element);

struct ModelFacts {
  std::string family, name, source, dtype, sparsity;
  int64_t vocabSize = 0, hiddenSize = 0, layers = 0, heads = 0, headDim = 0;
  std::vector<int64_t> ffnDim;
  int64_t maxSeq = 0;
  bool synthetic = false; ///< made-up weights: good for speed only
  int64_t bosTokenId = -1, padTokenId = -1;
  std::vector<int64_t> eosTokenIds;
  int64_t parameters = 0;
};

struct CodeVariant {
  std::string name;
  std::vector<std::string> features;
};

enum class BufferKind { Input, Output, State, Work };
std::string_view bufferKindName(BufferKind kind);

/// A KV cache: [sequences][2][heads][capacity][headDim padded to 16].
struct KvShape {
  int64_t heads = 0, headDim = 0, capacity = 0, sequences = 1;
};

struct BufferInfo {
  std::string name;
  BufferKind kind = BufferKind::Work;
  Element element = Element::F32;
  int64_t columns = 0, rowBytes = 0, rows = 0;
  int64_t offset = 0; ///< in the arena, of a work buffer
  std::optional<KvShape> kv;
  int64_t bytes() const { return rows * rowBytes; }
};

/// The weights that a low-bit copy is made from.
struct QuantisedInfo {
  int64_t weight = -1, bias = -1, gamma = -1, beta = -1;
};

struct WeightInfo {
  std::string name;
  Element element = Element::F32;
  std::vector<int64_t> shape;
  int64_t bits = 0; ///< of a low-bit copy
  int64_t offset = 0, bytes = 0;
  std::vector<std::string> tensors;
  std::optional<Synthetic> synthetic;     ///< how the device makes it
  std::optional<QuantisedInfo> quantised; ///< or a low-bit copy
};

/// How a kernel is launched on a GPU.
struct LaunchInfo {
  std::string entry; ///< its name in the code
  /// Blocks of a call, or of each so many of its tokens, or of each
  /// multiprocessor.
  int64_t blocks = 1;
  int64_t tokensPerBlock = 0;
  int64_t blocksPerSm = 0;
  int64_t threads = 256, sharedBytes = 0;
  bool overlaps = false; ///< may start while what it waits for still runs
};

struct KernelInfo {
  std::string name;
  bool hasPrepare = false;
  std::string library; ///< "" or "gemm"
  std::vector<std::string> ops;
  int64_t scratchBytes = 0;
  std::optional<LaunchInfo> launch; ///< on GPUs only
};

struct StageArg {
  bool isWeight = false;
  int64_t index = 0;
};

enum class Activation { None, Relu, Gelu, GeluTanh };

struct GemmInfo {
  int64_t n = 0, k = 0;
  bool inOut = false; ///< weight is [k, n] rather than [n, k]
  int64_t x = -1, weight = -1, bias = -1, residual = -1, out = -1;
  Activation activation = Activation::None;
};

struct StageInfo {
  std::string name, role;
  int64_t layer = -1, kernel = 0;
  std::vector<StageArg> args;
  int64_t units = 1;
  bool perToken = false;
  int64_t grain = 1;
  int64_t counts = -1; ///< buffer, or -1
  int64_t weightBytes = 0, countBytes = 0;
  std::vector<int64_t> after, reads, writes;
  std::vector<std::string> sources;
  std::optional<GemmInfo> gemm;
};

struct EntryInfo {
  std::string name;
  int64_t maxTokens = 1;
  int64_t ids = -1, positions = -1, logits = -1; ///< buffers
  /// Buffer, or -1 where there is but one sequence: which one all rows belong
  /// to, or each row of `decode_batch`.
  int64_t sequences = -1;
  std::vector<StageInfo> stages;

  /// Whether a row is a sequence of its own rather than a token of one.
  bool isBatch() const { return name == "decode_batch"; }
};

struct SelectionInfo {
  int64_t layer = 0, stage = 0, denseStage = 0;
  int64_t activations = -1, input = -1, selected = -1; ///< buffers
  double epsilon = 0, kappa = 0;
  int64_t neurons = 0, hidden = 0;
  int64_t fc1 = -1, bias1 = -1, gamma = -1, beta = -1, copy = -1; ///< weights
  int64_t bits = 0;
  std::string rule, lookahead;
};

struct Manifest {
  int64_t format = 0;
  std::string producer, version, llvm, commit;
  std::vector<std::pair<std::string, std::string>> options;
  ModelFacts model;
  std::string device;
  std::vector<CodeVariant> variants; ///< the best last
  std::vector<BufferInfo> buffers;
  int64_t arenaBytes = 0;
  std::vector<WeightInfo> weights;
  /// Of a bundle that holds no weights: the device makes them. 0 otherwise.
  int64_t generatedWeightBytes = 0;
  std::vector<KernelInfo> kernels;
  std::vector<EntryInfo> entries;
  std::vector<SelectionInfo> selections;

  /// Index in `entries`, or -1.
  int64_t entryIndex(std::string_view name) const;
  /// Sequences that the caches hold.
  int64_t sequences() const;
};

/// Parses and checks. `where` names the bundle in errors, which have the code
/// BadBundle; `weightsBytes` is the length of the weights section.
Result<Manifest> parseManifest(std::string_view json, const std::string &where,
                               uint64_t weightsBytes);

} // namespace foresight
#endif
