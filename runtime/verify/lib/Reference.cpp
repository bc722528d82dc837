//===- Reference.cpp - Logits that another framework computed -------------===//
#include "foresight/verify/Reference.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace foresight::verify {

std::vector<float> Sequence::row(int64_t t) const {
  std::vector<float> values(static_cast<size_t>(vocabulary));
  const int64_t index = (firstRow + t - firstToken) * vocabulary;
  convertToFloat(logits.type, logits.data() + index * elementBytes(logits.type),
                 values.data(), values.size());
  return values;
}

namespace {

/// A batch of ids or of a mask.
struct Table {
  int64_t rows = 1, columns = 0;
  bool batched = false;
  std::vector<int64_t> values;

  std::span<const int64_t> row(int64_t r) const {
    return std::span(values).subspan(r * columns, columns);
  }
};

class Reader {
public:
  Reader(const std::string &path, const Safetensors &file)
      : path(path), file(file) {}

  Result<Reference> read();

private:
  Result<Table> table(const std::string &name) const;
  Status readCase(const std::string &prefix, Reference &out) const;
  Status readContinuation(const std::string &name, Reference &out) const;

  template <typename... Parts>
  Error wrong(const std::string &name, const Parts &...parts) const {
    return makeError(ErrorCode::BadInput, path, ": tensor '", name, "' ",
                     parts...);
  }

  const std::string &path;
  const Safetensors &file;
};

template <typename T> void widen(const TensorInfo &info, Table &out) {
  for (size_t i = 0; i < out.values.size(); ++i) {
    T value;
    std::memcpy(&value, info.data() + i * sizeof(T), sizeof(T));
    out.values[i] = static_cast<int64_t>(value);
  }
}

Result<Table> Reader::table(const std::string &name) const {
  const TensorInfo &info = *file.find(name);
  Table out;
  if (info.shape.size() != 1 && info.shape.size() != 2)
    return wrong(name, "has shape ", shapeText(info.shape),
                 "; expected [batch, tokens] or [tokens]");
  out.batched = info.shape.size() == 2;
  out.rows = out.batched ? info.shape[0] : 1;
  out.columns = info.shape.back();
  if (out.rows == 0 || out.columns == 0)
    return wrong(name, "is empty");
  out.values.resize(static_cast<size_t>(out.rows * out.columns));
  switch (info.type) {
  case ElementType::I64:
    widen<int64_t>(info, out);
    return out;
  case ElementType::I32:
    widen<int32_t>(info, out);
    return out;
  case ElementType::Bool:
  case ElementType::U8:
    widen<uint8_t>(info, out);
    return out;
  default:
    return wrong(name, "has elements of type ", elementName(info.type),
                 "; expected I64 or I32 (BOOL for a mask)");
  }
}

/// The tokens that a mask lets through; Unsupported if they do not follow each
/// other.
Result<std::pair<int64_t, int64_t>> unpadded(const std::string &path,
                                             const std::string &name,
                                             int64_t row,
                                             std::span<const int64_t> mask) {
  auto seen = [](int64_t value) { return value != 0; };
  const auto begin = std::find_if(mask.begin(), mask.end(), seen);
  const auto end = std::find_if(mask.rbegin(), mask.rend(), seen).base();
  const auto hole = std::find(begin, std::max(begin, end), 0);
  if (begin == mask.end())
    return makeError(ErrorCode::BadInput, path, ": tensor '", name, "', row ",
                     row, ": masks every token");
  if (hole != std::max(begin, end))
    return makeError(
        ErrorCode::Unsupported, path, ": tensor '", name, "', row ", row,
        ": has a hole at token ", hole - mask.begin(),
        ": tokens before and after it are kept. OPT counts positions without "
        "the hole and its history would have a gap; only padding on the left "
        "or right can be left out. Remove the token, or pad at an end");
  return std::pair(begin - mask.begin(), end - mask.begin());
}

std::string rowName(const std::string &prefix, const Table &ids, int64_t row) {
  std::string name = prefix.empty() ? "logits" : prefix;
  if (name.back() == '.')
    name.pop_back();
  return ids.rows == 1 ? name : name + ", row " + std::to_string(row);
}

Result<std::vector<int32_t>> narrow(const std::string &path,
                                    const std::string &name,
                                    std::span<const int64_t> ids) {
  std::vector<int32_t> out;
  for (const int64_t id : ids) {
    if (id < 0 || id > std::numeric_limits<int32_t>::max())
      return makeError(ErrorCode::BadInput, path, ": tensor '", name,
                       "' holds ", id, ", which is no token id");
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

Status Reader::readCase(const std::string &prefix, Reference &out) const {
  const std::string idsName = prefix + "input_ids";
  const std::string maskName = prefix + "attention_mask";
  const std::string logitsName = prefix + "logits";
  FORESIGHT_TRY(const Table ids, table(idsName));
  Table mask;
  if (file.find(maskName)) {
    FORESIGHT_TRY(mask, table(maskName));
    if (mask.rows != ids.rows || mask.columns != ids.columns)
      return wrong(maskName, "has another shape than ", idsName);
  }
  const TensorInfo *logits = file.find(logitsName);
  if (!logits)
    return makeError(ErrorCode::BadInput, path, ": has '", idsName,
                     "' but no '", logitsName, "' to compare with");
  if (!isFloat(logits->type))
    return wrong(logitsName, "has elements of type ", elementName(logits->type),
                 "; expected floats");
  const std::vector<int64_t> &shape = logits->shape;
  const size_t batch = ids.batched ? 1 : 0;
  // One row a token, or one for the last token.
  const bool each = shape.size() == batch + 2;
  if ((!each && shape.size() != batch + 1) || shape.back() == 0 ||
      (batch && shape[0] != ids.rows) || (each && shape[batch] != ids.columns))
    return wrong(logitsName, "has shape ", shapeText(shape), " but ", idsName,
                 " has ", ids.rows, " rows of ", ids.columns, " tokens");
  for (int64_t r = 0; r < ids.rows; ++r) {
    std::pair<int64_t, int64_t> kept(0, ids.columns);
    if (!mask.values.empty()) {
      FORESIGHT_TRY(kept, unpadded(path, maskName, r, mask.row(r)));
    }
    if (!each && kept.second != ids.columns)
      return wrong(logitsName,
                   "holds logits of the last token, which is "
                   "padding in row ",
                   r, "; give those of every token");
    Sequence sequence;
    sequence.name = rowName(prefix, ids, r);
    FORESIGHT_TRY(
        sequence.ids,
        narrow(path, idsName,
               ids.row(r).subspan(kept.first, kept.second - kept.first)));
    sequence.logits = *logits;
    sequence.vocabulary = shape.back();
    sequence.firstRow = each ? r * ids.columns + kept.first : r;
    sequence.firstToken = each ? 0 : kept.second - kept.first - 1;
    out.sequences.push_back(std::move(sequence));
  }
  return {};
}

/// Its prompt is the longest of the sequences that it starts with.
Status Reader::readContinuation(const std::string &name, Reference &out) const {
  FORESIGHT_TRY(const Table ids, table(name));
  for (int64_t r = 0; r < ids.rows; ++r) {
    Continuation next;
    next.name = ids.rows == 1 ? name : name + ", row " + std::to_string(r);
    FORESIGHT_TRY(next.ids, narrow(path, name, ids.row(r)));
    for (const Sequence &sequence : out.sequences)
      if (sequence.ids.size() > next.prompt &&
          sequence.ids.size() < next.ids.size() &&
          std::equal(sequence.ids.begin(), sequence.ids.end(),
                     next.ids.begin()))
        next.prompt = sequence.ids.size();
    if (next.prompt == 0)
      return wrong(name, "row ", r,
                   " starts with none of the input_ids, so where its prompt "
                   "ends is not known");
    out.continuations.push_back(std::move(next));
  }
  return {};
}

Result<Reference> Reader::read() {
  Reference out;
  std::vector<std::string> continuations;
  for (const auto &[name, tensor] : file.tensors()) {
    const size_t dot = name.rfind('.');
    const std::string prefix =
        dot == std::string::npos ? "" : name.substr(0, dot + 1);
    const std::string last = name.substr(prefix.size());
    if (last == "input_ids")
      FORESIGHT_CHECK(readCase(prefix, out));
    else if (last == "greedy" || last == "tokens")
      continuations.push_back(name);
  }
  if (out.sequences.empty())
    return makeError(ErrorCode::BadInput, path,
                     ": has no tensor 'input_ids' or 'NAME.input_ids'; see "
                     "foresight verify --help for what a reference holds");
  for (const std::string &name : continuations)
    FORESIGHT_CHECK(readContinuation(name, out));
  return out;
}

} // namespace

Result<Reference> Reference::read(const std::string &path) {
  FORESIGHT_TRY(const Safetensors file, Safetensors::openFile(path));
  return Reader(path, file).read();
}

} // namespace foresight::verify
