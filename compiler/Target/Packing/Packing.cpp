//===- Packing.cpp - The weights section of a bundle ----------------------===//

#include "foresight/Target/Packing/Packing.h"

#include "LowBitData.h"
#include "WeightData.h"

#include "foresight/abi/BundleFormat.h"
#include "foresight/abi/Kernel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

using namespace mlir;
using namespace foresight;
using namespace foresight::packing;

static constexpr uint64_t kBlock = bundle::kChecksumBlock;

static uint64_t alignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

static int64_t padColumns(int64_t columns) {
  return (columns + FORESIGHT_ROW_PAD - 1) / FORESIGHT_ROW_PAD *
         FORESIGHT_ROW_PAD;
}

namespace {

/// Content that has a place in the section.
struct Stored {
  std::variant<WeightData, LowBitData> data;
  uint64_t offset = 0;
  uint64_t bytes = 0;

  uint64_t end() const { return offset + bytes; }
};

/// Bytes [begin, end) of a vector or matrix in its packed layout.
Status readPacked(const WeightData &data, int64_t begin, int64_t end,
                  std::byte *out) {
  std::memset(out, 0, static_cast<size_t>(end - begin));
  if (data.vector) { // small: made whole, always f32
    std::vector<float> values(static_cast<size_t>(data.columns));
    FORESIGHT_CHECK(data.readRows(0, 1, values.data()));
    const int64_t stop = std::min(end, data.columns * 4);
    if (begin < stop)
      std::memcpy(out,
                  reinterpret_cast<const std::byte *>(values.data()) + begin,
                  static_cast<size_t>(stop - begin));
    return {};
  }
  const int64_t stride = padColumns(data.columns) * elementBytes(data.element);
  auto partOfRow = [&](int64_t row, int64_t from, int64_t to) -> Status {
    std::vector<std::byte> whole(static_cast<size_t>(stride));
    FORESIGHT_CHECK(data.readRows(row, row + 1, whole.data(), stride));
    std::memcpy(out + (from - begin), whole.data() + (from - row * stride),
                static_cast<size_t>(to - from));
    return {};
  };
  const int64_t first = (begin + stride - 1) / stride, last = end / stride;
  if (first > last) // inside one row
    return partOfRow(begin / stride, begin, end);
  if (begin < first * stride)
    FORESIGHT_CHECK(partOfRow(first - 1, begin, first * stride));
  FORESIGHT_CHECK(
      data.readRows(first, last, out + (first * stride - begin), stride));
  if (last * stride < end)
    FORESIGHT_CHECK(partOfRow(last, last * stride, end));
  return {};
}

} // namespace

struct Packing::Impl {
  std::vector<PackedWeight> weights;
  std::map<std::string, int64_t> indexBySymbol;
  std::vector<Stored> stored; ///< by offset
  uint64_t bytes = 0, saved = 0;

  Status add(Resolver &resolver, WeightOp weight);
  Result<size_t> store(std::variant<WeightData, LowBitData> data,
                       uint64_t size);

  /// Where content that was stored lies, by its sources and by a sample of it.
  std::map<std::string, size_t> byKey;
  std::multimap<std::string, size_t> bySample;
};

Packing::Packing(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Packing::Packing(Packing &&) noexcept = default;
Packing &Packing::operator=(Packing &&) noexcept = default;
Packing::~Packing() = default;

const std::vector<PackedWeight> &Packing::weights() const {
  return impl->weights;
}
uint64_t Packing::bytes() const { return impl->bytes; }
uint64_t Packing::savedBytes() const { return impl->saved; }

int64_t Packing::indexOf(const std::string &symbol) const {
  auto found = impl->indexBySymbol.find(symbol);
  return found == impl->indexBySymbol.end() ? -1 : found->second;
}

/// Gives content a place, that of equal content if there is one.
Result<size_t> Packing::Impl::store(std::variant<WeightData, LowBitData> data,
                                    uint64_t size) {
  const std::string key =
      std::visit([](const auto &content) { return content.key(); }, data);
  if (auto found = byKey.find(key); found != byKey.end()) {
    saved += size;
    return found->second;
  }
  std::string sample;
  if (const auto *matrix = std::get_if<WeightData>(&data)) {
    sample = std::to_string(matrix->rows) + "x" +
             std::to_string(matrix->columns) +
             std::string(elementName(matrix->element)) +
             (matrix->vector ? "v" : "m") + std::to_string(matrix->sample());
    auto [begin, end] = bySample.equal_range(sample);
    for (auto it = begin; it != end; ++it) {
      FORESIGHT_TRY(
          bool equal,
          equalContent(*matrix, std::get<WeightData>(stored[it->second].data)));
      if (!equal)
        continue;
      saved += size;
      byKey[key] = it->second;
      return it->second;
    }
  }
  Stored content;
  content.data = std::move(data);
  content.offset = alignUp(bytes, FORESIGHT_ALIGNMENT);
  content.bytes = size;
  bytes = content.end();
  stored.push_back(std::move(content));
  byKey[key] = stored.size() - 1;
  if (!sample.empty())
    bySample.emplace(sample, stored.size() - 1);
  return stored.size() - 1;
}

Status Packing::Impl::add(Resolver &resolver, WeightOp weight) {
  PackedWeight packed;
  packed.name = weight.getSymName().str();
  size_t place = 0;
  if (isa<LowBitType>(weight.getType())) {
    FORESIGHT_TRY(LowBitData data, LowBitData::resolve(resolver, weight));
    packed.element = "low_bit";
    packed.shape = {data.rows, data.columns};
    packed.bits = data.bits;
    packed.bytes = static_cast<uint64_t>(
        lowbit::record(data.rows, data.columns, data.bits).bytes);
    packed.tensors = data.tensorNames();
    FORESIGHT_TRY(place, store(std::move(data), packed.bytes));
  } else {
    FORESIGHT_TRY(WeightData data, resolver.resolve(weight));
    packed.tensors = data.tensorNames();
    if (data.vector) {
      packed.element = "f32";
      packed.shape = {data.columns};
      packed.bytes = static_cast<uint64_t>(padColumns(data.columns) * 4);
    } else {
      packed.element = elementName(data.element);
      packed.shape = {data.rows, data.columns};
      packed.bytes = static_cast<uint64_t>(
          data.rows * padColumns(data.columns) * elementBytes(data.element));
    }
    FORESIGHT_TRY(place, store(std::move(data), packed.bytes));
  }
  packed.offset = stored[place].offset;
  indexBySymbol[packed.name] = static_cast<int64_t>(weights.size());
  weights.push_back(std::move(packed));
  return {};
}

Result<Packing> Packing::plan(ModuleOp module, bool isGenerated) {
  auto impl = std::make_unique<Impl>();
  std::set<std::string> used;
  module.walk([&](GetWeightOp op) { used.insert(op.getWeight().str()); });
  // Who makes a low-bit copy when it loads needs what it is made of.
  if (isGenerated)
    for (WeightOp weight : module.getOps<WeightOp>())
      if (auto derived = dyn_cast<DerivedAttr>(weight.getSource());
          derived && derived.getKind() == DerivedKind::LowBit &&
          used.count(weight.getSymName().str()))
        for (FlatSymbolRefAttr source : derived.getSources())
          if (source.getValue() != DerivedAttr::kMissing)
            used.insert(source.getValue().str());
  Resolver resolver(module);
  // In the order of the module: that of the layers.
  for (WeightOp weight : module.getOps<WeightOp>())
    if (used.erase(weight.getSymName().str()))
      FORESIGHT_CHECK(impl->add(resolver, weight));
  if (!used.empty())
    return makeError(ErrorCode::BadInput, "no foresight.weight is called @",
                     *used.begin());
  return Packing(std::move(impl));
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

namespace {

/// One call of `write`: blocks that threads take one by one.
class Writer {
public:
  Writer(const std::vector<Stored> &stored, uint64_t bytes,
         const Packing::Sink &sink, const PackingOptions &options)
      : stored(stored), bytes(bytes), sink(sink), options(options) {
    for (const Stored &content : stored)
      streams.push_back(std::holds_alternative<LowBitData>(content.data)
                            ? std::make_unique<LowBitStream>(
                                  std::get<LowBitData>(content.data))
                            : nullptr);
    orderBlocks();
  }

  Status run();
  /// Leaves `count` of the blocks, spread over all of them.
  void thin(size_t count);
  size_t blocks() const { return order.size(); }

private:
  void orderBlocks();
  void work();
  Status makeBlock(uint64_t begin, uint64_t end, std::byte *out);

  const std::vector<Stored> &stored;
  const uint64_t bytes;
  const Packing::Sink &sink;
  const PackingOptions &options;
  std::vector<std::unique_ptr<LowBitStream>> streams;
  std::vector<uint64_t> order; ///< offsets of blocks
  std::atomic<size_t> next = 0;
  std::atomic<uint64_t> done = 0;
  std::atomic<bool> stop = false;
  std::mutex mutex;
  std::optional<std::pair<uint64_t, Error>> failure; ///< of the first block
};

} // namespace

/// Blocks with the numbers of a low-bit copy's rows come last, when its codes
/// have been made and the numbers are known.
void Writer::orderBlocks() {
  std::set<uint64_t> late;
  for (size_t i = 0; i < stored.size(); ++i)
    if (streams[i])
      for (uint64_t block =
               (stored[i].offset +
                static_cast<uint64_t>(streams[i]->vectorsOffset())) /
               kBlock;
           block * kBlock < stored[i].end(); ++block)
        late.insert(block * kBlock);
  for (uint64_t offset = 0; offset < bytes; offset += kBlock)
    if (!late.count(offset))
      order.push_back(offset);
  order.insert(order.end(), late.begin(), late.end());
}

void Writer::thin(size_t count) {
  std::vector<uint64_t> kept;
  kept.reserve(count);
  for (size_t i = 0; i < count; ++i)
    kept.push_back(order[(2 * i + 1) * order.size() / (2 * count)]);
  order = std::move(kept);
}

Status Writer::makeBlock(uint64_t begin, uint64_t end, std::byte *out) {
  std::memset(out, 0, end - begin); // gaps between weights
  auto first = std::partition_point(
      stored.begin(), stored.end(),
      [&](const Stored &content) { return content.end() <= begin; });
  for (auto it = first; it != stored.end() && it->offset < end; ++it) {
    const uint64_t from = std::max(begin, it->offset);
    const uint64_t to = std::min(end, it->end());
    const auto localBegin = static_cast<int64_t>(from - it->offset);
    const auto localEnd = static_cast<int64_t>(to - it->offset);
    std::byte *target = out + (from - begin);
    if (const auto *data = std::get_if<WeightData>(&it->data))
      FORESIGHT_CHECK(readPacked(*data, localBegin, localEnd, target));
    else
      FORESIGHT_CHECK(streams[static_cast<size_t>(it - stored.begin())]->read(
          localBegin, localEnd, target));
  }
  return {};
}

void Writer::work() {
  std::vector<std::byte> block(std::min(bytes, kBlock));
  while (!stop) {
    const size_t turn = next++;
    if (turn >= order.size())
      return;
    const uint64_t begin = order[turn], end = std::min(bytes, begin + kBlock);
    Status status = makeBlock(begin, end, block.data());
    if (status.ok())
      status = sink(begin, std::span(block).first(end - begin));
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!failure || begin < failure->first)
        failure.emplace(begin, std::move(status).error());
      stop = true;
      return;
    }
    const uint64_t sum = done += end - begin;
    if (options.progress)
      options.progress(sum, bytes);
  }
}

Status Writer::run() {
  unsigned count =
      options.threads ? options.threads : std::thread::hardware_concurrency();
  count = std::clamp<unsigned>(
      count, 1, static_cast<unsigned>(std::max<size_t>(1, order.size())));
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < count; ++i)
    threads.emplace_back([this] { work(); });
  work();
  for (std::thread &thread : threads)
    thread.join();
  if (failure)
    return std::move(failure->second);
  return {};
}

Result<double> Packing::estimateSeconds(const PackingOptions &options) const {
  // Enough for every kind of weight to be among them; 64 MB of work.
  static constexpr size_t kSample = 16;
  PackingOptions silent = options;
  silent.progress = nullptr;
  const Sink discard = [](uint64_t, std::span<const std::byte>) {
    return Status();
  };
  Writer writer(impl->stored, impl->bytes, discard, silent);
  const size_t all = writer.blocks();
  if (all > kSample)
    writer.thin(kSample);
  const auto start = std::chrono::steady_clock::now();
  FORESIGHT_CHECK(writer.run());
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  return took.count() * static_cast<double>(all) /
         static_cast<double>(std::max<size_t>(1, writer.blocks()));
}

Status Packing::write(const Sink &sink, const PackingOptions &options) const {
  return Writer(impl->stored, impl->bytes, sink, options).run();
}
