//===- LowBitData.cpp - A low-bit copy, made piece by piece ---------------===//

#include "LowBitData.h"

#include <algorithm>
#include <cstring>

using namespace mlir;
using namespace foresight;
using namespace foresight::packing;

/// Rows that are rounded at a time.
static constexpr int64_t kRows = 32;

/// Names a source that is missing.
static constexpr const char *kNone = "none";

Result<LowBitData> LowBitData::resolve(Resolver &resolver, StringRef weight,
                                       StringRef bias, StringRef gamma,
                                       StringRef beta, StringRef balance) {
  LowBitData data;
  FORESIGHT_TRY(WeightOp source, resolver.lookup(weight));
  FORESIGHT_TRY(data.weight, resolver.resolve(source));
  data.rows = data.weight.rows;
  data.columns = data.weight.columns;
  if (data.columns > kMaxColumns)
    return makeError(ErrorCode::Unsupported, "weight @", weight.str(), ": has ",
                     data.columns,
                     " columns; the error bound of a low-bit "
                     "copy holds up to ",
                     kMaxColumns, ". Compile with --sparsity=none");
  std::vector<float> *vectors[] = {&data.bias, &data.gamma, &data.beta,
                                   &data.balance};
  const int64_t sizes[] = {data.rows, data.columns, data.columns, data.columns};
  const StringRef symbols[] = {bias, gamma, beta, balance};
  for (int i = 0; i < 4; ++i) {
    data.vectorKeys += ";";
    if (symbols[i] == kNone)
      continue;
    FORESIGHT_TRY(WeightOp vectorOp, resolver.lookup(symbols[i]));
    FORESIGHT_TRY(WeightData vector, resolver.resolve(vectorOp));
    if (vector.rows * vector.columns != sizes[i])
      return makeError(ErrorCode::BadInput, "weight @", symbols[i].str(),
                       ": has ", vector.rows * vector.columns,
                       " elements, but a low-bit copy of @", weight.str(),
                       " needs ", sizes[i]);
    vectors[i]->resize(static_cast<size_t>(sizes[i]));
    FORESIGHT_CHECK(vector.readRows(0, vector.rows, vectors[i]->data()));
    data.vectorKeys += vector.key();
    for (const std::string &name : vector.tensorNames())
      data.vectorNames.push_back(name);
  }
  return data;
}

Result<LowBitData> LowBitData::resolve(Resolver &resolver, WeightOp weight) {
  const std::string label = "weight @" + weight.getSymName().str();
  auto type = dyn_cast<LowBitType>(weight.getType());
  auto attr = dyn_cast<DerivedAttr>(weight.getSource());
  if (!type || !attr || attr.getKind() != DerivedKind::LowBit ||
      attr.getSources().size() < 4)
    return makeError(ErrorCode::BadInput, label,
                     ": a low-bit copy needs [weight, bias, gamma, beta]");
  ArrayRef<FlatSymbolRefAttr> sources = attr.getSources();
  FORESIGHT_TRY(LowBitData data,
                resolve(resolver, sources[0].getValue(), sources[1].getValue(),
                        sources[2].getValue(), sources[3].getValue(),
                        attr.isMissing(4) ? kNone : sources[4].getValue()));
  if (data.rows != type.getRows() || data.columns != type.getColumns())
    return makeError(ErrorCode::BadInput, label, ": is ", type.getRows(), " x ",
                     type.getColumns(), " but its weight is ", data.rows, " x ",
                     data.columns);
  data.bits = static_cast<int>(type.getBits());
  return data;
}

std::string LowBitData::key() const {
  return "low_bit " + std::to_string(bits) + " " + weight.key() + vectorKeys;
}

std::vector<std::string> LowBitData::tensorNames() const {
  std::vector<std::string> names = weight.tensorNames();
  names.insert(names.end(), vectorNames.begin(), vectorNames.end());
  return names;
}

Status LowBitData::pack(int64_t begin, int64_t end,
                        std::vector<std::byte> &record) const {
  const int64_t count = end - begin;
  record.resize(
      static_cast<size_t>(lowbit::record(count, columns, bits).bytes));
  std::vector<float> values(static_cast<size_t>(count * columns));
  FORESIGHT_CHECK(weight.readRows(begin, end, values.data()));
  lowbit::Packer packer(count, columns, bits, gamma, beta, record, balance);
  for (int64_t i = 0; i < count; ++i)
    packer.pack(i, std::span(values).subspan(i * columns, columns),
                bias.empty() ? 0.0f : bias[begin + i]);
  return {};
}

LowBitStream::LowBitStream(const LowBitData &data)
    : data(data), layout(lowbit::record(data.rows, data.columns, data.bits)),
      ready(std::make_unique<std::atomic<bool>[]>(
          static_cast<size_t>(data.rows))) {
  for (int v = 0; v < 2; ++v) {
    singles[v].resize(static_cast<size_t>(data.rows));
    halves[v].resize(static_cast<size_t>(data.rows));
  }
}

/// Rounds rows, keeps their numbers, and leaves the codes in `record`. Two
/// threads may do the same row: they write the same numbers.
Status LowBitStream::makeRows(int64_t begin, int64_t end,
                              std::vector<std::byte> &record) {
  FORESIGHT_CHECK(data.pack(begin, end, record));
  const lowbit::RecordView view(record.data(), end - begin, data.columns,
                                data.bits);
  for (int64_t row = begin; row < end; ++row) {
    if (ready[row].load(std::memory_order_acquire))
      continue;
    const int64_t i = row - begin;
    auto keep = [](auto &to, auto number) {
      std::atomic_ref(to).store(number, std::memory_order_relaxed);
    };
    keep(singles[0][row], view.scale(i));
    keep(singles[1][row], view.bias(i));
    keep(halves[0][row], view.errorBits(i));
    keep(halves[1][row], view.normBits(i));
    ready[row].store(true, std::memory_order_release);
  }
  return {};
}

Status LowBitStream::readCodes(int64_t begin, int64_t end, std::byte *out) {
  const int64_t width = lowbit::rowBytes(data.columns, data.bits);
  const int64_t last = std::min(data.rows, (end + width - 1) / width);
  std::vector<std::byte> record;
  for (int64_t row = begin / width; row < last; row += kRows) {
    const int64_t stop = std::min(last, row + kRows);
    FORESIGHT_CHECK(makeRows(row, stop, record));
    const int64_t from = std::max(begin, row * width);
    const int64_t to = std::min(end, stop * width);
    std::memcpy(out + (from - begin), record.data() + (from - row * width),
                static_cast<size_t>(to - from));
  }
  return {};
}

Status LowBitStream::read(int64_t begin, int64_t end, std::byte *out) {
  std::memset(out, 0, static_cast<size_t>(end - begin));
  const int64_t codes = data.rows * lowbit::rowBytes(data.columns, data.bits);
  if (begin < codes)
    FORESIGHT_CHECK(readCodes(begin, std::min(end, codes), out));
  if (end <= layout.scale)
    return {};

  std::vector<std::byte> unused;
  for (int64_t row = 0; row < data.rows;) {
    int64_t stop = row;
    while (stop < data.rows && stop - row < kRows &&
           !ready[stop].load(std::memory_order_acquire))
      ++stop;
    if (stop > row)
      FORESIGHT_CHECK(makeRows(row, stop, unused));
    row = std::max(stop, row + 1);
  }
  auto copy = [&](int64_t start, const auto &numbers) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(numbers));
    const int64_t from = std::max(begin, start);
    const int64_t to =
        std::min(end, start + static_cast<int64_t>(bytes.size()));
    if (from < to)
      std::memcpy(out + (from - begin), bytes.data() + (from - start),
                  static_cast<size_t>(to - from));
  };
  copy(layout.scale, singles[0]);
  copy(layout.bias, singles[1]);
  copy(layout.error, halves[0]);
  copy(layout.norm, halves[1]);
  return {};
}
