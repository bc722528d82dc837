//===- GpuPromptAttention.cpp - A prompt's queries over their history -----===//
//
// A block is 64 queries of a head: 16 a warp, which stay in registers. It walks
// the history in tiles of 64 tokens, the keys and values of the next tile on
// their way to shared memory while this one is multiplied by the tensor cores.
// Scores never leave registers: each row keeps a running maximum, its part of
// the sum, and the weighted values, all f32. Nothing grows with the length.
//
// Blocks of the last queries walk the longest history and come first.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"
#include "GpuTensorCore.h"
#include "GpuWarp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// History tokens of a tile.
constexpr int64_t kKeys = 64;
/// Tiles in shared memory.
constexpr int64_t kSlots = 2;
/// Below every score; finite, so that differences are numbers.
constexpr double kLowest = -1e30;

int64_t paddedDim(KvCacheType cache) {
  return (cache.getHeadDim() + 15) / 16 * 16;
}

/// Bytes of a row in shared memory: 16 more than it has, so that the eight rows
/// of a matrix lie in different banks.
int64_t sharedRowBytes(KvCacheType cache) { return paddedDim(cache) * 2 + 16; }

class PromptAttentionEmitter {
public:
  explicit PromptAttentionEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), op(frame.plan.attention),
        cache(cast<KvCacheType>(op.getCache().getType())),
        element(cache.getElementType()), headDim(cache.getHeadDim()),
        padded(paddedDim(cache)), rowBytes(padded * 2),
        stride(sharedRowBytes(cache)),
        scale(op.getScale().convertToDouble() * 1.4426950408889634) {}

  void emit();

private:
  /// What a lane knows of its two rows, g and g + 8 of the warp's 16.
  struct State {
    Values best, sum;
    SmallVector<Tile> values;
    Values flat() const {
      Values all(best);
      all.append(sum);
      for (const Tile &tile : values)
        all.append(tile);
      return all;
    }
    static State from(ValueRange all) {
      State state{{all[0], all[1]}, {all[2], all[3]}, {}};
      for (size_t i = 4; i < all.size(); i += 4)
        state.values.push_back(Tile(all.slice(i, 4)));
      return state;
    }
  };

  Value slotOf(Value tile, int64_t which);
  void copyTile(Value tile);
  void loadQueries();
  SmallVector<Tile> score(Value slot);
  SmallVector<Tile> hideFuture(Value tile, SmallVector<Tile> scores);
  State add(State state, SmallVector<Tile> scores, Value slot);
  void finish(State state);
  void zeroBehind(Value row, Value pointer);

  GpuFrame &frame;
  GpuCode &c;
  AttentionOp op;
  KvCacheType cache;
  Type element;
  int64_t headDim, padded, rowBytes, stride;
  /// Scores are powers of two.
  double scale;
  Value head, first, tokens, keys, values;
  /// Tokens that the block's last query sees, and the first one's position.
  Value length, firstLimit;
  /// This lane's: its place in a tile, its two rows and how far each sees.
  Value g, j, rows[2], limits[2];
  /// Four words for each 16 elements of the head.
  SmallVector<Values> queries;
};

/// Keys (0) or values (1) of a tile in shared memory.
Value PromptAttentionEmitter::slotOf(Value tile, int64_t which) {
  Value slot = c.rem(tile, kSlots);
  return c.at(c.at(frame.shared, frame.plan.rowAt + which * kKeys * stride),
              c.mul(slot, 2 * kKeys * stride));
}

/// What lies behind the history may be anything: zeros come instead.
void PromptAttentionEmitter::copyTile(Value tile) {
  int64_t chunks = rowBytes / 16;
  Value from = c.mul(tile, kKeys);
  for (int64_t i = 0; i < kKeys * chunks / c.threads; ++i) {
    Value index = c.add(c.thread, i * c.threads);
    Value row = c.div(index, chunks), chunk = c.rem(index, chunks);
    Value s = c.add(from, row);
    Value isIn = c.lessThan(s, length);
    Value place =
        c.add(c.mul(c.select(isIn, s, c.i64(0)), rowBytes), c.mul(chunk, 16));
    Value target = c.add(c.mul(row, stride), c.mul(chunk, 16));
    Value bytes = c.select(isIn, c.i32(16), c.i32(0));
    copyAsync(c, c.at(slotOf(tile, 0), target), c.at(keys, place), 16, bytes);
    copyAsync(c, c.at(slotOf(tile, 1), target), c.at(values, place), 16, bytes);
  }
}

/// A row behind the prompt repeats the last one; nothing stores it.
void PromptAttentionEmitter::loadQueries() {
  Type stored = gpuElement(op.getQuery());
  int64_t bytes = elementBytes(stored);
  Value pointers[2];
  for (int64_t i = 0; i < 2; ++i) {
    frame.token = c.min(rows[i], c.sub(tokens, c.i64(1)));
    pointers[i] =
        c.at(frame.rowOf(op.getQuery()), c.mul(head, bytes * headDim));
    limits[i] = c.load(c.b.getI32Type(), c.at(frame.memoryOf(op.getPositions()),
                                              c.mul(frame.token, 4)));
  }
  for (int64_t k = 0; k < padded; k += 16) {
    Values &words = queries.emplace_back();
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t i = 0; i < 2; ++i) {
        Value column = c.add(c.mul(j, 2), k + 8 * half);
        Value safe = c.min(column, c.i64(headDim - 2));
        Value place = c.at(pointers[i], c.mul(safe, bytes));
        Value word;
        if (stored.isF32()) {
          Value pair = c.loadAligned(c.vec(2), place, 8);
          word = packPair(c, element, c.extract(pair, 0), c.extract(pair, 1));
        } else {
          word = c.loadAligned(c.b.getI32Type(), place, 4);
        }
        if (k + 8 * half + 8 > headDim)
          word = c.select(c.lessThan(column, c.i64(headDim)), word, c.i32(0));
        words.push_back(word);
      }
  }
}

/// Products of the warp's queries with the 64 keys, eight a tile.
SmallVector<Tile> PromptAttentionEmitter::score(Value slot) {
  SmallVector<Tile> scores(kKeys / 8, Tile(4, c.f32(0)));
  // Matrices: keys 0..7 and 8..15, each at elements 0..7 and 8..15.
  Value row = c.add(c.mul(c.div(c.lane, 16), 8), c.rem(c.lane, 8));
  Value chunk = c.rem(c.div(c.lane, 8), 2);
  Value lane = c.at(slot, c.add(c.mul(row, stride), c.mul(chunk, 16)));
  for (int64_t k = 0; k < padded / 16; ++k)
    for (int64_t n = 0; n < kKeys / 16; ++n) {
      auto words = loadMatrices(c, c.at(lane, n * 16 * stride + k * 32), false);
      for (int64_t half = 0; half < 2; ++half) {
        Tile &tile = scores[2 * n + half];
        tile = multiplyTile(c, element, queries[k],
                            {words[2 * half], words[2 * half + 1]}, tile);
      }
    }
  return scores;
}

/// A tile that some query of the block does not see all of: the same branch for
/// the whole block.
SmallVector<Tile> PromptAttentionEmitter::hideFuture(Value tile,
                                                     SmallVector<Tile> scores) {
  Value end = c.mul(c.add(tile, 1), kKeys);
  Value here = narrow(c, c.add(c.mul(tile, kKeys), c.mul(j, 2)));
  Value isWhole = c.lessThan(end, c.add(firstLimit, 2));
  auto branch = scf::IfOp::create(
      c.b, c.loc, isWhole,
      [&](OpBuilder &, Location) {
        Values all;
        for (const Tile &tile : scores)
          all.append(tile);
        scf::YieldOp::create(c.b, c.loc, all);
      },
      [&](OpBuilder &, Location) {
        Values all;
        for (auto [n, score] : llvm::enumerate(scores))
          for (int64_t e = 0; e < 4; ++e) {
            Value s = c.add(here, c.i32(static_cast<int64_t>(n) * 8 + e % 2));
            Value isFuture = c.lessThan(limits[e / 2], s);
            all.push_back(c.select(isFuture, c.f32(kLowest), score[e]));
          }
        scf::YieldOp::create(c.b, c.loc, all);
      });
  for (auto [n, score] : llvm::enumerate(scores))
    for (int64_t e = 0; e < 4; ++e)
      score[e] = branch.getResult(4 * n + e);
  return scores;
}

PromptAttentionEmitter::State
PromptAttentionEmitter::add(State state, SmallVector<Tile> scores, Value slot) {
  for (int64_t i = 0; i < 2; ++i) {
    Value best = state.best[i];
    for (const Tile &tile : scores)
      for (int64_t e = 2 * i; e < 2 * i + 2; ++e)
        best = c.fmax(tile[e], best);
    for (int64_t mask : {1, 2})
      best = c.fmax(best, c.shuffleXor(best, mask));
    Value shrink = c.exp2(c.fmul(c.fsub(state.best[i], best), c.f32(scale)));
    state.best[i] = best;
    state.sum[i] = c.fmul(state.sum[i], shrink);
    for (Tile &tile : state.values)
      for (int64_t e = 2 * i; e < 2 * i + 2; ++e)
        tile[e] = c.fmul(tile[e], shrink);
    Value shift = c.fmul(best, c.f32(-scale));
    for (Tile &tile : scores)
      for (int64_t e = 2 * i; e < 2 * i + 2; ++e) {
        tile[e] = c.exp2(c.fma(tile[e], c.f32(scale), shift));
        state.sum[i] = c.fadd(state.sum[i], tile[e]);
      }
  }
  // Matrices: tokens 0..7 and 8..15 at elements 0..7, then at 8..15.
  Value row = c.rem(c.lane, 16), chunk = c.div(c.lane, 16);
  Value lane = c.at(slot, c.add(c.mul(row, stride), c.mul(chunk, 16)));
  for (int64_t k = 0; k < kKeys / 16; ++k) {
    Values weights;
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t i = 0; i < 2; ++i) {
        const Tile &tile = scores[2 * k + half];
        weights.push_back(packPair(c, element, tile[2 * i], tile[2 * i + 1]));
      }
    for (int64_t n = 0; n < padded / 16; ++n) {
      auto words = loadMatrices(c, c.at(lane, k * 16 * stride + n * 32), true);
      for (int64_t half = 0; half < 2; ++half) {
        Tile &tile = state.values[2 * n + half];
        tile = multiplyTile(c, element, weights,
                            {words[2 * half], words[2 * half + 1]}, tile);
      }
    }
  }
  return state;
}

/// The last head also writes the zeros behind a row.
void PromptAttentionEmitter::zeroBehind(Value row, Value pointer) {
  int64_t columns = gpuColumns(op.getResult());
  if (columns == padRow(columns))
    return;
  Type stored = gpuElement(op.getResult());
  Value isMine =
      c.both(c.isEqual(head, cache.getHeads() - 1), c.lessThan(row, tokens));
  c.ifThen(isMine, [&] {
    c.loop(c.add(j, columns), c.i64(padRow(columns)), 4, [&](Value k) {
      c.storeNarrow(stored, c.f32(0),
                    c.at(pointer, c.mul(k, elementBytes(stored))));
    });
  });
}

void PromptAttentionEmitter::finish(State state) {
  Type stored = gpuElement(op.getResult());
  for (int64_t i = 0; i < 2; ++i) {
    Value sum = state.sum[i];
    for (int64_t mask : {1, 2})
      sum = c.fadd(sum, c.shuffleXor(sum, mask));
    frame.token = rows[i];
    for (auto [value, row] : frame.resultsOf(op)) {
      Value pointer = row;
      c.ifThen(c.lessThan(rows[i], tokens), [&] {
        for (auto [n, tile] : llvm::enumerate(state.values)) {
          int64_t from = static_cast<int64_t>(n) * 8;
          if (from >= headDim)
            break;
          Value column = c.add(c.mul(j, 2), from);
          Value pair = c.vectorOf(
              {c.fdiv(tile[2 * i], sum), c.fdiv(tile[2 * i + 1], sum)});
          auto store = [&] {
            Value place = c.add(c.mul(head, headDim), column);
            c.storeNarrow(stored, pair,
                          c.at(pointer, c.mul(place, elementBytes(stored))));
          };
          if (from + 8 <= headDim)
            store();
          else
            c.ifThen(c.lessThan(column, c.i64(headDim)), store);
        }
      });
      zeroBehind(rows[i], pointer);
    }
  }
}

void PromptAttentionEmitter::emit() {
  int64_t heads = cache.getHeads();
  c.waitForInputs();
  c.letDependentsStart();
  tokens = frame.tokens();
  head = c.rem(c.block, heads);
  Value last = c.sub(c.div(c.blocks, heads), c.i64(1));
  first = c.mul(c.sub(last, c.div(c.block, heads)), kPromptQueries);
  g = c.div(c.lane, 4);
  j = c.rem(c.lane, 4);
  for (int64_t i = 0; i < 2; ++i)
    rows[i] = c.add(c.add(first, c.mul(c.warp, 16)), c.add(g, 8 * i));
  loadQueries();
  // Positions of a prompt ascend: the last query sees furthest.
  Value lastRow = c.min(c.add(first, kPromptQueries), tokens);
  auto positionOf = [&](Value row) {
    return c.toI64(
        c.load(c.b.getI32Type(),
               c.at(frame.memoryOf(op.getPositions()), c.mul(row, 4))));
  };
  firstLimit = positionOf(first);
  length = c.add(positionOf(c.sub(lastRow, c.i64(1))), 1);
  int64_t headBytes = cache.getCapacity() * rowBytes;
  Value memory = frame.cacheOf(op.getCache(), op.getSequences());
  keys = c.at(memory, c.mul(head, headBytes));
  values = c.at(memory, c.mul(c.add(head, heads), headBytes));

  State state{Values(2, c.f32(kLowest)), Values(2, c.f32(0)),
              SmallVector<Tile>(padded / 8, Tile(4, c.f32(0)))};
  Value tiles = c.div(c.add(length, kKeys - 1), kKeys);
  copyTile(c.i64(0));
  endGroup(c);
  Values out = c.loop(
      c.i64(0), tiles, 1, state.flat(), [&](Value tile, ValueRange args) {
        Value next = c.add(tile, 1);
        c.ifThen(c.lessThan(next, tiles), [&] { copyTile(next); });
        endGroup(c);
        waitForGroups(c, 1);
        c.barrier();
        SmallVector<Tile> scores = hideFuture(tile, score(slotOf(tile, 0)));
        State result = add(State::from(args), scores, slotOf(tile, 1));
        // The tile after the next takes this one's place.
        c.barrier();
        return result.flat();
      });
  finish(State::from(out));
}

} // namespace

bool foresight::usesTensorCores(AttentionOp op) {
  auto cache = cast<KvCacheType>(op.getCache().getType());
  auto query = cast<RankedTensorType>(op.getQuery().getType());
  // More would not stay in registers.
  constexpr int64_t kMostElements = 128;
  // Rows of one block share their keys.
  bool areOfOneSequence =
      !op.getSequences() ||
      cast<RankedTensorType>(op.getSequences().getType()).getDimSize(0) == 1;
  bool isReadable = query.getElementType().isF32() ||
                    query.getElementType() == cache.getElementType();
  return isReadable && areOfOneSequence && query.getDimSize(0) != 1 &&
         !cache.getElementType().isF32() && paddedDim(cache) <= kMostElements &&
         cache.getHeadDim() % 4 == 0 && op.getScale().convertToDouble() > 0;
}

int64_t foresight::promptAttentionBytes(KvCacheType cache) {
  return kSlots * 2 * kKeys * sharedRowBytes(cache);
}

void foresight::emitPromptAttention(GpuFrame &frame) {
  PromptAttentionEmitter(frame).emit();
}
