//===- WeightData.h - Rows of a weight, whatever it is made of --*- C++ -*-===//
#ifndef FORESIGHT_TARGET_PACKING_WEIGHTDATA_H
#define FORESIGHT_TARGET_PACKING_WEIGHTDATA_H

#include "foresight/Dialect/Foresight.h"
#include "foresight/support/ElementType.h"
#include "foresight/support/MappedFile.h"
#include "foresight/support/Synthetic.h"

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace foresight::packing {

/// A tensor as its source has it: a range of a file, a rule, or numbers.
struct Tensor {
  struct InFile {
    std::shared_ptr<const MappedFile> file;
    uint64_t offset;
  };
  std::variant<InFile, Synthetic, std::vector<float>> data;
  ElementType stored = ElementType::F32;
  int64_t count = 0;
  std::string name;  ///< for messages: the tensor's name in its file
  std::string where; ///< the file, or what else it is
  std::string key;   ///< equal for equal sources

  /// Elements [first, first + size), converted to `to`.
  void read(uint64_t first, size_t size, ElementType to, std::byte *out) const;
  float at(uint64_t index) const;
};

/// `rows` rows of a tensor of `columns` a row, or of its transpose. A vector is
/// one row.
struct Part {
  std::shared_ptr<const Tensor> tensor;
  int64_t rows = 0, columns = 0;
  bool transposed = false;
  /// Where it begins in the tensor, and the elements of a row of the tensor,
  /// where it is not all of it.
  int64_t first = 0, pitch = 0;

  int64_t tensorColumns() const {
    return pitch ? pitch : transposed ? rows : columns;
  }
  /// Where an element is in the tensor.
  int64_t index(int64_t row, int64_t column) const {
    return first + (transposed ? column * tensorColumns() + row
                               : row * tensorColumns() + column);
  }
};

/// A weight with external, synthetic, dense, transposed or joined source.
class WeightData {
public:
  int64_t rows = 0, columns = 0;
  bool vector = false; ///< parts are joined end to end, not row below row
  ElementType element = ElementType::F32; ///< the weight's own
  std::vector<Part> parts;

  /// Writes rows [begin, end) in the weight's own element type, `stride` bytes
  /// apart, and fails if one of their elements is not finite.
  Status readRows(int64_t begin, int64_t end, std::byte *out,
                  int64_t stride) const;
  /// The same, converted to f32 afterwards: the numbers that a program sees.
  Status readRows(int64_t begin, int64_t end, float *out) const;

  /// Equal for weights that are made of the same sources in the same way.
  std::string key() const;
  /// Names of the tensors it is made of.
  std::vector<std::string> tensorNames() const;
  /// A hash of a few elements: equal for equal weights.
  uint64_t sample() const;

private:
  Status readPart(const Part &part, int64_t begin, int64_t end, std::byte *out,
                  int64_t stride) const;
  Status checkFinite(const Part &part, int64_t row, const std::byte *values,
                     int64_t count) const;
};

/// Rows that `lowbit::sampleRows` names, one after the other.
Result<std::vector<float>> readSample(const WeightData &weight);

/// Whether every element is the same. Element types and shapes must be equal.
Result<bool> equalContent(const WeightData &a, const WeightData &b);

/// Finds the data of weights of a module; opens each file once.
class Resolver {
public:
  explicit Resolver(mlir::ModuleOp module) : symbols(module) {}

  Result<WeightOp> lookup(llvm::StringRef symbol);
  /// Not for low_bit weights.
  Result<WeightData> resolve(WeightOp weight);

private:
  Result<std::shared_ptr<const Tensor>>
  external(WeightOp weight, ExternalAttr attr, int64_t count);
  Result<std::shared_ptr<const Tensor>> dense(WeightOp weight,
                                              mlir::ElementsAttr attr);
  Result<WeightData> derived(WeightOp weight, DerivedAttr attr,
                             WeightData data);
  Result<WeightData> balance(WeightOp weight, DerivedAttr attr,
                             WeightData data);

  mlir::SymbolTable symbols;
  std::map<std::string, std::shared_ptr<const MappedFile>> files;
  /// Symbols under resolution, to find sources that lead back to themselves.
  std::vector<std::string> active;
};

/// The element type of a tensor or of `#foresight.external`.
Result<ElementType> toElementType(mlir::Type type, const std::string &where);

} // namespace foresight::packing
#endif
