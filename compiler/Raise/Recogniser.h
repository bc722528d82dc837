//===- Recogniser.h - From what nodes compute to parts ----------*- C++ -*-===//
//
// Runs the graph in a few small worlds at once. Products with weight matrices
// and lookups in tables are cuts: the matrix is never read, the result is
// fresh random data. Between cuts everything is computed, and a value that
// equals a formula of known parts (a sum, LayerNorm, attention ...) in every
// world becomes a part itself. Names, shapes written in the file and the way
// an exporter spells a formula do not matter.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RAISE_RECOGNISER_H
#define FORESIGHT_RAISE_RECOGNISER_H

#include "Program.h"
#include "World.h"

#include "foresight/Import/Onnx/Evaluator.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>
#include <optional>

namespace foresight::raising {

struct RecogniserOptions {
  /// In a merged graph, take the branch with a cache.
  bool usePast = false;
  bool explain = false;
  /// Do not say what was put right (for a second look at the same graph).
  bool quiet = false;
};

class Recogniser {
public:
  Recogniser(onnx::GraphOp graph, const RecogniserOptions &options)
      : graph(graph), options(options), random(20220503) {}

  /// Reports everything that was not understood.
  mlir::FailureOr<Program> run();

  /// Whether the graph has both a branch with and one without a cache.
  bool isMerged() const { return merged; }

private:
  /// What a value is made of, back to parts, vectors and inputs.
  struct Leaf {
    enum Kind { PartLeaf, VectorLeaf, InputLeaf } kind;
    int index;
  };
  /// Some elements of a constant vector.
  struct Vector {
    onnx::ConstantOp constant;
    Slice elements;
  };
  /// A value in all worlds.
  struct State {
    llvm::SmallVector<onnx::Tensor, 3> tensors;
    llvm::SmallVector<int, 8> leaves;
    int part = -1;
    /// Rows of `part` that it holds: so many of each sequence's last; 0: all.
    int64_t kept = 0;
    int vector = -1;
    Matrix matrix;
    /// The same whatever the graph is fed, but for its flag. What only happens
    /// to be the same in all worlds is not.
    bool fixed = true;
    /// Something before it was reported; say nothing more.
    bool broken = false;
    /// The formula that came closest, for a message: of this value or, if it is
    /// no rows, of the last one before it, which `suspect` is.
    std::string nearest;
    double nearestError = 0;
    mlir::Value suspect;
    llvm::SmallVector<int, 8> suspectLeaves;
  };
  struct PartData {
    std::vector<onnx::Tensor> worlds;
    int leaf = -1;
    /// States that are made of it.
    int64_t users = 0;
  };
  /// A formula to compare a value with.
  struct Candidate {
    Part part;
    double error;
    double tolerance;
    std::string what;
  };
  /// Attention as it may be: who is query, key and value.
  struct Roles {
    int query, key, value;
    int pastKey = -1, pastValue = -1;
    int64_t heads = 1;
  };
  enum class Sight { Causal, NoCausalMask, NoPadding, Everything };

  // Recogniser.cpp: the walk.
  mlir::LogicalResult prepare();
  void runBlock(mlir::Block &block);
  void visit(onnx::ConstantOp constant);
  void visit(onnx::NodeOp node);
  void visitIf(onnx::NodeOp node);
  bool passMatrix(onnx::NodeOp node);
  bool materialise(onnx::NodeOp node, mlir::Value value);
  void compute(onnx::NodeOp node);
  void setLeaves(State &state, llvm::SmallVector<int, 8> leaves);
  void finishUses(mlir::Operation &op);
  int addPart(Part part, llvm::ArrayRef<onnx::Tensor> data);
  int addLeaf(Leaf leaf);
  bool roomForVector(int64_t count) const;
  int addVector(Vector vector, std::vector<double> values);
  void become(State &state, int part);
  mlir::InFlightDiagnostic fail(mlir::Operation *op);

  // Cuts.cpp: products with weights, lookups, outputs.
  bool visitCut(onnx::NodeOp node);
  void visitLinear(onnx::NodeOp node, Matrix matrix, bool gemm);
  void visitEmbed(onnx::NodeOp node, Matrix matrix);
  llvm::Error checkRows(onnx::NodeOp node, int64_t width);
  int knownRows(onnx::NodeOp node, State &state, mlir::Value value);
  int reportUnknown(onnx::NodeOp node, State &state, mlir::Value value);
  void becomeUnknown(State &state, mlir::Location loc);
  void visitOutputs(onnx::OutputOp output);
  void checkPasts(onnx::OutputOp output,
                  llvm::ArrayRef<std::pair<llvm::StringRef, int>> caches);
  bool isCache(const State &state, int part, int past);
  std::string describeLeaves(llvm::ArrayRef<int> made);

  // MatchSlices.cpp: some rows or features of a part.
  bool matchLastRows(State &state, int x);
  onnx::Tensor lastRows(const onnx::Tensor &all, size_t world,
                        int64_t kept) const;
  bool matchSlice(State &state, int x, mlir::Location loc);
  int addSlice(int x, Slice features, llvm::ArrayRef<onnx::Tensor> tensors,
               mlir::Location loc);
  llvm::SmallVector<int, 4> splitJoined(llvm::ArrayRef<int> parts,
                                        int64_t width, int64_t heads,
                                        mlir::Location loc);
  void sliceVector(State &state);

  // Match.cpp: formulas on rows.
  void match(onnx::NodeOp node, State &state);
  void matchOne(State &state, int x, mlir::Location loc);
  void matchVectors(State &state, int x, llvm::ArrayRef<int> vectors,
                    mlir::Location loc);
  void matchSum(State &state, int a, int b, llvm::ArrayRef<int> vectors,
                mlir::Location loc);
  std::optional<double> solveEpsilon(const State &state, int x, int gamma,
                                     int beta);
  void offer(State &state, Candidate candidate);
  template <typename Formula>
  double difference(const State &state, Formula formula) const;
  int64_t widthOf(const State &state) const;
  double precisionOf(const onnx::Tensor &tensor) const;

  // MatchAttention.cpp
  void matchAttention(State &state, llvm::ArrayRef<int> parts,
                      llvm::ArrayRef<int> pasts, mlir::Location loc);
  std::optional<double> solveScale(const State &state, const Roles &roles);
  double attentionError(const State &state, const Roles &roles, double scale,
                        Sight sight, bool singleTokensOnly = false) const;
  const double *history(size_t world, int part, int past, int64_t sequence,
                        int64_t place, int64_t head, int64_t heads) const;

  onnx::GraphOp graph;
  RecogniserOptions options;
  Random random;
  Inputs inputs;
  std::vector<World> worlds;
  std::vector<std::vector<onnx::Tensor>> inputData;
  llvm::DenseMap<mlir::Value, State> states;
  llvm::DenseMap<mlir::Value, int64_t> uses;
  std::vector<Leaf> leaves;
  std::vector<PartData> data;
  std::vector<Vector> vectors;
  std::vector<std::vector<double>> vectorData;
  /// Numbers in all of them.
  int64_t vectorNumbers = 0;
  Program program;
  onnx::Budget budget;
  bool exhausted = false;
  bool merged = false;
  bool failed = false;
  bool repaired = false;
};

/// The largest difference from `formula(world, row, column)` on rows of real
/// tokens, as a share of the largest value.
template <typename Formula>
double Recogniser::difference(const State &state, Formula formula) const {
  double most = 0, largest = 1e-300;
  for (auto [w, world] : llvm::enumerate(worlds)) {
    const std::vector<double> &values = state.tensors[w].floats();
    int64_t width = static_cast<int64_t>(values.size()) / world.rows();
    for (int64_t row = 0; row < world.rows(); ++row) {
      if (!world.isReal(row))
        continue;
      for (int64_t column = 0; column < width; ++column) {
        double value = values[row * width + column];
        double off = std::abs(value - formula(w, row, column));
        if (!(off <= std::numeric_limits<double>::max()))
          return std::numeric_limits<double>::infinity();
        most = std::max(most, off);
        largest = std::max(largest, std::abs(value));
      }
    }
  }
  return most / largest;
}

} // namespace foresight::raising

#endif // FORESIGHT_RAISE_RECOGNISER_H
