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
                  kSharedOfOne = 226 << 10;
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

  int64_t blocks = lowbit::padColumns(columns) / lowbit::kBlock;
  s.lanes = blocks <= 2 ? 8 : blocks <= 4 ? 16 : kWarp;
  s.pieces = ceilDiv(blocks, s.lanes / 4);
  s.blocks = ceilDiv(blocks, s.pieces);
  s.neurons =
      kWarp / s.lanes * chooseRows(copy.getRows(), kWarp / s.lanes, warps);
  s.units = ceilDiv(copy.getRows(), s.neurons);
  s.slotBytes = align16(
      s.neurons * (s.blocks * 16 * blockChunks(bits) + 4 * kRecordVectors));

  plan.rowAt = kReduceBytes;
  s.sumsAt = plan.rowAt + 4 * padRow(columns);
  s.roundedAt = s.sumsAt + 4 * kReduceBytes;
  s.listAt = s.roundedAt + s.pieces * 4 * s.lanes * 16;
  // How many there are, and the neurons that some turns of all warps keep.
  s.codesAt = s.listAt + 16 + align16(4 * kScoredTurns * warps * s.neurons);
  auto bytesWith = [&](int64_t slots) {
    return s.codesAt + warps * slots * s.slotBytes;
  };
  s.slots = kMostSlots;
  while (s.slots > kFewestSlots && bytesWith(s.slots) > kSharedEverywhere)
    --s.slots;
  launch.sharedBytes = bytesWith(s.slots);
  if (launch.sharedBytes > kSharedOfOne)
    return s.product.emitError()
           << "has rows of " << columns << " elements, which with " << bits
           << "-bit codes need " << launch.sharedBytes
           << " bytes of shared memory: a block has " << kSharedOfOne;
  launch.blocks = ceilDiv(s.units, warps);
  if (launch.blocks >= kMultiprocessors)
    // Two blocks leave 128 registers a thread, too few with f32 weights.
    launch.blocksPerSm = launch.sharedBytes <= kSharedOfTwo &&
                                 !gpuElement(s.product.getWeight()).isF32()
                             ? kBlocksPerSm
                             : 1;
  launch.hasCounts = true;
  launch.units = s.units;
  launch.countBytes = gpuRowBytes(s.product.getWeight());
  return success();
}

void foresight::planSkipColumns(GpuPlan &plan) {
  ColumnLinearOp op = plan.column;
  GpuLaunch &launch = plan.launch;
  int64_t element = elementBytes(gpuElement(op.getWeight()));
  int64_t groups = launch.threads / (FORESIGHT_ROW_PAD * element / 16);
  int64_t turns = ceilDiv(gpuColumns(op.getX()), groups);
  // A count a warp, then the rows that each group adds, 16 bits each.
  launch.sharedBytes += kReduceBytes + align16(2 * turns * groups);
  launch.hasCounts = true;
  launch.units = launch.blocks;
  launch.countBytes = FORESIGHT_ROW_PAD * element;
}
