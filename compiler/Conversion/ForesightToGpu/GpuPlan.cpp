//===- GpuPlan.cpp - What a kernel is made of -----------------------------===//

#include "GpuKernel.h"

#include "foresight/lowbit/Layout.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;

namespace {

/// Loads of a lane for one weight row below which a warp takes several rows.
constexpr int64_t kLoadsUnderWay = 4;

bool isOneRow(Value value) {
  return cast<RankedTensorType>(value.getType()).getDimSize(0) == 1;
}

bool isElementwise(Operation *op) {
  return isa<GatherRowsOp, AddOp, ActivationOp, LastRowOp>(op);
}

/// What a block may take of a chip of the capability. Code of sm_80 also runs
/// on its relatives, which have less.
int64_t sharedBytesOfBlock(int64_t capability) {
  bool isLarge = capability >= 90 && capability < 120;
  return (isLarge ? 227 : 99) << 10;
}

class Planner {
public:
  Planner(KernelOp kernel, int64_t capability) {
    plan.kernel = kernel;
    if (auto rows = kernel->getAttrOfType<IntegerAttr>(kBatchRowsAttr))
      plan.batchRows = rows.getInt();
    plan.mostShared = sharedBytesOfBlock(capability);
  }
  FailureOr<GpuPlan> run();

private:
  LogicalResult sortOps();
  LogicalResult checkValues();
  LogicalResult planRows();
  LogicalResult planRowProduct();
  LogicalResult planColumnProduct();
  LogicalResult planAttention();
  void countWeights();
  Block &block() {
    KernelOp kernel = plan.kernel;
    return kernel.getBody().front();
  }

  GpuPlan plan;
};

LogicalResult Planner::sortOps() {
  for (Operation &op : block().without_terminator()) {
    bool isKnown = llvm::TypeSwitch<Operation *, bool>(&op)
                       .Case([&](LinearOp linear) {
                         plan.products.push_back({linear, 0, 0});
                         return true;
                       })
                       .Case([&](PredictOp predict) {
                         return !std::exchange(plan.sparse.predict, predict);
                       })
                       .Case([&](SelectCertifiedOp select) {
                         return !std::exchange(plan.sparse.select, select);
                       })
                       .Case([&](GatherLinearOp gather) {
                         return !std::exchange(plan.sparse.product, gather);
                       })
                       .Case([&](ColumnLinearOp column) {
                         return !std::exchange(plan.column, column);
                       })
                       .Case([&](AttentionOp attention) {
                         return !std::exchange(plan.attention, attention);
                       })
                       .Case([&](KvAppendOp append) {
                         return !std::exchange(plan.append, append);
                       })
                       .Default([&](Operation *other) {
                         return isElementwise(other) || isa<LayerNormOp>(other);
                       });
    if (!isKnown)
      return op.emitError() << "has no GPU lowering inside this kernel";
  }
  const GpuSparse &sparse = plan.sparse;
  // What predicts for a later stage rides beside attention, or is alone.
  bool scores = (sparse.predict || sparse.select) && !sparse.product;
  int kinds = !plan.products.empty() + bool(plan.column) +
              bool(plan.attention) + bool(sparse.product) +
              (scores && !plan.attention);
  if (kinds > 1)
    return plan.kernel.emitError()
           << "mixes products of rows, of selected rows, of columns and "
              "attention: a GPU kernel has one body";
  if (!plan.products.empty())
    plan.body =
        plan.batchRows > 0 ? GpuBody::BatchProduct : GpuBody::RowProduct;
  else if (sparse.product)
    plan.body = sparse.predict || sparse.select ? GpuBody::SparseProduct
                                                : GpuBody::GatherRows;
  else if (plan.column)
    plan.body = plan.column.getRows()        ? GpuBody::GatherColumns
                : plan.column.getSkipZeros() ? GpuBody::SkipColumns
                                             : GpuBody::ColumnProduct;
  else if (plan.attention)
    plan.body = usesTensorCores(plan.attention) ? GpuBody::PromptAttention
                                                : GpuBody::Attention;
  else if (scores)
    plan.body = GpuBody::Scores;
  return success();
}

/// What reads the body's results sees a piece at a time; everything else is
/// elementwise on arguments, with at most one LayerNorm on top.
LogicalResult Planner::checkValues() {
  for (GpuProduct &product : plan.products)
    plan.productOf[product.op.getResult()] = product.op;
  if (plan.column)
    plan.productOf[plan.column.getResult()] = plan.column;
  if (plan.sparse.product)
    plan.productOf[plan.sparse.product.getResult()] = plan.sparse.product;
  if (plan.attention)
    plan.productOf[plan.attention.getResult()] = plan.attention;
  for (Operation &op : block().without_terminator()) {
    Operation *product = nullptr;
    for (Value operand : op.getOperands()) {
      Operation *from = plan.productOf.lookup(operand);
      if (!from)
        continue;
      if (!isa<AddOp, ActivationOp>(op) || (product && product != from))
        return op.emitError() << "reads what the same kernel computes piece by "
                                 "piece: put it in the next stage";
      product = from;
    }
    if (product)
      plan.productOf[op.getResult(0)] = product;
    for (Value operand : op.getOperands())
      if (operand.getDefiningOp<LayerNormOp>() &&
          !isa<LinearOp, PredictOp, SelectCertifiedOp, GatherLinearOp>(op))
        return op.emitError() << "reads a LayerNorm of the same kernel, which "
                                 "only a product of rows can on a GPU";
  }
  // A product of one row has f32 around it.
  if (plan.body != GpuBody::Rows && plan.body != GpuBody::BatchProduct &&
      !plan.attention)
    for (Operation &op : block().without_terminator())
      for (Value result : op.getResults())
        if (auto type = dyn_cast<RankedTensorType>(result.getType());
            type && !type.getElementType().isF32())
          return op.emitError() << "has a result of type " << type
                                << ": only whole rows and attention are "
                                   "rounded by a GPU kernel";
  for (Value value : block().getTerminator()->getOperands())
    if (isa<BlockArgument>(value))
      return plan.kernel.emitError()
             << "yields an argument as it is: nothing computes it";
  return success();
}

LogicalResult Planner::planRows() {
  plan.launch.tokensPerBlock = 1;
  plan.launch.threads = 256;
  plan.launch.sharedBytes = kReduceBytes;
  if (!plan.append)
    return success();
  auto cache = cast<KvCacheType>(plan.append.getCache().getType());
  if (cache.getHeadDim() % 4 != 0)
    return plan.append.emitError()
           << "has heads of " << cache.getHeadDim()
           << " elements: a GPU kernel needs a multiple of 4";
  return success();
}

LogicalResult Planner::planRowProduct() {
  LinearOp first = plan.products[0].op;
  auto shape = cast<RankedTensorType>(first.getWeight().getType());
  bool isBatch = plan.body == GpuBody::BatchProduct;
  if (!isBatch && !isOneRow(first.getX()))
    return first.emitError() << "has more than one row: on a GPU a product "
                                "over a prompt is a library stage";
  if (isBatch && gpuElement(first.getX()) != shape.getElementType())
    return first.emitError()
           << "multiplies rows of " << gpuElement(first.getX())
           << " by weights of " << shape.getElementType()
           << ": tensor cores read both in the same 16 bits";
  if (isBatch && first.getX().getDefiningOp())
    return first.emitError() << "reads what the same kernel computes: put it "
                                "in a stage before";
  if (isBatch) {
    plan.rowsPerUnit = kBatchUnitRows;
  } else {
    planRowLoads(plan, first.getWeight());
    planPairs(plan);
  }
  int64_t units = 0;
  for (GpuProduct &product : plan.products) {
    if (product.op.getX() != first.getX() ||
        gpuElement(product.op.getWeight()) != shape.getElementType())
      return product.op.emitError()
             << "shares a kernel with a product of another input or element "
                "type";
    product.firstUnit = units;
    product.units =
        ceilDiv(gpuColumns(product.op.getResult()), plan.rowsPerUnit);
    units += product.units;
  }
  if (isBatch)
    planBatchProduct(plan, units);
  else
    planRing(plan, units);
  return success();
}

LogicalResult Planner::planColumnProduct() {
  if (!isOneRow(plan.column.getX()))
    return plan.column.emitError()
           << "has more than one row: on a GPU a product over a prompt is a "
              "library stage";
  if (plan.body == GpuBody::GatherColumns)
    return planGatherColumns(plan);
  if (plan.column.getSkipZeros())
    planSkipColumns(plan);
  else
    planColumns(plan);
  return success();
}

LogicalResult Planner::planAttention() {
  AttentionOp op = plan.attention;
  if (op.getHeads() || op.getTokens())
    return op.emitError()
           << "selects heads or tokens, which has no GPU lowering";
  if (plan.append && plan.batchRows == 0 && !isOneRow(op.getQuery()))
    return plan.append.emitError() << "writes several rows that the attention "
                                      "of the same kernel reads: put it in a "
                                      "stage before";
  if (plan.append && plan.append.getResult() != op.getCache())
    return plan.append.emitError() << "is not the cache that attention reads";
  auto cache = cast<KvCacheType>(op.getCache().getType());
  int64_t padded = ceilDiv(cache.getHeadDim(), 16) * 16;
  if (padded / elementsOf16(cache.getElementType()) > kWarp)
    return op.emitError() << "has heads of " << cache.getHeadDim()
                          << " elements: more than a warp holds";
  if (plan.append) {
    plan.body = GpuBody::DecodeAttention;
    planDecodeAttention(plan);
    return success();
  }
  plan.launch.blocks = cache.getHeads();
  if (plan.body == GpuBody::PromptAttention) {
    plan.launch.threads = kPromptQueries / 16 * kWarp;
    plan.launch.tokensPerBlock = kPromptQueries;
    plan.launch.sharedBytes = promptAttentionBytes(cache);
    return success();
  }
  plan.launch.threads = 256;
  plan.launch.tokensPerBlock = isOneRow(op.getQuery()) ? 0 : 1;
  plan.rowAt = kReduceBytes;
  int64_t warps = plan.launch.threads / kWarp;
  plan.launch.sharedBytes = kReduceBytes + 4 * warps * (padded + 4);
  return success();
}

void Planner::countWeights() {
  llvm::SmallSetVector<Value, 8> whole;
  int64_t bytes = 0;
  for (Operation &op : block().without_terminator()) {
    if (auto gather = dyn_cast<GatherRowsOp>(op)) {
      bytes += gpuRowBytes(gather.getTable());
      continue;
    }
    if (auto linear = dyn_cast<LinearOp>(op))
      whole.insert(linear.getWeight());
    else if (auto column = dyn_cast<ColumnLinearOp>(op);
             column && !column.getSkipZeros() && !column.getRows())
      whole.insert(column.getWeight());
    else if (auto select = dyn_cast<SelectCertifiedOp>(op))
      whole.insert(select.getCopy());
    for (Value operand : op.getOperands()) {
      auto type = dyn_cast<RankedTensorType>(operand.getType());
      if (type && type.getRank() == 1 && isa<FloatType>(type.getElementType()))
        whole.insert(operand);
    }
  }
  for (Value weight : whole) {
    if (auto copy = dyn_cast<LowBitType>(weight.getType())) {
      bytes += lowbit::record(copy.getRows(), copy.getColumns(), copy.getBits())
                   .bytes;
      continue;
    }
    auto type = cast<RankedTensorType>(weight.getType());
    bytes += type.getRank() == 1 ? 4 * padRow(type.getDimSize(0))
                                 : type.getDimSize(0) * gpuRowBytes(weight);
  }
  plan.launch.weightBytes = bytes;
}

FailureOr<GpuPlan> Planner::run() {
  if (plan.kernel.getLibraryAttr()) {
    countWeights();
    return plan;
  }
  if (failed(sortOps()) || failed(checkValues()))
    return failure();
  LogicalResult planned = success();
  switch (plan.body) {
  case GpuBody::Rows:
    planned = planRows();
    break;
  case GpuBody::RowProduct:
  case GpuBody::BatchProduct:
    planned = planRowProduct();
    break;
  case GpuBody::SparseProduct:
    planned = planSparseProduct(plan);
    break;
  case GpuBody::Scores:
    planned = planScores(plan);
    break;
  case GpuBody::GatherRows:
    planned = planGatherRows(plan);
    break;
  case GpuBody::ColumnProduct:
  case GpuBody::SkipColumns:
  case GpuBody::GatherColumns:
    planned = planColumnProduct();
    break;
  case GpuBody::Attention:
  case GpuBody::PromptAttention:
  case GpuBody::DecodeAttention:
    planned = planAttention();
    break;
  }
  if (succeeded(planned) && plan.attention && plan.sparse.predict)
    planned = planScores(plan);
  if (failed(planned))
    return failure();
  countWeights();
  return plan;
}

} // namespace

void foresight::planRowLoads(GpuPlan &plan, Value matrix) {
  int64_t vectors =
      padRow(gpuColumns(matrix)) / elementsOf16(gpuElement(matrix));
  plan.loadsPerRow = ceilDiv(vectors, kWarp);
  plan.rowsPerUnit = std::max<int64_t>(1, kLoadsUnderWay / plan.loadsPerRow);
}

int64_t foresight::gpuColumns(Value row) {
  return cast<RankedTensorType>(row.getType()).getDimSize(1);
}

Type foresight::gpuElement(Value matrix) {
  return cast<RankedTensorType>(matrix.getType()).getElementType();
}

int64_t foresight::gpuRowBytes(Value matrix) {
  return padRow(gpuColumns(matrix)) * elementBytes(gpuElement(matrix));
}

FailureOr<GpuPlan> foresight::planGpuKernel(KernelOp kernel,
                                            int64_t capability) {
  return Planner(kernel, capability).run();
}

FailureOr<GpuLaunch> foresight::analyzeGpuKernel(KernelOp kernel,
                                                 int64_t capability) {
  FailureOr<GpuPlan> plan = planGpuKernel(kernel, capability);
  if (failed(plan))
    return failure();
  return plan->launch;
}
