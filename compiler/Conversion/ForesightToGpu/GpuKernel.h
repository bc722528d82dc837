//===- GpuKernel.h - What a kernel is made of, and its emitters -*- C++ -*-===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUKERNEL_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUKERNEL_H

#include "GpuCode.h"

#include "foresight/Conversion/ForesightToGpu/ForesightToGpu.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace foresight {

/// What walks the data.
enum class GpuBody {
  Rows,            ///< a block is a token: elementwise ops, LayerNorm, appends
  RowProduct,      ///< a block is neighbouring weight rows (T = 1)
  SparseProduct,   ///< a warp scores neurons, a block multiplies those kept
  ColumnProduct,   ///< a block is columns of every weight row (T = 1)
  Scores,          ///< a warp scores neurons and says which are kept
  GatherRows,      ///< some warps are a row of a set that is known (T = 1)
  GatherColumns,   ///< a block is columns of the rows of such a set (T = 1)
  SkipColumns,     ///< the same of the rows whose input is not zero
  Attention,       ///< a block is a head of a token
  PromptAttention, ///< a block is a head of kPromptQueries tokens
  DecodeAttention, ///< a block is a part of a head's history (T = 1, batches)
  BatchProduct,    ///< a block is 32 weight rows, for all rows of a batch
};

/// A dense and a sparse product of one kind compute the same bits: they have
/// the same threads, and so the same sums.
constexpr int64_t kRowProductThreads = 256, kColumnProductThreads = 512;
/// Shared memory that reductions over a block use.
constexpr int64_t kReduceBytes = 128;

inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// Queries of a block of PromptAttention, 16 a warp.
constexpr int64_t kPromptQueries = 64;

/// One `linear` and the units (weight rows of a warp) that are its.
struct GpuProduct {
  LinearOp op;
  int64_t firstUnit, units;
};

/// The ops of a SparseProduct, and how its neurons are scored. See GpuScores.h.
struct GpuSparse {
  PredictOp predict;
  SelectCertifiedOp select;
  GatherLinearOp product;
  /// Lanes of a neuron, blocks of 128 codes that they take at once, and how
  /// often they do for one row.
  int64_t lanes = 0, blocks = 0, pieces = 0;
  /// Neurons that a warp scores at once, which are a unit, and units.
  int64_t neurons = 0, units = 0;
  /// Pieces of a warp that are under way, and bytes of one.
  int64_t slots = 0, slotBytes = 0;
  /// Offsets in shared memory.
  int64_t sumsAt = 0, roundedAt = 0, listAt = 0, codesAt = 0;
};

/// How the warps of a RowProduct take weights. See GpuRowProduct.cpp.
struct GpuRing {
  /// Loads of a lane for one row that are copied together, and how often for a
  /// row.
  int64_t loads = 0, turns = 0;
  /// Copies of a warp that are under way.
  int64_t depth = 0;
  /// Offsets in shared memory.
  int64_t sumsAt = 0, ringAt = 0;
};

/// How the history of a head is split. See GpuDecodeAttention.cpp.
struct GpuSplit {
  /// Blocks that a head's history is split over at most, and the fewest tokens
  /// of one.
  int64_t blocks = 1, least = 0;
  /// Tokens that a group copies together, copies under way, and where to.
  int64_t tokens = 0, depth = 0, ringAt = 0;
};

/// How the warps of a BatchProduct take weights. See GpuBatchProduct.cpp.
struct GpuBatch {
  /// Warps that share weight rows, steps of a warp for its slice of them, and
  /// pieces of 32 elements of a step.
  int64_t split = 1, steps = 0, pieces = 0;
  /// Steps that are under way.
  int64_t depth = 0;
  /// Offset in shared memory; sums lie at `GpuPlan::rowAt`.
  int64_t ringAt = 0;
};

struct GpuPlan {
  KernelOp kernel;
  /// Rows of the largest batch, of a kernel of `decode_batch`; 0: others.
  int64_t batchRows = 0;
  /// Shared memory that a block may have.
  int64_t mostShared = 0;
  GpuBody body = GpuBody::Rows;
  /// Blocks behind those of the body that run Scores; 0: none do.
  int64_t riderBlocks = 0;
  /// Dependents may start before this kernel has waited for those in front.
  bool startsDependentsFirst = false;
  /// The kernel in front is such a one wherever this one is launched: there is
  /// long to wait.
  bool startsEarly = false;
  /// Every set that a launch takes is in memory before it may start, and is
  /// read without waiting.
  bool isSetEarly = false;
  /// GatherRows: warps of a row, 16-byte loads of a lane of it, rows of a warp
  /// that are under way.
  int64_t warpsPerRow = 0, loadsOfLane = 0, rowsUnderWay = 0;
  /// Columns of a block of a product of columns.
  int64_t columnsPerBlock = 0;
  /// Offsets in shared memory of a list of 16-bit entries, and of what warps of
  /// GatherRows add up.
  int64_t listAt = 0, partsAt = 0;
  /// Registers of a thread; 0: what the assembler likes.
  int64_t mostRegisters = 0;
  GpuLaunch launch;

  llvm::SmallVector<GpuProduct> products;
  /// 16-byte loads of a lane for one weight row, and weight rows of a unit.
  int64_t loadsPerRow = 0, rowsPerUnit = 0;
  GpuRing ring;
  GpuBatch batch;
  ColumnLinearOp column;
  GpuSparse sparse;
  AttentionOp attention;
  GpuSplit split;
  KvAppendOp append;

  /// Values that exist piece by piece: the body's, and what follows them.
  llvm::DenseMap<mlir::Value, mlir::Operation *> productOf;
  /// Shared memory: 128 bytes for reductions at 0, then this.
  int64_t rowAt = 0;
};

/// Fails with a diagnostic on the op that no body covers.
mlir::FailureOr<GpuPlan> planGpuKernel(KernelOp kernel, int64_t capability);

/// 16-byte loads of a lane for one row of `matrix`, and rows of a warp at once.
void planRowLoads(GpuPlan &plan, mlir::Value matrix);
/// What GpuDensePlan.cpp knows of RowProduct and DecodeAttention: rows of a
/// unit, then the rest, units being known.
void planPairs(GpuPlan &plan);
void planRing(GpuPlan &plan, int64_t units);
void planDecodeAttention(GpuPlan &plan);
/// How a BatchProduct is launched, its units being known. GpuBatchProduct.cpp.
void planBatchProduct(GpuPlan &plan, int64_t units);
/// Weight rows of a unit of it.
constexpr int64_t kBatchUnitRows = 32;
/// What GpuSparsePlan.cpp knows of SparseProduct and SkipColumns.
mlir::LogicalResult planSparseProduct(GpuPlan &plan);
void planSkipColumns(GpuPlan &plan);
void planColumns(GpuPlan &plan);
/// Shared memory is what the body needs already, or more.
mlir::LogicalResult planScores(GpuPlan &plan);
mlir::LogicalResult planGatherRows(GpuPlan &plan);
mlir::LogicalResult planGatherColumns(GpuPlan &plan);

/// The entry being emitted.
class GpuFrame {
public:
  GpuFrame(GpuCode &code, const GpuPlan &plan, mlir::ValueRange parameters,
           mlir::Value shared)
      : c(code), plan(plan), parameters(parameters), shared(shared),
        token(code.i64(0)) {}

  GpuCode &c;
  const GpuPlan &plan;
  mlir::ValueRange parameters;
  mlir::Value shared;
  /// The row that is computed.
  mlir::Value token;

  mlir::Value memoryOf(mlir::Value value);
  mlir::Value tokens();
  /// Element `token` of int32 that lie densely, or the only one, as i64.
  mlir::Value intOf(mlir::Value ints);
  /// Where the row's sequence lies in a cache.
  mlir::Value cacheOf(mlir::Value cache, mlir::Value sequences);
  /// Row `token` of an argument, or the last row of one.
  mlir::Value rowOf(mlir::Value value);
  /// Where the weights of a product of rows start, the first row of a unit, and
  /// the product's last row.
  struct UnitRows {
    mlir::Value weights, first, last;
  };
  /// Of the product that has `unit`.
  UnitRows rowsOfUnit(mlir::Value unit);
  /// Results that `product` computes or that follow it, those that follow none
  /// where it is null: value and pointer.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>>
  resultsOf(mlir::Operation *product);
  /// Rows of buffers end in zeros, and buffers share memory: where `isMine` the
  /// block's first threads write those of the rows of `product`.
  void zeroBehind(mlir::Operation *product, mlir::Value isMine);
  /// Where kernels that select count what they kept.
  mlir::Value counts() { return parameters[parameters.size() - 2]; }
};

/// An activation of a scalar or vector. GpuRows.cpp.
mlir::Value emitGpuActivation(GpuCode &code, Activation kind, mlir::Value x);
/// Elements k .. k + 3 of an elementwise value. GpuRows.cpp.
mlir::Value emitElements(GpuFrame &frame, mlir::Value value, mlir::Value k);
/// The thread's parts of what a LayerNorm multiplies by and adds, in registers:
/// no kernel writes them, so they can be read before the kernel waits. Nothing
/// if `row` is no LayerNorm or wider than registers are many.
llvm::SmallVector<mlir::Value> loadNormVectors(GpuFrame &frame,
                                               mlir::Value row);
/// Every thread gets parts of the row `value`, LayerNorm or elementwise:
/// `use(k, four elements)`; what lies behind its columns is zero. `loaded`:
/// what `loadNormVectors` gave. `whileLoading` emits code that runs when the
/// row has been asked for.
void emitRow(GpuFrame &frame, mlir::Value value,
             llvm::function_ref<void(mlir::Value, mlir::Value)> use,
             llvm::ArrayRef<mlir::Value> loaded = {},
             llvm::function_ref<void()> whileLoading = {});
void emitRows(GpuFrame &frame);
/// Elements that were read before they are needed, by vector or row.
using GpuLoaded = llvm::DenseMap<mlir::Value, mlir::Value>;
/// What the epilogue of `product` reads at `column`; zero, and nothing is read,
/// unless `condition`.
GpuLoaded loadEpilogue(GpuFrame &frame, mlir::Operation *product,
                       mlir::Value column, mlir::Value condition);
/// `value`, which follows `product`, at `column`, where the product is `sum`.
mlir::Value emitGpuEpilogue(GpuFrame &frame, mlir::Value value,
                            mlir::Operation *product, mlir::Value sum,
                            mlir::Value column,
                            const GpuLoaded &loaded = GpuLoaded());
/// Brings small vectors that are read late nearer: a line a thread of the grid.
void prefetchVectors(GpuFrame &frame, llvm::ArrayRef<mlir::Value> vectors);
/// The vectors that a LayerNorm multiplies by and adds, if `row` is one.
llvm::SmallVector<mlir::Value, 2> normVectors(mlir::Value row);
void emitRowProduct(GpuFrame &frame);
void emitBatchProduct(GpuFrame &frame);
void emitSparseProduct(GpuFrame &frame);
void emitScores(GpuFrame &frame);
void emitGatherRows(GpuFrame &frame);
void emitGatherColumns(GpuFrame &frame);
void emitColumnProduct(GpuFrame &frame);
void emitSkipColumns(GpuFrame &frame);
void emitGpuAttention(GpuFrame &frame);
/// Whether the attention of a prompt multiplies by tensor cores, and the shared
/// memory that its keys and values take. GpuPromptAttention.cpp.
bool usesTensorCores(AttentionOp op);
int64_t promptAttentionBytes(KvCacheType cache);
void emitPromptAttention(GpuFrame &frame);
void emitGpuDecodeAttention(GpuFrame &frame);

/// Columns of `tensor<TxNxf32>`, bytes of a weight row with its padding.
int64_t gpuColumns(mlir::Value row);
int64_t gpuRowBytes(mlir::Value matrix);
mlir::Type gpuElement(mlir::Value matrix);

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUKERNEL_H
