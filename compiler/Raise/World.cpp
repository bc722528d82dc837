//===- World.cpp - Small inputs that a graph is run on --------------------===//

#include "World.h"

#include <cmath>

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;
using onnx::Tensor;

std::string World::describe() const {
  return std::to_string(batch) + " sequences of " + std::to_string(tokens) +
         " tokens after " + std::to_string(past);
}

double Random::normal() {
  if (spare) {
    const double value = *spare;
    spare.reset();
    return value;
  }
  // Box and Muller, from numbers in (0, 1]: std::normal_distribution differs
  // between libraries.
  double u = (static_cast<double>(engine() >> 11) + 1) * 0x1p-53;
  double v = static_cast<double>(engine() >> 11) * 0x1p-53;
  double radius = std::sqrt(-2 * std::log(u));
  spare = radius * std::sin(2 * M_PI * v);
  return radius * std::cos(2 * M_PI * v);
}

std::vector<double> Random::normals(int64_t count) {
  std::vector<double> result(static_cast<size_t>(count));
  for (double &value : result)
    value = normal();
  return result;
}

FailureOr<Inputs> raising::classifyInputs(onnx::GraphOp graph, bool usePast) {
  Inputs result;
  bool ok = true, flag = false, past = false;
  unsigned ids = 0;
  Block &block = graph.getBody().front();
  for (auto [arg, nameAttr] :
       llvm::zip(block.getArguments(), graph.getInputs())) {
    StringRef name = cast<StringAttr>(nameAttr).getValue();
    auto type = dyn_cast<RankedTensorType>(arg.getType());
    int64_t rank = type ? type.getRank() : -1;
    Type element = cast<TensorType>(arg.getType()).getElementType();
    if (element.isInteger(1) && rank >= 0 && rank <= 1) {
      result.roles.push_back(Role::Flag);
      flag = true;
    } else if (isa<FloatType>(element) && rank == 4) {
      result.roles.push_back(Role::Past);
      past = true;
    } else if (rank == 2 && name.contains_insensitive("mask")) {
      result.roles.push_back(Role::Mask);
      result.hasMask |= !arg.use_empty();
    } else if (rank == 2 && name.contains_insensitive("position")) {
      result.roles.push_back(Role::Positions);
    } else if (rank == 2 && isa<IntegerType>(element) && ids++ == 0) {
      result.roles.push_back(Role::Ids);
    } else {
      emitError(graph.getLoc())
          << "input '" << name << "' of type " << arg.getType()
          << " is not one that an OPT export has: token ids, an "
             "attention mask, positions, or keys and values";
      ok = false;
    }
  }
  if (ok && ids == 0) {
    emitError(graph.getLoc()) << "no input holds token ids [batch, tokens]";
    ok = false;
  }
  if (!ok)
    return failure();
  result.hasPast = past && (!flag || usePast);
  return result;
}

/// The most sequences or tokens that a graph may fix; every world has as many.
static constexpr int64_t kLargestSize = 128;

FailureOr<std::vector<World>> raising::makeWorlds(onnx::GraphOp graph,
                                                  const Inputs &inputs) {
  bool ok = true;
  // Sizes that are fixed; -1 if free.
  int64_t batch = -1, tokens = -1, past = -1;
  Block &block = graph.getBody().front();
  for (auto [role, arg] : llvm::zip(inputs.roles, block.getArguments())) {
    auto type = dyn_cast<RankedTensorType>(arg.getType());
    auto fixed = [&](unsigned i, int64_t &size) {
      if (!type.isDynamicDim(i))
        size = type.getDimSize(i);
      if (size > kLargestSize || (size == 0 && role == Role::Ids)) {
        emitError(graph.getLoc())
            << "input " << graph.getInputs()[arg.getArgNumber()] << " of type "
            << type << " has a fixed size of " << size
            << "; export the model with dynamic axes for batch and tokens";
        ok = false;
      }
    };
    if (role == Role::Ids) {
      fixed(0, batch);
      fixed(1, tokens);
    } else if (role == Role::Past && inputs.hasPast) {
      fixed(2, past);
    }
    if (role != Role::Past)
      continue;
    int64_t heads = type.getDimSize(1), size = type.getDimSize(3);
    // The largest world holds this many tokens' keys.
    int64_t held =
        onnx::times(std::max<int64_t>(batch, 2), std::max<int64_t>(past, 4));
    if (heads < 1 || size < 1 || heads > (1 << 24) / held / size) {
      emitError(graph.getLoc())
          << "input " << graph.getInputs()[arg.getArgNumber()]
          << " must have a fixed number of heads and head size, found " << type;
      ok = false;
    }
  }
  if (!ok)
    return failure();
  std::vector<World> worlds;
  auto add = [&](World world) {
    if (batch >= 0)
      world.batch = batch;
    if (tokens >= 0)
      world.tokens = tokens;
    if (past >= 0)
      world.past = past;
    world.pads.resize(world.batch, 0);
    for (int64_t &pad : world.pads)
      // A sequence of padding alone would leave nothing to compare.
      pad = inputs.hasMask ? std::min(pad, world.history() - 1) : 0;
    worlds.push_back(std::move(world));
  };
  if (inputs.hasPast && tokens == 1) {
    add({2, 1, 3, {0, 2}});
    add({1, 1, 1, {0}});
  } else if (inputs.hasPast) {
    add({2, 3, 2, {0, 1}});
    add({2, 4, 0, {0, 2}});
    // One token after one other: what is seen is the same with and without a
    // causal mask, so attention's scale can be found whatever the mask.
    add({1, 1, 1, {0}});
  } else {
    add({2, 4, 0, {0, 2}});
    add({2, 3, 0, {1, 0}});
    add({1, 2, 0, {0}});
  }
  return worlds;
}

Tensor raising::makeInput(onnx::GraphOp graph, const Inputs &inputs,
                          unsigned index, bool usePast, const World &world,
                          Random &random) {
  BlockArgument arg = graph.getBody().front().getArgument(index);
  auto type = cast<RankedTensorType>(arg.getType());
  Type element = type.getElementType();
  auto ints = [&](ArrayRef<int64_t> shape, auto valueAt) {
    Tensor tensor(element, shape);
    for (int64_t i = 0; i < tensor.count(); ++i)
      if (tensor.isFloat())
        tensor.writeFloats()[i] = static_cast<double>(valueAt(i));
      else
        tensor.writeInts()[i] = valueAt(i);
    return tensor;
  };
  switch (inputs.roles[index]) {
  case Role::Ids:
    // Large enough to be distinct, small enough for any vocabulary.
    return ints({world.batch, world.tokens},
                [&](int64_t) { return 3 + random.below(90); });
  case Role::Mask:
    return ints({world.batch, world.history()}, [&](int64_t i) {
      return i % world.history() >= world.pads[i / world.history()];
    });
  case Role::Positions:
    return ints({world.batch, world.tokens}, [&](int64_t row) {
      return world.isReal(row) ? world.position(row) : -1;
    });
  case Role::Past: {
    int64_t heads = type.getDimSize(1), size = type.getDimSize(3);
    int64_t past = inputs.hasPast ? world.past : 0;
    onnx::Shape shape = {world.batch, heads, past, size};
    return Tensor::ofFloats(element, shape,
                            random.normals(onnx::countOf(shape)));
  }
  case Role::Flag:
    return ints(onnx::Shape(type.getRank(), 1),
                [&](int64_t) { return usePast; });
  }
  return {};
}
