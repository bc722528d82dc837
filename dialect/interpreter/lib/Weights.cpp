//===- Weights.cpp - Weight data from their sources -----------------------===//

#include "foresight/Interpreter/Weights.h"

#include "foresight/lowbit/Balance.h"
#include "foresight/lowbit/Pack.h"
#include "foresight/support/ElementType.h"
#include "foresight/support/Float.h"
#include "foresight/support/MappedFile.h"
#include "foresight/support/Synthetic.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;

double interpreter::roundTo(Type element, double value) {
  const auto single = static_cast<float>(value);
  if (element.isF16())
    return halfToFloat(floatToHalf(single));
  if (element.isBF16())
    return bfloatToFloat(floatToBfloat(single));
  return single;
}

namespace {

/// Rows and columns of a vector (one row) or matrix.
Matrix emptyOf(RankedTensorType type) {
  if (type.getRank() == 1)
    return Matrix(1, type.getDimSize(0));
  return Matrix(type.getDimSize(0), type.getDimSize(1));
}

Matrix transposed(const Matrix &m) {
  Matrix result(m.columns, m.rows);
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.columns; ++c)
      result.at(c, r) = m.at(r, c);
  return result;
}

std::vector<float> toFloat(std::span<const double> values) {
  return {values.begin(), values.end()};
}

std::optional<ElementType> elementTypeOf(Type type) {
  if (type.isF16())
    return ElementType::F16;
  if (type.isBF16())
    return ElementType::BF16;
  if (type.isF32())
    return ElementType::F32;
  if (type.isF64())
    return ElementType::F64;
  return std::nullopt;
}

FailureOr<Matrix> readExternal(WeightOp weight, ExternalAttr source) {
  auto file = MappedFile::open(source.getFile().str());
  if (!file.ok())
    return weight.emitOpError() << file.error().message;
  auto bytes = file->slice(source.getOffset(), source.getBytes());
  if (!bytes.ok())
    return weight.emitOpError() << bytes.error().message;
  auto type = cast<RankedTensorType>(weight.getType());
  std::vector<float> values(type.getNumElements());
  convertToFloat(*elementTypeOf(source.getElement()), bytes->data(),
                 values.data(), values.size());
  Matrix result = emptyOf(type);
  if (source.getTransposed())
    std::swap(result.rows, result.columns);
  std::copy(values.begin(), values.end(), result.data.begin());
  return source.getTransposed() ? transposed(result) : result;
}

Matrix readSynthetic(RankedTensorType type, SyntheticAttr source) {
  const Synthetic synthetic{
      static_cast<uint64_t>(source.getSeed()),
      static_cast<float>(source.getMean().getValueAsDouble()),
      static_cast<float>(source.getDeviation().getValueAsDouble())};
  std::vector<float> values(type.getNumElements());
  synthetic.fill(0, values.data(), values.size());
  Matrix result = emptyOf(type);
  std::copy(values.begin(), values.end(), result.data.begin());
  return result;
}

/// As packing makes it, from the same rows; a null gamma is missing.
Matrix makeBalance(const Matrix &weight, const Matrix *gamma) {
  std::vector<float> sample;
  for (const lowbit::RowRange &group : lowbit::sampleRows(weight.rows))
    for (int64_t i = group.begin; i < group.end; ++i)
      for (const double value : weight.row(i))
        sample.push_back(static_cast<float>(value));
  const std::vector<float> balance = lowbit::balanceColumns(
      sample, weight.columns,
      gamma ? toFloat(gamma->data) : std::vector<float>());
  Matrix result(1, weight.columns);
  std::copy(balance.begin(), balance.end(), result.data.begin());
  return result;
}

/// Rounds a matrix to few bits with LayerNorm folded in; null is missing.
LowBitCopy makeCopy(LowBitType type, const Matrix &weight, const Matrix *bias,
                    const Matrix *gamma, const Matrix *beta,
                    const Matrix *balance) {
  const int64_t rows = type.getRows(), columns = type.getColumns();
  const int bits = static_cast<int>(type.getBits());
  std::vector<std::byte> bytes(lowbit::record(rows, columns, bits).bytes);
  const auto vector = [](const Matrix *source) {
    return source ? toFloat(source->data) : std::vector<float>();
  };
  const std::vector<float> g = vector(gamma), b = vector(beta),
                           c = vector(balance);
  const lowbit::Packer packer(rows, columns, bits, g, b, bytes, c);
  for (int64_t i = 0; i < rows; ++i)
    packer.pack(i, toFloat(weight.row(i)),
                bias ? static_cast<float>(bias->data[i]) : 0);

  const lowbit::RecordView record(bytes.data(), rows, columns, bits);
  LowBitCopy copy{bits, Matrix(rows, columns), {}, {}};
  std::vector<uint8_t> codes(columns);
  for (int64_t i = 0; i < rows; ++i) {
    record.codes(i, codes);
    for (int64_t k = 0; k < columns; ++k)
      copy.values.at(i, k) = record.valueOf(i, codes[k]);
    copy.bias.push_back(record.bias(i));
    copy.error.push_back(record.error(i));
  }
  return copy;
}

} // namespace

FailureOr<Data> Weights::get(WeightOp weight) {
  auto [it, isNew] = made.try_emplace(weight.getSymName());
  if (!isNew)
    return it->second;
  FailureOr<Data> data = make(weight);
  if (failed(data))
    made.erase(weight.getSymName());
  else
    made[weight.getSymName()] = *data;
  return data;
}

FailureOr<Data> Weights::make(WeightOp weight) {
  auto type = dyn_cast<RankedTensorType>(weight.getType());
  auto rounded = [&](Matrix matrix) {
    for (double &v : matrix.data)
      v = roundTo(type.getElementType(), v);
    return Data(std::move(matrix));
  };

  if (type && provider)
    if (std::optional<std::vector<double>> given = provider(weight)) {
      Matrix matrix = emptyOf(type);
      if (given->size() != matrix.data.size())
        return weight.emitOpError()
               << "has " << matrix.data.size() << " elements but was given "
               << given->size();
      matrix.data = std::move(*given);
      return rounded(std::move(matrix));
    }
  if (auto elements = dyn_cast<DenseElementsAttr>(weight.getSource())) {
    Matrix matrix = emptyOf(type);
    int64_t i = 0;
    for (const APFloat &value : elements.getValues<APFloat>()) {
      APFloat wide = value;
      bool loses;
      wide.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
      matrix.data[i++] = wide.convertToDouble();
    }
    return Data(std::move(matrix));
  }
  if (auto source = dyn_cast<ExternalAttr>(weight.getSource())) {
    FailureOr<Matrix> matrix = readExternal(weight, source);
    if (failed(matrix))
      return failure();
    return rounded(std::move(*matrix));
  }
  if (auto source = dyn_cast<SyntheticAttr>(weight.getSource()))
    return rounded(readSynthetic(type, source));

  auto derived = dyn_cast<DerivedAttr>(weight.getSource());
  if (!derived)
    return weight.emitOpError()
           << "has a source that cannot be read: " << weight.getSource();
  SmallVector<Data> sources;
  SmallVector<const Matrix *> matrices;
  for (auto [i, name] : llvm::enumerate(derived.getSources())) {
    sources.emplace_back();
    if (derived.isMissing(i))
      continue;
    FailureOr<Data> source =
        get(SymbolTable::lookupNearestSymbolFrom<WeightOp>(weight, name));
    if (failed(source))
      return failure();
    sources.back() = *source;
  }
  for (const Data &source : sources)
    matrices.push_back(source.getIf<Matrix>());

  switch (derived.getKind()) {
  case DerivedKind::Transpose:
    return rounded(transposed(*matrices[0]));
  case DerivedKind::ConcatRows: {
    Matrix joined = emptyOf(type);
    auto *to = joined.data.data();
    for (const Matrix *source : matrices)
      to = std::copy(source->data.begin(), source->data.end(), to);
    return rounded(std::move(joined));
  }
  case DerivedKind::SliceRows: {
    Matrix slice = emptyOf(type);
    const int64_t width = type.getRank() == 1 ? 1 : slice.columns;
    std::copy_n(matrices[0]->data.begin() + derived.getFirst() * width,
                slice.data.size(), slice.data.begin());
    return rounded(std::move(slice));
  }
  case DerivedKind::LowBit:
    return Data(makeCopy(cast<LowBitType>(weight.getType()), *matrices[0],
                         matrices[1], matrices[2], matrices[3],
                         matrices.size() > 4 ? matrices[4] : nullptr));
  case DerivedKind::Balance:
    return rounded(makeBalance(*matrices[0], matrices[1]));
  }
  return failure();
}
