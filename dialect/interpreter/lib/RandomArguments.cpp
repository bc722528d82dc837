//===- RandomArguments.cpp - Inputs that only a seed decides --------------===//

#include "Evaluate.h"

#include "foresight/support/Synthetic.h"

#include <algorithm>
#include <random>

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;

namespace {

/// What the values of an int32 argument may be, and whether they follow each
/// other: positions do, and sequences of rows.
struct Bounds {
  int64_t below = INT32_MAX;
  bool areInOrder = false;
};

/// Follows `value` into stages and kernels and narrows `bounds` by each use.
void findBounds(Value value, Bounds &bounds) {
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    auto limit = [&](int64_t below) {
      bounds.below = std::min(bounds.below, below);
    };
    auto follow = [&](Block &block, OperandRange inputs) {
      const unsigned index =
          use.getOperandNumber() - inputs.getBeginOperandIndex();
      findBounds(block.getArgument(index), bounds);
    };
    if (auto gather = dyn_cast<GatherRowsOp>(op)) {
      auto table = cast<RankedTensorType>(gather.getTable().getType());
      limit(table.getDimSize(0) - static_cast<int64_t>(gather.getOffset()));
      // Learned positions have an offset; ids do not.
      bounds.areInOrder |= gather.getOffset() != 0;
    } else if (isa<KvAppendOp, AttentionOp>(op)) {
      auto append = dyn_cast<KvAppendOp>(op);
      auto attention = dyn_cast<AttentionOp>(op);
      auto cache = cast<KvCacheType>(
          (append ? append.getCache() : attention.getCache()).getType());
      bool isPosition =
          value == (append ? append.getPositions() : attention.getPositions());
      limit(isPosition ? cache.getCapacity() : cache.getSequences());
      bounds.areInOrder = true;
    } else if (auto stage = dyn_cast<StageOp>(op)) {
      follow(stage.getBody().front(), stage.getInputs());
    } else if (auto launch = dyn_cast<LaunchOp>(op)) {
      if (auto kernel = SymbolTable::lookupNearestSymbolFrom<KernelOp>(
              op, launch.getKernelAttr()))
        follow(kernel.getBody().front(), launch.getInputs());
    }
  }
}

class Generator {
public:
  Generator(uint64_t seed, unsigned argument, int64_t tokens)
      : engine(deriveSeed(seed, argument)), tokens(tokens) {}

  Data ids(BlockArgument argument) {
    Bounds bounds;
    findBounds(argument, bounds);
    auto type = cast<RankedTensorType>(argument.getType());
    const int64_t count = extent(type.getDimSize(0));
    Ids ids;
    const int64_t first = below(std::max<int64_t>(
        1, bounds.areInOrder ? bounds.below - count + 1 : bounds.below));
    for (int64_t t = 0; t < count; ++t)
      ids.values.push_back(static_cast<int32_t>(
          bounds.areInOrder ? first + t : below(bounds.below)));
    return ids;
  }

  Data matrix(RankedTensorType type) {
    Matrix result(type.getRank() == 1 ? 1 : extent(type.getDimSize(0)),
                  extent(type.getShape().back()));
    fill(result.data, type.getElementType());
    return result;
  }

  Data cache(KvCacheType type) {
    KvCache cache{
        type.getHeads(),    type.getHeadDim(), type.getCapacity(), {}, {},
        type.getSequences()};
    cache.keys.resize(cache.offset(type.getSequences(), 0, 0));
    cache.values.resize(cache.keys.size());
    fill(cache.keys, type.getElementType());
    fill(cache.values, type.getElementType());
    return cache;
  }

  Data sets(IndexSetType type) {
    IndexSets sets{type.getUniverse(), {}};
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<int32_t> row;
      const int64_t count = below(type.getCapacity() + 1);
      // Take i with the chance that leaves `count` in the end.
      for (int64_t i = 0; i < type.getUniverse(); ++i)
        if (below(type.getUniverse() - i) <
            count - static_cast<int64_t>(row.size()))
          row.push_back(static_cast<int32_t>(i));
      sets.rows.push_back(std::move(row));
    }
    return sets;
  }

private:
  int64_t extent(int64_t declared) const {
    return ShapedType::isDynamic(declared) ? tokens : declared;
  }

  // Distributions of the standard library differ from one to the next.
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(engine() % static_cast<uint64_t>(limit));
  }

  void fill(std::vector<double> &values, Type element) {
    for (double &v : values)
      v = roundTo(element,
                  normalQuantile((static_cast<double>(engine() >> 11) + 0.5) *
                                 0x1p-53));
  }

  std::mt19937_64 engine;
  int64_t tokens;
};

} // namespace

FailureOr<SmallVector<Data>>
interpreter::randomArguments(func::FuncOp function,
                             const RandomOptions &options) {
  SmallVector<Data> result;
  for (BlockArgument argument : function.getArguments()) {
    Generator generator(options.seed, argument.getArgNumber(), options.tokens);
    Type type = argument.getType();
    if (auto cache = dyn_cast<KvCacheType>(type)) {
      result.push_back(generator.cache(cache));
    } else if (auto sets = dyn_cast<IndexSetType>(type)) {
      result.push_back(generator.sets(sets));
    } else if (isa<TokenType>(type)) {
      result.push_back(Token{});
    } else if (auto tensor = dyn_cast<RankedTensorType>(type);
               tensor && tensor.getRank() == 1 &&
               tensor.getElementType().isInteger(32)) {
      result.push_back(generator.ids(argument));
    } else if (tensor && tensor.getRank() >= 1 && tensor.getRank() <= 2 &&
               isa<FloatType>(tensor.getElementType())) {
      result.push_back(generator.matrix(tensor));
    } else {
      return function.emitOpError()
             << "argument " << argument.getArgNumber() << " has type " << type
             << ", of which no random value is made";
    }
  }
  return result;
}
