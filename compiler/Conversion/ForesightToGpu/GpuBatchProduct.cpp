//===- GpuBatchProduct.cpp - Weights times the rows of a batch ------------===//
//
// A unit is 32 weight rows, M of two tiles of mma.sync m16n8k16; the rows of
// the batch are N, eight a tile. Sums go over pieces of 32 elements. A lane
// reads 16 bytes of a weight row and of a row of the batch from the same place,
// and feeds them to two tiles as their elements k: a sum does not care which
// element is called which, as long as both sides agree.
//
// The warps of a unit take slices of its rows. Weights go through a ring in
// shared memory of each warp, where a lane reads only what it copied itself; it
// is filled before the kernel waits for the one in front. Rows of the batch
// come from the caches. The slices' sums meet in shared memory, in order.
//
// A row of the batch is a column of the tiles and of nothing else: what it
// becomes depends neither on the others nor on its place among them.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"
#include "GpuTensorCore.h"
#include "GpuWarp.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// Elements of a row that a piece covers: 8 a lane, 4 lanes a row.
constexpr int64_t kPiece = 32;
constexpr int64_t kTileRows = 16, kTileColumns = 8;
constexpr int64_t kTiles = kBatchUnitRows / kTileRows;
/// Bytes of a piece of a unit: two rows of each tile a lane.
constexpr int64_t kPieceBytes = kTiles * 2 * kWarp * 16;
/// Most threads of a block, pieces of a step and bytes under way.
constexpr int64_t kMostThreads = 512, kMostPieces = 2, kRingBytes = 192 << 10;
/// Blocks up to which a product has as many as it has units for.
constexpr int64_t kSmallGrid = 128;

int64_t tilesOf(int64_t batchRows) { return ceilDiv(batchRows, kTileColumns); }

class BatchProductEmitter {
public:
  explicit BatchProductEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), plan(frame.plan), batch(plan.batch),
        element(gpuElement(product(0).getWeight())),
        rowBytes(gpuRowBytes(product(0).getWeight())),
        tiles(tilesOf(plan.batchRows)), sumCount(kTiles * tiles),
        slotBytes(batch.pieces * kPieceBytes), teams(c.warps() / batch.split) {}

  void emit();

private:
  /// What a warp reads at once.
  struct Item {
    Value unit, step;
  };

  LinearOp product(int64_t i) { return plan.products[i].op; }
  int64_t units() {
    return plan.products.back().firstUnit + plan.products.back().units;
  }
  /// Whether no unit has rows behind its product's last.
  bool isWhole() {
    return llvm::all_of(plan.products, [](GpuProduct p) {
      return gpuColumns(p.op.getResult()) % kBatchUnitRows == 0;
    });
  }
  void findPlaces();
  Item next(const Item &item);
  Value bytesBefore(Value step);
  void request(const Item &item, Value slot);
  Values loadRows(Value step);
  void multiply(Value slot, ArrayRef<Value> rows, MutableArrayRef<Tile> sums);
  Values sumUnit(ValueRange places);
  void leaveSums(ArrayRef<Tile> sums);
  void finishUnits(Value firstUnit);
  void finishRow(Value unit, Value rowOfUnit, Value sum);

  GpuFrame &frame;
  GpuCode &c;
  const GpuPlan &plan;
  const GpuBatch &batch;
  Type element;
  int64_t rowBytes, tiles, sumCount, slotBytes, teams;
  /// Units of all blocks together; this warp's slice and team, and this lane's
  /// place in a tile.
  Value stride, slice, team, g, j, slots;
};

void BatchProductEmitter::findPlaces() {
  stride = c.mul(c.blocks, teams);
  slice = c.rem(c.warp, batch.split);
  team = c.div(c.warp, batch.split);
  g = c.div(c.lane, 4);
  j = c.rem(c.lane, 4);
  slots = c.at(c.at(frame.shared, batch.ringAt),
               c.mul(c.warp, batch.depth * slotBytes));
}

BatchProductEmitter::Item BatchProductEmitter::next(const Item &item) {
  Value step = c.add(item.step, 1);
  Value isEnd = c.isEqual(step, batch.steps);
  return {c.add(item.unit, c.select(isEnd, stride, c.i64(0))),
          c.select(isEnd, c.i64(0), step)};
}

/// Where this lane's part of a step lies in a row, of weights or of the batch.
Value BatchProductEmitter::bytesBefore(Value step) {
  Value first = c.add(c.mul(slice, batch.steps), step);
  return c.add(c.mul(first, batch.pieces * kPiece * 2), c.mul(j, 16));
}

/// Asks for the weights of an item; past the last unit there are none.
void BatchProductEmitter::request(const Item &item, Value slot) {
  c.ifThen(c.lessThan(item.unit, c.i64(units())), [&] {
    auto [base, first, last] = frame.rowsOfUnit(item.unit);
    Value from = c.at(base, bytesBefore(item.step));
    Value to = c.at(slot, c.mul(c.lane, 16));
    Value row = c.add(first, g);
    for (int64_t half = 0; half < 2 * kTiles; ++half) {
      Value pointer =
          isWhole()
              ? c.at(c.at(from, c.mul(row, rowBytes)), half * 8 * rowBytes)
              : c.at(from, c.mul(c.min(c.add(row, half * 8), last), rowBytes));
      for (int64_t p = 0; p < batch.pieces; ++p)
        copyAsync(c, c.at(to, (p * 2 * kTiles + half) * kWarp * 16),
                  c.at(pointer, p * kPiece * 2), 16);
    }
  });
  endGroup(c);
}

/// This lane's 16 bytes of a row of each tile, for each piece of a step. A row
/// behind the batch repeats the last one; nothing stores what becomes of it.
Values BatchProductEmitter::loadRows(Value step) {
  Value x = product(0).getX();
  Value from = c.at(frame.memoryOf(x), bytesBefore(step));
  Values words;
  for (int64_t p = 0; p < batch.pieces; ++p)
    for (int64_t n = 0; n < tiles; ++n) {
      Value row = c.min(c.add(g, n * kTileColumns), c.i64(plan.batchRows - 1));
      Value pointer = c.at(from, c.mul(row, gpuRowBytes(x)));
      words.push_back(c.loadAligned(c.vec(4, c.b.getI32Type()),
                                    c.at(pointer, p * kPiece * 2), 16));
    }
  return words;
}

void BatchProductEmitter::multiply(Value slot, ArrayRef<Value> rows,
                                   MutableArrayRef<Tile> sums) {
  Type words = c.vec(4, c.b.getI32Type());
  Value from = c.at(slot, c.mul(c.lane, 16));
  for (int64_t p = 0; p < batch.pieces; ++p)
    for (int64_t m = 0; m < kTiles; ++m) {
      auto load = [&](int64_t half) {
        int64_t index = p * 2 * kTiles + 2 * m + half;
        return c.loadAligned(words, c.at(from, index * kWarp * 16), 16);
      };
      Value upper = load(0), lower = load(1);
      for (int64_t n = 0; n < tiles; ++n)
        for (int64_t k = 0; k < 4; k += 2) {
          Tile &sum = sums[m * tiles + n];
          Value x = rows[p * tiles + n];
          Values a{c.extract(upper, k), c.extract(lower, k),
                   c.extract(upper, k + 1), c.extract(lower, k + 1)};
          Values b{c.extract(x, k), c.extract(x, k + 1)};
          sum = multiplyTile(c, element, a, b, sum);
        }
    }
}

/// This warp's slice of a unit. `places`: the item to ask for next, and the
/// slot that is read next; they follow behind the sums of the result.
Values BatchProductEmitter::sumUnit(ValueRange places) {
  int64_t words = batch.pieces * tiles;
  Values carried(places);
  carried.append(loadRows(c.i64(0)));
  carried.append(4 * sumCount, c.f32(0));
  Values out =
      c.loop(c.i64(0), c.i64(batch.steps), 1, carried,
             [&](Value turn, ValueRange args) {
               Item ahead{args[0], args[1]};
               Value slot = c.at(slots, args[2]);
               Values rows(args.slice(3, words));
               SmallVector<Tile> sums;
               for (int64_t i = 0; i < sumCount; ++i)
                 sums.push_back(Tile(args.slice(3 + words + 4 * i, 4)));
               // Under way while this step is multiplied.
               Values nextRows =
                   loadRows(c.min(c.add(turn, 1), c.i64(batch.steps - 1)));
               waitForGroups(c, batch.depth - 1);
               multiply(slot, rows, sums);
               request(ahead, slot);
               Item after = next(ahead);
               Values yielded{after.unit, after.step,
                              nextSlot(c, args[2], slotBytes, batch.depth)};
               yielded.append(nextRows);
               for (const Tile &sum : sums)
                 yielded.append(sum);
               return yielded;
             });
  SmallVector<Tile> sums;
  ValueRange tail = ValueRange(out).take_back(4 * sumCount);
  for (int64_t i = 0; i < sumCount; ++i)
    sums.push_back(Tile(tail.slice(4 * i, 4)));
  leaveSums(sums);
  return Values(ValueRange(out).take_front(3));
}

/// A warp's sums to shared memory: 32 weight rows for a row of the batch, then
/// for the next.
void BatchProductEmitter::leaveSums(ArrayRef<Tile> sums) {
  int64_t bytes = tiles * kTileColumns * kBatchUnitRows * 4;
  Value memory = c.at(c.at(frame.shared, plan.rowAt), c.mul(c.warp, bytes));
  for (int64_t m = 0; m < kTiles; ++m)
    for (int64_t n = 0; n < tiles; ++n)
      for (int64_t e = 0; e < 4; ++e) {
        Value column = c.add(c.mul(j, 2), n * kTileColumns + e % 2);
        Value row = c.add(g, m * kTileRows + e / 2 * 8);
        Value place = c.add(c.mul(column, kBatchUnitRows), row);
        c.store(sums[m * tiles + n][e], c.at(memory, c.mul(place, 4)));
      }
}

/// A thread finishes a weight row for a row of the batch: the slices' sums in
/// order, then what follows.
void BatchProductEmitter::finishUnits(Value firstUnit) {
  int64_t results = tiles * kTileColumns * kBatchUnitRows;
  Value live = frame.tokens();
  c.loop(c.thread, c.i64(teams * results), c.threads, [&](Value index) {
    Value ofTeam = c.div(index, results), place = c.rem(index, results);
    Value unit = c.add(firstUnit, ofTeam);
    frame.token = c.div(place, kBatchUnitRows);
    Value isThere =
        c.both(c.lessThan(frame.token, live), c.lessThan(unit, c.i64(units())));
    c.ifThen(isThere, [&] {
      Value first = c.add(c.mul(ofTeam, batch.split * results), place);
      Value memory = c.at(c.at(frame.shared, plan.rowAt), c.mul(first, 4));
      Value sum;
      for (int64_t s = 0; s < batch.split; ++s) {
        Value part = c.load(c.f32Type(), c.at(memory, s * results * 4));
        sum = sum ? c.fadd(sum, part) : part;
      }
      finishRow(unit, c.rem(place, kBatchUnitRows), sum);
    });
  });
}

/// Rows of buffers end in zeros: they are as long as whole units.
void BatchProductEmitter::finishRow(Value unit, Value rowOfUnit, Value sum) {
  for (const GpuProduct &p : plan.products) {
    LinearOp op = p.op;
    int64_t columns = gpuColumns(op.getResult());
    Value isMine = c.both(c.lessThan(c.i64(p.firstUnit - 1), unit),
                          c.lessThan(unit, c.i64(p.firstUnit + p.units)));
    c.ifThen(isMine, [&] {
      Value column = c.add(
          c.mul(c.sub(unit, c.i64(p.firstUnit)), kBatchUnitRows), rowOfUnit);
      for (auto [value, to] : frame.resultsOf(op)) {
        Type stored = gpuElement(value);
        Value safe = c.min(column, c.i64(columns - 1));
        Value result = emitGpuEpilogue(frame, value, op, sum, safe);
        if (columns != padRow(columns))
          result =
              c.select(c.lessThan(column, c.i64(columns)), result, c.f32(0));
        c.storeNarrow(stored, result,
                      c.at(to, c.mul(column, elementBytes(stored))));
      }
    });
  }
}

void BatchProductEmitter::emit() {
  findPlaces();
  Value firstUnit = c.mul(c.block, teams);
  Item ahead{c.add(firstUnit, team), c.i64(0)};
  for (int64_t i = 0; i < batch.depth; ++i) {
    request(ahead, c.at(slots, i * slotBytes));
    ahead = next(ahead);
  }
  c.waitForInputs();
  c.letDependentsStart();
  // All warps of a block go round equally often: they meet at barriers.
  Value left = c.add(c.sub(c.i64(units()), firstUnit), c.sub(stride, c.i64(1)));
  Value rounds = c.div(left, stride);
  Values places{ahead.unit, ahead.step, c.i64(0)};
  c.loop(c.i64(0), rounds, 1, places, [&](Value round, ValueRange args) {
    Values after = sumUnit(args);
    c.barrier();
    finishUnits(c.add(firstUnit, c.mul(round, stride)));
    // The next round's sums take this one's place.
    c.barrier();
    return after;
  });
}

} // namespace

void foresight::planBatchProduct(GpuPlan &plan, int64_t units) {
  GpuBatch &batch = plan.batch;
  GpuLaunch &launch = plan.launch;
  int64_t pieces = padRow(gpuColumns(plan.products[0].op.getX())) / kPiece;
  int64_t sums = tilesOf(plan.batchRows) * kTileColumns * kBatchUnitRows * 4;
  plan.rowAt = kReduceBytes;
  // Registers hold a step's rows of the batch, and the next one's.
  int64_t most = tilesOf(plan.batchRows) <= 2 ? kMostPieces : 1;
  // Where a block has less shared memory it has fewer warps.
  int64_t warps = kMostThreads / kWarp;
  auto room = [&] { return plan.mostShared - plan.rowAt - warps * sums; };
  while (warps > 1 && room() < 2 * warps * most * kPieceBytes)
    warps /= 2;
  while (batch.split < warps && pieces % (2 * batch.split) == 0)
    batch.split *= 2;
  int64_t ofWarp = pieces / batch.split;
  batch.pieces = ofWarp % most == 0 ? most : 1;
  batch.steps = ofWarp / batch.pieces;
  batch.ringAt = plan.rowAt + warps * sums;
  int64_t turn = warps * batch.pieces * kPieceBytes;
  batch.depth = std::max<int64_t>(1, std::min(kRingBytes, room()) / turn);
  launch.threads = warps * kWarp;
  launch.sharedBytes = batch.ringAt + batch.depth * turn;
  launch.blocks = ceilDiv(units, warps / batch.split);
  if (launch.blocks <= kSmallGrid)
    return;
  launch.blocks = 1;
  launch.blocksPerSm = 1;
}

void foresight::emitBatchProduct(GpuFrame &frame) {
  BatchProductEmitter(frame).emit();
}
