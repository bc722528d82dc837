//===- Program.h - What a graph was recognised as ---------------*- C++ -*-===//
#ifndef FORESIGHT_RAISE_PROGRAM_H
#define FORESIGHT_RAISE_PROGRAM_H

#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/Onnx/Onnx.h"

#include <string>
#include <vector>

namespace foresight::raising {

/// A weight matrix as the graph stores it. `transposed`: the graph multiplies
/// by, or looks up rows of, the transpose of what is stored.
struct Matrix {
  onnx::ConstantOp constant;
  bool transposed = false;

  explicit operator bool() const { return static_cast<bool>(constant); }
  friend bool operator==(Matrix a, Matrix b) {
    return a.constant == b.constant && a.transposed == b.transposed;
  }
  /// Size as the graph uses it.
  int64_t dim(unsigned i) {
    return mlir::cast<mlir::RankedTensorType>(constant.getType())
        .getDimSize(transposed ? 1 - i : i);
  }
};

/// Which features of a linear layer that exporters joined from several a part
/// is: `size` from `first` on; 0: all. Where query, key and value of a head lie
/// together they are runs of `run` features, `step` apart; 0: one run.
struct Slice {
  int64_t first = 0, size = 0, run = 0, step = 0;

  /// Where its feature `i` is.
  int64_t index(int64_t i) const {
    return first + (run ? i / run * step + i % run : i);
  }
  friend bool operator==(const Slice &, const Slice &) = default;
};

/// One op of the program to come: rows of features, one row a token.
struct Part {
  enum class Kind {
    Embed,     ///< rows of `matrix` by token id or by position
    Linear,    ///< `x . matrix + beta`, matrix [out, in]
    Norm,      ///< LayerNorm with gamma, beta and epsilon `number`
    Activate,  ///< `activation`
    Add,       ///< operands 0 and 1
    Attention, ///< of query, key, value; scale `number`
    Unknown,   ///< what could not be recognised; reported already
  };

  Kind kind;
  int64_t width = 0;
  llvm::SmallVector<int, 3> operands = {};
  Matrix matrix = {};
  onnx::ConstantOp gamma = {}, beta = {};
  /// The rows of a linear layer's `matrix`, and the elements of `beta`.
  Slice rows = {}, bias = {};
  double number = 0;
  int64_t heads = 0;
  /// Embed: what is added to the position; -1: by token id.
  int64_t offset = 0;
  Activation activation = Activation::None;
  /// Attention: inputs of the graph that are its cache, -1 if it has none.
  int pastKey = -1, pastValue = -1;
  /// The nodes it was.
  llvm::SmallVector<mlir::Location, 2> locations = {};
  /// What OPT calls it ("layers.3.fc1"), once that is known.
  std::string name = {};

  void setBias(onnx::ConstantOp constant, Slice elements) {
    beta = constant;
    bias = elements;
  }

  bool same(const Part &other) const {
    return kind == other.kind && operands == other.operands &&
           matrix == other.matrix && gamma == other.gamma &&
           beta == other.beta && rows == other.rows && bias == other.bias &&
           number == other.number && heads == other.heads &&
           offset == other.offset && activation == other.activation &&
           pastKey == other.pastKey && pastValue == other.pastValue;
  }
};

llvm::StringRef nameOf(Part::Kind kind);

/// Parts in an order in which each comes after its operands.
struct Program {
  std::vector<Part> parts;
  int logits = -1;
  /// Which parts the logits need.
  std::vector<bool> live() const;
};

} // namespace foresight::raising

#endif // FORESIGHT_RAISE_PROGRAM_H
