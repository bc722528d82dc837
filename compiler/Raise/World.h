//===- World.h - Small inputs that a graph is run on ------------*- C++ -*-===//
//
// A world is one small shape (sequences, new tokens, tokens in the cache,
// padding on the left) with random data. What holds in several worlds with
// different shapes is what the graph means.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_RAISE_WORLD_H
#define FORESIGHT_RAISE_WORLD_H

#include "foresight/Import/Onnx/Onnx.h"
#include "foresight/Import/Onnx/Tensor.h"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace foresight::raising {

/// What an input of the graph is for.
enum class Role { Ids, Mask, Positions, Past, Flag };

struct World {
  int64_t batch, tokens, past;
  /// Padding in front of each sequence.
  std::vector<int64_t> pads;

  int64_t rows() const { return batch * tokens; }
  int64_t history() const { return past + tokens; }
  int64_t sequence(int64_t row) const { return row / tokens; }
  /// Where in the history a row's own token is.
  int64_t place(int64_t row) const { return past + row % tokens; }
  /// Rows of padding have no meaning and are not compared.
  bool isReal(int64_t row) const { return place(row) >= pads[sequence(row)]; }
  /// The position that OPT gives the row's token.
  int64_t position(int64_t row) const {
    return place(row) - pads[sequence(row)];
  }
  std::string describe() const;
};

struct Inputs {
  std::vector<Role> roles;
  bool hasPast = false, hasMask = false;
};

/// Finds out what each input is for. `usePast` says which branch of a merged
/// graph is meant. Reports inputs that it cannot place.
mlir::FailureOr<Inputs> classifyInputs(onnx::GraphOp graph, bool usePast);

/// Worlds that fit the sizes that the graph's inputs fix.
/// Reports sizes that are zero, or too large to run.
mlir::FailureOr<std::vector<World>> makeWorlds(onnx::GraphOp graph,
                                               const Inputs &inputs);

/// A source of normal numbers that is the same on every machine.
class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}
  double normal();
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(engine() % static_cast<uint64_t>(limit));
  }
  std::vector<double> normals(int64_t count);

private:
  std::mt19937_64 engine;
  std::optional<double> spare; ///< numbers are made in pairs
};

/// The data of input `index` in a world.
onnx::Tensor makeInput(onnx::GraphOp graph, const Inputs &inputs,
                       unsigned index, bool usePast, const World &world,
                       Random &random);

} // namespace foresight::raising

#endif // FORESIGHT_RAISE_WORLD_H
