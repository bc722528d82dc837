//===- ManifestChecks.cpp - What a manifest must satisfy ------------------===//
#include "ManifestReader.h"

#include "foresight/abi/Kernel.h"
#include "foresight/lowbit/Layout.h"

#include <algorithm>

namespace foresight {
namespace {

constexpr int64_t padRow(int64_t columns) {
  return (columns + FORESIGHT_ROW_PAD - 1) / FORESIGHT_ROW_PAD *
         FORESIGHT_ROW_PAD;
}

class Checker {
public:
  Checker(const Manifest &manifest, const std::string &where)
      : m(manifest), where(where) {}

  Status run(uint64_t weightsBytes) {
    for (size_t i = 0; i < m.buffers.size(); ++i)
      FORESIGHT_CHECK(checkBuffer(m.buffers[i]));
    for (size_t i = 0; i < m.weights.size(); ++i)
      FORESIGHT_CHECK(
          checkWeight(m.weights[i], static_cast<int64_t>(weightsBytes)));
    for (const char *name : {"decode", "prefill"})
      if (m.entryIndex(name) < 0)
        return fault("has no entry '", name, "'");
    for (const EntryInfo &entry : m.entries)
      FORESIGHT_CHECK(checkEntry(entry));
    for (size_t i = 0; i < m.selections.size(); ++i)
      FORESIGHT_CHECK(checkSelection(m.selections[i], i));
    return {};
  }

private:
  template <typename... Parts> Error fault(const Parts &...parts) const {
    return makeError(ErrorCode::BadBundle, where, ": ", parts...);
  }

  /// `index` must name one of `count` things, or be -1 where that may be.
  template <typename... Parts>
  Status inRange(int64_t index, size_t count, bool optional, const char *what,
                 const Parts &...parts) const {
    if ((optional && index == -1) ||
        (index >= 0 && index < static_cast<int64_t>(count)))
      return {};
    return fault(parts..., " names ", what, " ", index, " of ", count);
  }

  Status checkBuffer(const BufferInfo &buffer) {
    if (buffer.rowBytes > kLargestSize / buffer.rows)
      return fault("buffer '", buffer.name, "' is too large");
    // Ids and positions lie densely; everything else is at least as wide as
    // what it holds.
    if (buffer.kv) {
      const KvShape &kv = *buffer.kv;
      const int64_t columns = (kv.headDim + 15) / 16 * 16;
      const double needed = 2.0 * static_cast<double>(kv.sequences) *
                            static_cast<double>(kv.heads) *
                            static_cast<double>(kv.capacity) *
                            static_cast<double>(columns) *
                            static_cast<double>(elementBytes(buffer.element));
      if (static_cast<double>(buffer.rowBytes) *
              static_cast<double>(buffer.rows) <
          needed)
        return fault("buffer '", buffer.name, "' has ", buffer.bytes(),
                     " bytes but its cache needs ", needed);
      if (kv.sequences != m.sequences())
        return fault("buffer '", buffer.name, "' holds ", kv.sequences,
                     " sequences, the first cache ", m.sequences());
    } else if (buffer.rowBytes / elementBytes(buffer.element) <
               buffer.columns) {
      return fault("buffer '", buffer.name, "' has rows of ", buffer.rowBytes,
                   " bytes, too short for ", buffer.columns, " elements");
    }
    if (buffer.kind != BufferKind::Work)
      return {};
    if (buffer.offset % FORESIGHT_ALIGNMENT != 0)
      return fault("buffer '", buffer.name, "' is not aligned to ",
                   FORESIGHT_ALIGNMENT, " bytes: offset ", buffer.offset);
    if (buffer.offset + buffer.bytes() > m.arenaBytes)
      return fault("buffer '", buffer.name, "' ends at ",
                   buffer.offset + buffer.bytes(), " beyond the arena of ",
                   m.arenaBytes, " bytes");
    return {};
  }

  Status checkWeight(const WeightInfo &weight, int64_t sectionBytes) {
    if (weight.shape.empty() || weight.shape.size() > 2)
      return fault("weight '", weight.name, "' has ", weight.shape.size(),
                   " dimensions; only 1 or 2 are known");
    for (int64_t size : weight.shape)
      if (size < 1 || size > INT32_MAX)
        return fault("weight '", weight.name, "' has a dimension of ", size);
    if (weight.offset % FORESIGHT_ALIGNMENT != 0)
      return fault("weight '", weight.name, "' is not aligned to ",
                   FORESIGHT_ALIGNMENT, " bytes: offset ", weight.offset);
    if (weight.offset + weight.bytes > sectionBytes)
      return fault("weight '", weight.name, "' ends at ",
                   weight.offset + weight.bytes, " beyond the ", sectionBytes,
                   " bytes of the weights section");
    if (weight.quantised)
      FORESIGHT_CHECK(checkQuantised(weight));
    const bool matrix = weight.shape.size() == 2;
    const int64_t rows = matrix ? weight.shape[0] : 1,
                  columns = matrix ? weight.shape[1] : weight.shape[0];
    // Both factors are below 2^32: no product here overflows by more than the
    // comparison in doubles forgives.
    double needed = static_cast<double>(rows) *
                    static_cast<double>(padRow(columns)) *
                    static_cast<double>(elementBytes(weight.element));
    if (weight.element == Element::LowBit) {
      if (!matrix)
        return fault("weight '", weight.name, "' is low_bit but no matrix");
      if (static_cast<double>(rows) * static_cast<double>(columns) >
          static_cast<double>(kLargestSize))
        return fault("weight '", weight.name, "' is too large");
      needed =
          static_cast<double>(lowbit::record(rows, columns, weight.bits).bytes);
    } else if (!matrix && weight.element != Element::F32) {
      return fault("weight '", weight.name, "' is a vector of ",
                   elementName(weight.element), "; vectors are f32");
    }
    if (static_cast<double>(weight.bytes) < needed)
      return fault("weight '", weight.name, "' has ", weight.bytes,
                   " bytes but its shape needs ", needed);
    return {};
  }

  /// A low-bit copy that the device makes: from a matrix of its shape, and
  /// vectors of a row and of a column of it.
  Status checkQuantised(const WeightInfo &copy) {
    const QuantisedInfo &from = *copy.quantised;
    const std::string name = "weight '" + copy.name + "'";
    for (int64_t index : {from.weight, from.bias, from.gamma, from.beta})
      FORESIGHT_CHECK(inRange(index, m.weights.size(), false, "weight", name,
                              ": quantised"));
    const auto at = [&](int64_t index) -> const WeightInfo & {
      return m.weights[static_cast<size_t>(index)];
    };
    if (copy.element != Element::LowBit || copy.shape.size() != 2 ||
        at(from.weight).element == Element::LowBit ||
        at(from.weight).shape != copy.shape ||
        at(from.bias).shape != std::vector{copy.shape[0]} ||
        at(from.gamma).shape != std::vector{copy.shape[1]} ||
        at(from.beta).shape != std::vector{copy.shape[1]})
      return fault(name, " is no low-bit copy of weights of its shape");
    return {};
  }

  Status checkIds(const std::string &name, int64_t index, int64_t rows) {
    const BufferInfo &buffer = m.buffers[static_cast<size_t>(index)];
    if (buffer.kind == BufferKind::Input && buffer.element == Element::I32 &&
        buffer.columns == 1 && buffer.rowBytes == 4 && buffer.rows >= rows)
      return {};
    return fault(name, ": buffer '", buffer.name,
                 "' is no input of one int32 for each of ", rows,
                 rows == 1 ? " token" : " tokens");
  }

  Status checkEntry(const EntryInfo &entry) {
    const std::string name = "entry '" + entry.name + "'";
    FORESIGHT_CHECK(
        inRange(entry.ids, m.buffers.size(), false, "buffer", name, ": ids"));
    FORESIGHT_CHECK(inRange(entry.positions, m.buffers.size(), false, "buffer",
                            name, ": positions"));
    FORESIGHT_CHECK(inRange(entry.logits, m.buffers.size(), false, "buffer",
                            name, ": logits"));
    for (int64_t index : {entry.ids, entry.positions})
      FORESIGHT_CHECK(checkIds(name, index, entry.maxTokens));
    const BufferInfo &logits = m.buffers[static_cast<size_t>(entry.logits)];
    if (logits.kind != BufferKind::Output || logits.element != Element::F32 ||
        logits.columns != m.model.vocabSize ||
        (entry.isBatch() && logits.rows < entry.maxTokens))
      return fault(name, ": buffer '", logits.name, "' is no output of ",
                   m.model.vocabSize, " f32 logits",
                   entry.isBatch() ? " for each row" : "");
    if ((m.sequences() > 1) != (entry.sequences >= 0))
      return fault(name, entry.sequences < 0
                             ? " does not say which sequence it computes"
                             : " names sequences, but caches hold one");
    if (entry.isBatch() && entry.maxTokens > m.sequences())
      return fault(name, " computes ", entry.maxTokens,
                   " rows, but caches hold ", m.sequences(), " sequences");
    if (entry.sequences >= 0) {
      FORESIGHT_CHECK(inRange(entry.sequences, m.buffers.size(), false,
                              "buffer", name, ": sequences"));
      FORESIGHT_CHECK(checkIds(name, entry.sequences,
                               entry.isBatch() ? entry.maxTokens : 1));
    }
    for (size_t i = 0; i < entry.stages.size(); ++i)
      FORESIGHT_CHECK(checkStage(entry, entry.stages[i], i));
    return {};
  }

  Status checkStage(const EntryInfo &entry, const StageInfo &stage, size_t i) {
    const std::string name =
        "entry '" + entry.name + "': stage '" + stage.name + "'";
    FORESIGHT_CHECK(
        inRange(stage.kernel, m.kernels.size(), false, "kernel", name));
    for (size_t a = 0; a < stage.args.size(); ++a)
      FORESIGHT_CHECK(
          inRange(stage.args[a].index,
                  stage.args[a].isWeight ? m.weights.size() : m.buffers.size(),
                  false, stage.args[a].isWeight ? "weight" : "buffer", name,
                  ": argument ", a));
    for (int64_t before : stage.after)
      if (before < 0 || before >= static_cast<int64_t>(i))
        return fault(name, " must run after stage ", before,
                     ", which is not before it: it is stage ", i);
    for (const std::vector<int64_t> *list : {&stage.reads, &stage.writes})
      for (int64_t buffer : *list)
        FORESIGHT_CHECK(
            inRange(buffer, m.buffers.size(), false, "buffer", name));
    FORESIGHT_CHECK(inRange(stage.counts, m.buffers.size(), true, "buffer",
                            name, ": counts"));
    const int64_t units =
        stage.perToken ? stage.units * entry.maxTokens : stage.units;
    if (units > INT32_MAX)
      return fault(name, " has ", units, " units, too many");
    if (stage.counts >= 0) {
      const BufferInfo &counts = m.buffers[static_cast<size_t>(stage.counts)];
      if (counts.element != Element::I32 || counts.bytes() / 4 < units)
        return fault(name, ": buffer '", counts.name,
                     "' is no int32 for each of ", units, " units");
    }
    const bool library =
        !m.kernels[static_cast<size_t>(stage.kernel)].library.empty();
    if (library != stage.gemm.has_value())
      return fault(name, library ? " lacks 'gemm'"
                                 : " has 'gemm' but its kernel is generated");
    return library ? checkGemm(*stage.gemm, entry, name) : Status();
  }

  Status checkGemm(const GemmInfo &gemm, const EntryInfo &entry,
                   const std::string &name) {
    FORESIGHT_CHECK(
        inRange(gemm.x, m.buffers.size(), false, "buffer", name, ": x"));
    FORESIGHT_CHECK(
        inRange(gemm.out, m.buffers.size(), false, "buffer", name, ": out"));
    FORESIGHT_CHECK(inRange(gemm.residual, m.buffers.size(), true, "buffer",
                            name, ": residual"));
    FORESIGHT_CHECK(inRange(gemm.weight, m.weights.size(), false, "weight",
                            name, ": weight"));
    FORESIGHT_CHECK(
        inRange(gemm.bias, m.weights.size(), true, "weight", name, ": bias"));
    // One row where the output has one: logits of the last token.
    const int64_t tokens = std::min(
        entry.maxTokens, m.buffers[static_cast<size_t>(gemm.out)].rows);
    const WeightInfo &weight = m.weights[static_cast<size_t>(gemm.weight)];
    // On a GPU rows may be stored as the library reads them.
    const bool mayNarrow = m.device == "cuda";
    const bool mayNarrowOut = mayNarrow && gemm.residual < 0 &&
                              (gemm.activation == Activation::None ||
                               gemm.activation == Activation::Relu);
    for (auto [index, columns, narrows] :
         {std::tuple(gemm.x, gemm.k, mayNarrow),
          std::tuple(gemm.out, gemm.n, mayNarrowOut),
          std::tuple(gemm.residual, gemm.n, false)}) {
      if (index < 0)
        continue;
      const BufferInfo &buffer = m.buffers[static_cast<size_t>(index)];
      const bool fits = buffer.element == Element::F32 ||
                        (narrows && buffer.element == weight.element);
      if (!fits || buffer.columns != columns || buffer.rows < tokens ||
          buffer.rowBytes % 4 != 0)
        return fault(name, ": buffer '", buffer.name, "' does not hold ",
                     tokens, " rows of ", columns, " f32 values",
                     narrows ? " or such as its weight has" : "");
    }
    const std::vector<int64_t> shape =
        gemm.inOut ? std::vector{gemm.k, gemm.n} : std::vector{gemm.n, gemm.k};
    if (weight.element == Element::LowBit || weight.shape != shape)
      return fault(name, ": weight '", weight.name, "' is no ", shape[0], " x ",
                   shape[1], " matrix");
    if (gemm.bias >= 0) {
      const WeightInfo &bias = m.weights[static_cast<size_t>(gemm.bias)];
      if (bias.shape != std::vector{gemm.n})
        return fault(name, ": bias '", bias.name, "' is no vector of ", gemm.n);
    }
    return {};
  }

  Status checkSelection(const SelectionInfo &selection, size_t i) {
    const std::string name = "selection " + std::to_string(i);
    const int64_t decode = m.entryIndex("decode"),
                  dense = m.entryIndex("decode_dense");
    if (dense < 0)
      return fault(name, " needs an entry 'decode_dense'");
    const auto stages = [&](int64_t entry) {
      return m.entries[static_cast<size_t>(entry)].stages.size();
    };
    FORESIGHT_CHECK(
        inRange(selection.stage, stages(decode), false, "stage", name));
    FORESIGHT_CHECK(inRange(selection.denseStage, stages(dense), false, "stage",
                            name, ": dense_stage"));
    FORESIGHT_CHECK(inRange(selection.activations, m.buffers.size(), false,
                            "buffer", name, ": activations"));
    FORESIGHT_CHECK(inRange(selection.input, m.buffers.size(), false, "buffer",
                            name, ": input"));
    FORESIGHT_CHECK(inRange(selection.selected, m.buffers.size(), true,
                            "buffer", name, ": selected"));
    FORESIGHT_CHECK(inRange(selection.fc1, m.weights.size(), false, "weight",
                            name, ": fc1"));
    for (int64_t weight :
         {selection.bias1, selection.gamma, selection.beta, selection.copy})
      FORESIGHT_CHECK(inRange(weight, m.weights.size(), true, "weight", name));
    const BufferInfo &activations =
        m.buffers[static_cast<size_t>(selection.activations)];
    if (activations.element != Element::F32 ||
        activations.columns < selection.neurons)
      return fault(name, ": buffer '", activations.name, "' does not hold ",
                   selection.neurons, " f32 activations");
    return {};
  }

  const Manifest &m;
  const std::string &where;
};

} // namespace

Status checkManifest(const Manifest &manifest, const std::string &where,
                     uint64_t weightsBytes) {
  return Checker(manifest, where).run(weightsBytes);
}

} // namespace foresight
