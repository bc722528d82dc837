//===- GpuDensePlan.cpp - How dense decoding kernels are launched ---------===//
//
// The numbers below are the fastest of those tried on an H200 at 6.7B and 30B:
// docs/performance.md. What matters most is that exactly as many blocks of a
// product fit a multiprocessor as the plan says: a third one, which a kernel
// that starts early finds room for, leaves another multiprocessor with one.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"

#include <algorithm>
#include <cstdint>

using namespace mlir;
using namespace foresight;

namespace {

/// Two blocks a multiprocessor where x is short, one large one where blocks
/// would spend their shared memory on copies of x.
constexpr int64_t kLongX = 40 << 10;
constexpr int64_t kBlocksOfShortX = 2, kThreadsOfLongX = 512;
/// Loads of a lane that are copied together; even, also for two rows, so that
/// they alternate between a lane's two sums.
constexpr int64_t kMostLoads = 4;
/// Most weights under way for a multiprocessor, what one block must have for
/// only two to fit, and what each block takes besides.
constexpr int64_t kRingBytes = 160 << 10, kHalfShared = 77 << 10;
constexpr int64_t kReservedBytes = 1 << 10;
/// A warp that takes two long rows reads x from shared memory half as often;
/// fewer rows than this would leave warps without any.
constexpr int64_t kPairedRows = 4096;
/// Shared memory for the sums of a block's rows.
constexpr int64_t kSumsBytes = 2 << 10;
/// Blocks below which a small product has as many as it has units for.
constexpr int64_t kSmallGrid = 128;

/// Fewest tokens of a block of attention, blocks that all heads' whole
/// histories are split over, and most for one head.
constexpr int64_t kSplitTokens = 256, kSplitBlocks = 256, kMostSplits = 16;
/// The same of all rows of a batch, which may be of any length.
constexpr int64_t kBatchSplitBlocks = 512;
constexpr int64_t kAttentionThreads = 128;
/// Tokens of a group that are copied together, and copies under way.
constexpr int64_t kTokens = 4, kCopies = 3;

} // namespace

void foresight::planPairs(GpuPlan &plan) {
  int64_t rows = 0;
  for (const GpuProduct &product : plan.products)
    rows += gpuColumns(LinearOp(product.op).getResult());
  if (plan.loadsPerRow >= kMostLoads && rows >= kPairedRows)
    plan.rowsPerUnit = 2;
}

void foresight::planRing(GpuPlan &plan, int64_t units) {
  GpuRing &ring = plan.ring;
  GpuLaunch &launch = plan.launch;
  LinearOp op = plan.products[0].op;
  int64_t x = 4 * padRow(gpuColumns(op.getX()));
  // A LayerNorm has the threads of the sparse product's: the same sums.
  bool isLong = x > kLongX && !op.getX().getDefiningOp<LayerNormOp>();
  launch.threads = isLong ? kThreadsOfLongX : kRowProductThreads;
  int64_t perSm = isLong ? 1 : kBlocksOfShortX;
  int64_t warps = launch.threads / kWarp;

  // Of all rows of a unit; a lane's two sums take them in turn.
  int64_t loads = plan.loadsPerRow < kMostLoads ? kMostLoads
                                                : kMostLoads / plan.rowsPerUnit;
  ring.loads = std::min(plan.loadsPerRow, loads);
  ring.turns = ceilDiv(plan.loadsPerRow, ring.loads);
  plan.rowAt = kReduceBytes;
  ring.sumsAt = plan.rowAt + ring.turns * ring.loads * kWarp * 4 *
                                 elementsOf16(gpuElement(op.getWeight()));
  ring.ringAt = ring.sumsAt + kSumsBytes;
  int64_t turn = plan.rowsPerUnit * ring.loads * kWarp * 16 * warps;
  int64_t room = plan.mostShared / perSm - (perSm - 1) * kReservedBytes;
  int64_t most = std::min(kRingBytes / perSm, room - ring.ringAt);
  ring.depth = std::max<int64_t>(1, most / turn);
  launch.sharedBytes = ring.ringAt + ring.depth * turn;

  launch.blocks = ceilDiv(units, warps);
  if (launch.blocks <= kSmallGrid)
    return;
  launch.blocksPerSm = perSm;
  // No fewer than the blocks whose sums find room.
  launch.blocks = ceilDiv(units, kSumsBytes / (4 * plan.rowsPerUnit));
  if (perSm == kBlocksOfShortX)
    launch.sharedBytes = std::max(launch.sharedBytes, kHalfShared);
}

void foresight::planDecodeAttention(GpuPlan &plan) {
  auto cache = cast<KvCacheType>(plan.attention.getCache().getType());
  GpuSplit &split = plan.split;
  split.least = kSplitTokens;
  int64_t most =
      ceilDiv(plan.batchRows > 0 ? kBatchSplitBlocks : kSplitBlocks,
              cache.getHeads() * std::max<int64_t>(plan.batchRows, 1));
  split.blocks = std::clamp<int64_t>(
      std::min(ceilDiv(cache.getCapacity(), split.least), most), 1,
      kMostSplits);
  split.tokens = kTokens;
  split.depth = kCopies;
  GpuLaunch &launch = plan.launch;
  launch.threads = kAttentionThreads;
  plan.startsDependentsFirst = true;
  launch.blocks = cache.getHeads() * split.blocks;
  launch.tokensPerBlock = plan.batchRows > 0 ? 1 : 0;
  int64_t padded = ceilDiv(cache.getHeadDim(), 16) * 16;
  plan.rowAt = kReduceBytes;
  split.ringAt = plan.rowAt + 4 * launch.threads / kWarp * (padded + 4);
  launch.sharedBytes =
      split.ringAt + split.depth * 2 * split.tokens * launch.threads * 16;
}
