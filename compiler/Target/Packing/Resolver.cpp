//===- Resolver.cpp - From weight symbols to their data -------------------===//

#include "WeightData.h"

#include "foresight/lowbit/Balance.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;
using namespace foresight::packing;

template <typename T> static std::string print(const T &value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

static std::string labelOf(WeightOp weight) {
  return "weight @" + weight.getSymName().str();
}

/// Front ends give a weight its tensor's name as location.
static std::string tensorNameOf(WeightOp weight) {
  Location loc = weight.getLoc();
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location inner : fused.getLocations())
      if (auto name = dyn_cast<NameLoc>(inner))
        return name.getName().str();
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  return weight.getSymName().str();
}

Result<ElementType> packing::toElementType(Type type,
                                           const std::string &where) {
  if (type.isF32())
    return ElementType::F32;
  if (type.isF16())
    return ElementType::F16;
  if (type.isBF16())
    return ElementType::BF16;
  if (type.isF64())
    return ElementType::F64;
  return makeError(ErrorCode::Unsupported, where, ": elements of type ",
                   print(type), " are no weights; expected f32, f16 or bf16");
}

Result<WeightOp> Resolver::lookup(StringRef symbol) {
  if (auto weight = symbols.lookup<WeightOp>(symbol))
    return weight;
  return makeError(ErrorCode::BadInput, "no foresight.weight is called @",
                   symbol.str());
}

Result<std::shared_ptr<const Tensor>>
Resolver::external(WeightOp weight, ExternalAttr attr, int64_t count) {
  const std::string path = attr.getFile().str();
  auto &file = files[path];
  if (!file) {
    FORESIGHT_TRY(MappedFile mapped, MappedFile::open(path));
    file = std::make_shared<const MappedFile>(std::move(mapped));
  }
  auto tensor = std::make_shared<Tensor>();
  tensor->name = tensorNameOf(weight);
  tensor->where = path;
  const std::string where = path + ": tensor '" + tensor->name + "'";
  FORESIGHT_TRY(tensor->stored, toElementType(attr.getElement(), where));
  tensor->count = count;
  int64_t bytes;
  if (__builtin_mul_overflow(count, elementBytes(tensor->stored), &bytes) ||
      bytes != attr.getBytes())
    return makeError(ErrorCode::BadInput, where, ": has ", attr.getBytes(),
                     " bytes but ", count, " elements of ",
                     elementName(tensor->stored), " need ",
                     count * elementBytes(tensor->stored));
  const auto offset = static_cast<uint64_t>(attr.getOffset());
  if (attr.getOffset() < 0 || offset > file->size() ||
      static_cast<uint64_t>(bytes) > file->size() - offset)
    return makeError(ErrorCode::BadInput, where, ": ", bytes,
                     " bytes at offset ", attr.getOffset(),
                     " lie outside the file, which has ", file->size(),
                     " bytes; is it truncated? Fetch it again");
  tensor->data = Tensor::InFile{file, offset};
  tensor->key = path + "@" + std::to_string(offset) + ":" +
                std::string(elementName(tensor->stored));
  return std::shared_ptr<const Tensor>(std::move(tensor));
}

Result<std::shared_ptr<const Tensor>> Resolver::dense(WeightOp weight,
                                                      ElementsAttr attr) {
  auto elements = dyn_cast<DenseFPElementsAttr>(attr);
  if (!elements)
    return makeError(ErrorCode::Unsupported, labelOf(weight),
                     ": only dense floating-point elements can be packed");
  auto tensor = std::make_shared<Tensor>();
  tensor->name = tensorNameOf(weight);
  tensor->where = labelOf(weight);
  tensor->count = elements.getNumElements();
  std::vector<float> values;
  values.reserve(static_cast<size_t>(tensor->count));
  for (APFloat value : elements.getValues<APFloat>())
    values.push_back(static_cast<float>(value.convertToDouble()));
  tensor->data = std::move(values);
  // Attributes are unique in their context.
  tensor->key =
      "dense " +
      std::to_string(reinterpret_cast<uintptr_t>(attr.getAsOpaquePointer()));
  return std::shared_ptr<const Tensor>(std::move(tensor));
}

/// The weight as the transpose of its source, as rows of it, or its sources
/// joined. `data` has the shape of the result.
Result<WeightData> Resolver::derived(WeightOp weight, DerivedAttr attr,
                                     WeightData data) {
  std::vector<WeightData> sources;
  for (FlatSymbolRefAttr symbol : attr.getSources()) {
    FORESIGHT_TRY(WeightOp source, lookup(symbol.getValue()));
    FORESIGHT_TRY(WeightData resolved, resolve(source));
    if (resolved.vector != data.vector)
      return makeError(ErrorCode::BadInput, labelOf(weight), ": source ",
                       print(symbol), " has type ", print(source.getType()));
    sources.push_back(std::move(resolved));
  }
  int64_t rows = 0, columns = 0;
  if (attr.getKind() == DerivedKind::Transpose) {
    if (sources.size() != 1 || sources[0].parts.size() != 1 || data.vector)
      return makeError(ErrorCode::BadInput, labelOf(weight),
                       ": a transpose needs one matrix that is not joined "
                       "from others");
    Part part = sources[0].parts.front();
    std::swap(part.rows, part.columns);
    part.transposed = !part.transposed;
    rows = part.rows;
    columns = part.columns;
    data.parts = {part};
  } else if (attr.getKind() == DerivedKind::SliceRows) {
    if (sources.size() != 1 || sources[0].parts.size() != 1)
      return makeError(ErrorCode::BadInput, labelOf(weight),
                       ": a slice needs one source that is not joined from "
                       "others");
    Part part = sources[0].parts.front();
    const int64_t first = attr.getFirst();
    part.pitch = part.tensorColumns();
    part.first = data.vector ? part.index(0, first) : part.index(first, 0);
    (data.vector ? part.columns : part.rows) =
        data.vector ? data.columns : data.rows;
    rows = part.rows;
    columns = part.columns;
    data.parts = {part};
  } else {
    for (const WeightData &source : sources) {
      (data.vector ? columns : rows) +=
          data.vector ? source.columns : source.rows;
      if (!data.vector) {
        if (columns && columns != source.columns)
          return makeError(ErrorCode::BadInput, labelOf(weight),
                           ": joins rows of ", columns, " and of ",
                           source.columns, " columns");
        columns = source.columns;
      }
      data.parts.insert(data.parts.end(), source.parts.begin(),
                        source.parts.end());
    }
    rows = data.vector ? 1 : rows;
  }
  if (rows != data.rows || columns != data.columns)
    return makeError(ErrorCode::BadInput, labelOf(weight), ": has type ",
                     print(weight.getType()), " but its sources give ", rows,
                     " x ", columns);
  return data;
}

/// What the columns of a low-bit copy are divided by.
Result<WeightData> Resolver::balance(WeightOp weight, DerivedAttr attr,
                                     WeightData data) {
  FORESIGHT_TRY(WeightOp source, lookup(attr.getSources()[0].getValue()));
  FORESIGHT_TRY(WeightData matrix, resolve(source));
  std::vector<float> gamma;
  auto tensor = std::make_shared<Tensor>();
  tensor->key = "balance " + matrix.key();
  if (!attr.isMissing(1)) {
    FORESIGHT_TRY(WeightOp vectorOp, lookup(attr.getSources()[1].getValue()));
    FORESIGHT_TRY(WeightData vector, resolve(vectorOp));
    gamma.resize(static_cast<size_t>(vector.columns));
    FORESIGHT_CHECK(vector.readRows(0, 1, gamma.data()));
    tensor->key += ";" + vector.key();
  }
  if (matrix.columns != data.columns ||
      (!gamma.empty() && gamma.size() != static_cast<size_t>(matrix.columns)))
    return makeError(ErrorCode::BadInput, labelOf(weight), ": has type ",
                     print(weight.getType()), " but ", matrix.columns,
                     " columns and ", gamma.size(), " gammas to balance");
  FORESIGHT_TRY(const std::vector<float> sample, readSample(matrix));
  tensor->data = lowbit::balanceColumns(sample, matrix.columns, gamma);
  tensor->name = tensorNameOf(weight);
  tensor->where = labelOf(weight);
  tensor->count = data.columns;
  data.parts = {Part{std::move(tensor), 1, data.columns, false}};
  return data;
}

Result<WeightData> Resolver::resolve(WeightOp weight) {
  const std::string symbol = weight.getSymName().str();
  auto type = dyn_cast<RankedTensorType>(weight.getType());
  if (!type || !type.hasStaticShape() || type.getRank() < 1 ||
      type.getRank() > 2 || type.getNumElements() == 0)
    return makeError(ErrorCode::BadInput, labelOf(weight), ": has type ",
                     print(weight.getType()),
                     "; expected a vector or matrix of known size");
  if (std::find(active.begin(), active.end(), symbol) != active.end())
    return makeError(ErrorCode::BadInput, labelOf(weight),
                     ": is derived from itself");

  WeightData data;
  FORESIGHT_TRY(data.element,
                toElementType(type.getElementType(), labelOf(weight)));
  data.vector = type.getRank() == 1;
  data.rows = data.vector ? 1 : type.getDimSize(0);
  data.columns = type.getDimSize(type.getRank() - 1);
  Part part{nullptr, data.rows, data.columns, false};
  const Attribute source = weight.getSource();
  if (auto attr = dyn_cast<ExternalAttr>(source)) {
    FORESIGHT_TRY(part.tensor, external(weight, attr, type.getNumElements()));
    part.transposed = attr.getTransposed() && !data.vector;
  } else if (auto attr = dyn_cast<SyntheticAttr>(source)) {
    auto tensor = std::make_shared<Tensor>();
    tensor->data =
        Synthetic{static_cast<uint64_t>(attr.getSeed()),
                  static_cast<float>(attr.getMean().getValueAsDouble()),
                  static_cast<float>(attr.getDeviation().getValueAsDouble())};
    tensor->name = tensorNameOf(weight);
    tensor->where = labelOf(weight);
    tensor->count = type.getNumElements();
    tensor->key = print(source);
    part.tensor = std::move(tensor);
  } else if (auto attr = dyn_cast<ElementsAttr>(source)) {
    FORESIGHT_TRY(part.tensor, dense(weight, attr));
  } else if (auto attr = dyn_cast<DerivedAttr>(source);
             attr && attr.getKind() != DerivedKind::LowBit) {
    active.push_back(symbol);
    auto result = attr.getKind() == DerivedKind::Balance
                      ? balance(weight, attr, std::move(data))
                      : derived(weight, attr, std::move(data));
    active.pop_back();
    return result;
  } else {
    return makeError(ErrorCode::BadInput, labelOf(weight),
                     ": a source of kind ", print(source),
                     " cannot give a tensor");
  }
  data.parts = {part};
  return data;
}
