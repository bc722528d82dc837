//===- GpuSparsePlan.cpp - Shapes of kernels that leave rows out ----------===//

#include "GpuScores.h"

#include "foresight/abi/Kernel.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;

namespace {

/// What the shapes below are chosen for; any GPU runs them.
constexpr int64_t kMultiprocessors = 132, kBlocksPerSm = 2;
/// Shared memory of a block that every GPU has, that lets two blocks share a
/// multiprocessor of the GPU above, and that one block can have there.
constexpr int64_t kSharedEverywhere = 96 << 10, kSharedOfTwo = 112 << 10,
                  kSharedOfOne = 226 << 10, kSharedOfAll = 228 << 10;
/// Rows that a group of lanes scores at once, for a list and for a set.
constexpr int64_t kMostRowsOfSet = 8;
/// 16-byte loads of a lane of selected rows that are under way.
constexpr int64_t kMostLoads = 16;
/// Columns of a block: 64 or 128 bytes of a row of 16-bit weights.
constexpr int64_t kColumns = 32, kWideColumns = 64;
constexpr int64_t kMostRows = 6, kFewestSlots = 2, kMostSlots = 4;

int64_t align16(int64_t bytes) { return ceilDiv(bytes, 16) * 16; }

LogicalResult checkOps(const GpuPlan &plan) {
  const GpuSparse &s = plan.sparse;
  PredictOp predict = s.predict;
  SelectCertifiedOp select = s.select;
  GatherLinearOp product = s.product;
  if (!predict || !select || !product) {
    KernelOp kernel = plan.kernel;
    return kernel.emitError()
           << "needs foresight.predict, foresight.select_certified and "
              "foresight.gather_linear together: a GPU kernel scores, selects "
              "and multiplies in one go";
  }
  if (predict.getPredictor().size() != 1 ||
      !isa<LowBitType>(predict.getPredictor()[0].getType()))
    return predict.emitError()
           << "has no low-bit predictor: a GPU kernel has no other";
  if (select.getScores() != predict.getScores() ||
      select.getCopy() != predict.getPredictor()[0] ||
      product.getRows() != select.getResult())
    return select.emitError()
           << "must link the prediction and the product of its own kernel";
  if (cast<RankedTensorType>(product.getX().getType()).getDimSize(0) != 1)
    return product.emitError() << "has more than one row";
  if (product.getActivation() != Activation::Relu)
    return product.emitError()
           << "has an activation other than relu, which a certificate of "
              "inactivity does not cover";
  for (Operation *user : product.getResult().getUsers())
    if (!isa<YieldOp>(user))
      return user->emitError() << "follows a product of selected rows, which "
                                  "has no epilogue but its own";
  for (Value value : product->getBlock()->getTerminator()->getOperands())
    if (value != product.getResult())
      return product.emitError()
             << "shares a kernel with a row that is a result: put it in a "
                "stage before";
  auto copy = cast<LowBitType>(select.getCopy().getType());
  if (copy.getRows() != gpuColumns(product.getResult()) ||
      copy.getColumns() != gpuColumns(predict.getX()))
    return product.emitError() << "has " << gpuColumns(product.getResult())
                               << " rows but the copy has " << copy.getRows()
                               << " of " << copy.getColumns();
  return success();
}

void chooseLanes(GpuSparse &s, int64_t columns) {
  int64_t blocks = lowbit::padColumns(columns) / lowbit::kBlock;
  s.lanes = blocks <= 2 ? 8 : blocks <= 4 ? 16 : kWarp;
  s.pieces = ceilDiv(blocks, s.lanes / 4);
  s.blocks = ceilDiv(blocks, s.pieces);
}

int64_t slotBytesOf(const GpuSparse &s, int64_t bits) {
  return align16(s.neurons *
                 (s.blocks * 16 * blockChunks(bits) + 4 * kRecordVectors));
}

/// Gives what scores need its place in shared memory: the row, its rounding, a
/// list and the codes, of which a warp has `pieces`. Returns the end of it all.
int64_t placeScores(GpuPlan &plan, int64_t columns, int64_t listBytes,
                    int64_t pieces) {
  GpuSparse &s = plan.sparse;
  int64_t warps = plan.launch.threads / kWarp;
  plan.rowAt = kReduceBytes;
  s.sumsAt = plan.rowAt + 4 * padRow(columns);
  s.roundedAt = s.sumsAt + 4 * kReduceBytes;
  s.listAt = s.roundedAt + s.pieces * 4 * s.lanes * 16;
  s.codesAt = s.listAt + listBytes;
  auto bytesWith = [&](int64_t slots) {
    return s.codesAt + warps * slots * s.slotBytes;
  };
  s.slots = std::min(kMostSlots, pieces);
  while (s.slots > kFewestSlots && bytesWith(s.slots) > kSharedEverywhere)
    --s.slots;
  return bytesWith(s.slots);
}

LogicalResult tooLarge(Operation *op, int64_t columns, int64_t bits,
                       int64_t bytes) {
  return op->emitError() << "has rows of " << columns
                         << " elements, which with " << bits
                         << "-bit codes need " << bytes
                         << " bytes of shared memory: a block has "
                         << kSharedOfOne;
}

/// Rows that the groups of a warp take at once: few turns that are all full.
/// A row costs its codes, a turn besides the activations for them.
int64_t chooseRows(int64_t neurons, int64_t groups, int64_t warps) {
  auto cost = [&](int64_t rows) {
    int64_t units = ceilDiv(neurons, rows * groups);
    return ceilDiv(units, kMultiprocessors * kBlocksPerSm * warps) *
           (4 * rows + 1);
  };
  int64_t best = 1;
  for (int64_t rows = 2; rows <= kMostRows; ++rows)
    if (cost(rows) < cost(best))
      best = rows;
  return best;
}

} // namespace

LogicalResult foresight::planSparseProduct(GpuPlan &plan) {
  if (failed(checkOps(plan)))
    return failure();
  GpuSparse &s = plan.sparse;
  GpuLaunch &launch = plan.launch;
  auto copy = cast<LowBitType>(s.select.getCopy().getType());
  int64_t columns = copy.getColumns(), bits = copy.getBits();
  launch.threads = kRowProductThreads;
  int64_t warps = launch.threads / kWarp;
  planRowLoads(plan, s.product.getWeight());

  chooseLanes(s, columns);
  s.neurons =
      kWarp / s.lanes * chooseRows(copy.getRows(), kWarp / s.lanes, warps);
  s.units = ceilDiv(copy.getRows(), s.neurons);
  s.slotBytes = slotBytesOf(s, bits);

  // How many there are, and the neurons that some turns of all warps keep.
  launch.sharedBytes = placeScores(
      plan, columns, 16 + align16(4 * kScoredTurns * warps * s.neurons),
      kMostSlots);
  if (launch.sharedBytes > kSharedOfOne)
    return tooLarge(s.product, columns, bits, launch.sharedBytes);
  launch.blocks = ceilDiv(s.units, warps);
  if (launch.blocks >= kMultiprocessors) {
    // They stay: a block's row is rounded once, and its codes do not stop.
    launch.blocks = kMultiprocessors;
    // Two blocks leave 128 registers a thread, too few with f32 weights.
    launch.blocksPerSm = launch.sharedBytes <= kSharedOfTwo &&
                                 !gpuElement(s.product.getWeight()).isF32()
                             ? kBlocksPerSm
                             : 1;
  }
  // Left to itself the assembler would rather spill than take more than 128.
  if (launch.blocksPerSm == 1)
    plan.mostRegisters = 232;
  launch.hasCounts = true;
  launch.units = s.units;
  launch.countBytes = gpuRowBytes(s.product.getWeight());
  return success();
}

LogicalResult foresight::planScores(GpuPlan &plan) {
  GpuSparse &s = plan.sparse;
  GpuLaunch &launch = plan.launch;
  if (!s.predict || !s.select || s.predict.getPredictor().size() != 1 ||
      s.select.getScores() != s.predict.getScores() ||
      s.select.getCopy() != s.predict.getPredictor()[0]) {
    KernelOp kernel = plan.kernel;
    return kernel.emitError()
           << "needs foresight.predict with a low-bit predictor and "
              "foresight.select_certified of its scores together";
  }
  if (gpuColumns(s.predict.getX()) != gpuColumns(s.select.getX()) ||
      cast<RankedTensorType>(s.predict.getX().getType()).getDimSize(0) != 1)
    return s.predict.emitError() << "has more than one row";
  auto copy = cast<LowBitType>(s.select.getCopy().getType());
  int64_t columns = copy.getColumns(), bits = copy.getBits();
  if (!plan.attention)
    launch.threads = kRowProductThreads;
  int64_t warps = launch.threads / kWarp;
  chooseLanes(s, columns);
  // As many warps as a product of rows has.
  int64_t most = kMultiprocessors * kRowProductThreads / launch.threads;
  // A unit is whole bytes of the set.
  int64_t groups = kWarp / s.lanes, best = 0;
  auto cost = [&](int64_t neurons) {
    return ceilDiv(ceilDiv(copy.getRows(), neurons), most * warps) *
           (4 * neurons / groups + 1);
  };
  for (int64_t neurons : {8, 16, 32})
    if (neurons >= groups && neurons / groups <= kMostRowsOfSet &&
        (!best || cost(neurons) < cost(best)))
      best = neurons;
  s.neurons = best;
  s.units = ceilDiv(copy.getRows(), s.neurons);
  s.slotBytes = slotBytesOf(s, bits);
  int64_t blocks = std::min(most, ceilDiv(s.units, warps));
  int64_t turns = ceilDiv(s.units, blocks * warps);
  int64_t bytes = placeScores(plan, columns, 0, turns * s.pieces);
  if (bytes > kSharedOfOne)
    return tooLarge(s.predict, columns, bits, bytes);
  launch.sharedBytes = std::max(launch.sharedBytes, bytes);
  if (plan.attention) {
    plan.riderBlocks = blocks;
    launch.blocks += blocks;
  } else {
    launch.blocks = blocks;
  }
  return success();
}

namespace {

/// Columns of a block: few turns of all multiprocessors, and wide pieces of
/// rows.
void placeColumns(GpuPlan &plan) {
  GpuLaunch &launch = plan.launch;
  int64_t columns = padRow(gpuColumns(plan.column.getResult()));
  auto turns = [&](int64_t width) {
    return ceilDiv(columns / width, kMultiprocessors) * width;
  };
  bool isWide = columns % kWideColumns == 0 &&
                (turns(kWideColumns) <= turns(kColumns) ||
                 turns(kColumns) > kBlocksPerSm * kColumns);
  plan.columnsPerBlock = isWide ? kWideColumns : kColumns;
  launch.threads = kColumnProductThreads;
  launch.blocks = columns / plan.columnsPerBlock;
  plan.rowAt = kReduceBytes;
  launch.sharedBytes =
      plan.rowAt + 4 * plan.columnsPerBlock * launch.threads / kWarp;
}

/// Takes so much shared memory that blocks go to all multiprocessors, also if
/// only some have room when the kernel starts.
void keepApart(GpuPlan &plan) {
  GpuLaunch &launch = plan.launch;
  int64_t together = ceilDiv(launch.blocks, kMultiprocessors);
  if (together <= kBlocksPerSm)
    launch.sharedBytes =
        std::max(launch.sharedBytes,
                 std::min(plan.mostShared, kSharedOfAll / (together + 1)));
}

LogicalResult checkKnownSet(Operation *op, Value set, Value row) {
  if (!isa<BlockArgument>(set))
    return op->emitError() << "takes a set that its own kernel makes from "
                              "something other than a prediction";
  if (cast<RankedTensorType>(row.getType()).getDimSize(0) != 1)
    return op->emitError() << "has more than one row";
  // A member takes 16 bits.
  constexpr int64_t kMostMembers = 65536;
  int64_t universe = cast<IndexSetType>(set.getType()).getUniverse();
  if (universe > kMostMembers)
    return op->emitError() << "takes a set of " << universe
                           << " candidates: a GPU kernel knows "
                           << kMostMembers;
  return success();
}

} // namespace

LogicalResult foresight::planGatherRows(GpuPlan &plan) {
  GatherLinearOp op = plan.sparse.product;
  GpuLaunch &launch = plan.launch;
  if (failed(checkKnownSet(op, op.getRows(), op.getX())))
    return failure();
  for (Operation *user : op.getResult().getUsers())
    if (!isa<YieldOp>(user))
      return user->emitError() << "follows a product of selected rows, which "
                                  "has no epilogue but its own";
  planRowLoads(plan, op.getWeight());
  launch.threads = kRowProductThreads;
  int64_t warps = launch.threads / kWarp;
  // A dense product adds even and odd loads of a lane apart: two warps take one
  // of these sums each.
  plan.warpsPerRow = plan.loadsPerRow > 1 ? 2 : 1;
  int64_t ofRow = ceilDiv(plan.loadsPerRow, plan.warpsPerRow);
  plan.loadsOfLane = ceilDiv(ofRow, ceilDiv(ofRow, kMostLoads));
  plan.rowsUnderWay =
      ofRow > kMostLoads
          ? 1
          : std::clamp<int64_t>(kMostLoads / plan.loadsOfLane, 1, 3);
  plan.rowAt = kReduceBytes;
  plan.partsAt = plan.rowAt + 4 * padRow(gpuColumns(op.getX()));
  plan.listAt = plan.partsAt + 2 * warps * plan.rowsUnderWay * kWarp * 4;
  launch.blocks = kMultiprocessors;
  launch.sharedBytes =
      plan.listAt +
      align16(2 * ceilDiv(gpuColumns(op.getResult()), launch.blocks));
  if (launch.sharedBytes > kSharedOfOne)
    return op.emitError() << "needs " << launch.sharedBytes
                          << " bytes of shared memory: a block has "
                          << kSharedOfOne;
  // What two blocks of a dense product leave of a multiprocessor.
  plan.mostRegisters = 112;
  launch.hasCounts = true;
  launch.units = 1;
  launch.countBytes = gpuRowBytes(op.getWeight());
  return success();
}

LogicalResult foresight::planGatherColumns(GpuPlan &plan) {
  ColumnLinearOp op = plan.column;
  GpuLaunch &launch = plan.launch;
  if (failed(checkKnownSet(op, op.getRows(), op.getX())))
    return failure();
  placeColumns(plan);
  plan.listAt = launch.sharedBytes;
  launch.sharedBytes += align16(2 * gpuColumns(op.getX()));
  keepApart(plan);
  plan.mostRegisters = 64;
  launch.hasCounts = true;
  launch.units = 1;
  launch.countBytes = gpuRowBytes(op.getWeight());
  return success();
}

void foresight::planColumns(GpuPlan &plan) {
  placeColumns(plan);
  keepApart(plan);
}

void foresight::planSkipColumns(GpuPlan &plan) {
  ColumnLinearOp op = plan.column;
  GpuLaunch &launch = plan.launch;
  int64_t element = elementBytes(gpuElement(op.getWeight()));
  placeColumns(plan);
  int64_t groups = launch.threads / (plan.columnsPerBlock * element / 16);
  int64_t turns = ceilDiv(gpuColumns(op.getX()), groups);
  // A count a warp, then the rows that each group adds, 16 bits each.
  plan.listAt = launch.sharedBytes + kReduceBytes;
  launch.sharedBytes = plan.listAt + align16(2 * turns * groups);
  launch.hasCounts = true;
  launch.units = launch.blocks;
  launch.countBytes = plan.columnsPerBlock * element;
}
