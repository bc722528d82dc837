//===- KernelPlan.cpp - What a kernel is made of --------------------------===//

#include "KernelPlan.h"

#include "CodeBuilder.h"
#include "LowBit.h"

#include "foresight/abi/Kernel.h"
#include "foresight/lowbit/Layout.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;

namespace {

/// Most weight bytes of a claim, for its streams to be long.
constexpr int64_t kClaimBytes = 256 << 10;
/// The same where a claim has codes and then the rows that they select: at each
/// change memory rests.
constexpr int64_t kScoredBytes = 1 << 20;
/// A column product has at most so many units, of at least so many rows: each
/// has a row of sums to add up, and a count in the first line of shared memory.
constexpr int64_t kMostSegments = 16;
constexpr int64_t kLeastSegment = 64;
/// Fewest claims of a stage, so that a few workers share it evenly; the last
/// ones are smaller.
constexpr int64_t kClaims = 12;
constexpr int64_t kScoredClaims = 8;

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t grainFor(int64_t units, int64_t unitBytes, int64_t claimBytes,
                 int64_t claims) {
  int64_t byBytes = claimBytes / std::max<int64_t>(unitBytes, 1);
  return std::max<int64_t>(1, std::min(byBytes, units / claims));
}

class Planner {
public:
  explicit Planner(KernelOp kernel) { plan.kernel = kernel; }

  FailureOr<KernelPlan> run();

private:
  LogicalResult sortOps();
  LogicalResult checkDependences();
  LogicalResult checkEpilogue(Operation *op);
  LogicalResult planRowProduct();
  LogicalResult planSparse();
  LogicalResult planColumn();
  LogicalResult planAttention();
  void planRows();
  void placeRows();
  void countWeights();

  bool isYielded(Value value) {
    return llvm::is_contained(
        plan.kernel.getBody().front().getTerminator()->getOperands(), value);
  }
  int64_t allocate(int64_t bytes) {
    int64_t offset = plan.info.scratchBytes;
    plan.info.scratchBytes +=
        ceilDiv(bytes, FORESIGHT_ALIGNMENT) * FORESIGHT_ALIGNMENT;
    return offset;
  }

  KernelPlan plan;
};

bool isOneRow(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getDimSize(0) == 1;
}

/// Sorts ops by what they are; everything that is not named here is refused.
LogicalResult Planner::sortOps() {
  auto already = [&](Operation *op) {
    return op->emitError() << "cannot share a kernel with another '"
                           << op->getName() << "' on a CPU";
  };
  bool hasPredict = false, hasSelect = false, hasGather = false;
  for (Operation &op : plan.kernel.getBody().front().without_terminator()) {
    LogicalResult sorted =
        llvm::TypeSwitch<Operation *, LogicalResult>(&op)
            .Case([&](LinearOp linear) {
              plan.products.push_back({linear, 0, 0});
              return success();
            })
            .Case([&](ColumnLinearOp column) {
              if (plan.column)
                return LogicalResult(already(&op));
              plan.column = column;
              return success();
            })
            .Case([&](AttentionOp attention) {
              if (plan.attention)
                return LogicalResult(already(&op));
              plan.attention = attention;
              return success();
            })
            .Case([&](PredictOp predict) {
              if (std::exchange(hasPredict, true))
                return LogicalResult(already(&op));
              plan.sparse.predict = predict;
              return success();
            })
            .Case([&](SelectCertifiedOp select) {
              if (std::exchange(hasSelect, true))
                return LogicalResult(already(&op));
              plan.sparse.select = select;
              return success();
            })
            .Case([&](GatherLinearOp gather) {
              if (std::exchange(hasGather, true))
                return LogicalResult(already(&op));
              plan.sparse.product = gather;
              return success();
            })
            .Default([&](Operation *other) -> LogicalResult {
              if (isRowOp(other))
                return success();
              return other->emitError()
                     << "has no CPU lowering inside a kernel";
            });
    if (failed(sorted))
      return failure();
  }

  int kinds = !plan.products.empty() + bool(plan.column) +
              bool(plan.attention) + (hasPredict || hasSelect || hasGather);
  if (kinds > 1)
    return plan.kernel.emitError()
           << "mixes bodies (products of rows, of columns, of selected rows, "
              "attention): a CPU kernel has one";
  if (!plan.products.empty())
    plan.body = BodyKind::RowProduct;
  else if (plan.column)
    plan.body = BodyKind::ColumnProduct;
  else if (plan.attention)
    plan.body = BodyKind::Attention;
  else if (hasPredict || hasSelect || hasGather) {
    if (!hasPredict || !hasSelect || !hasGather)
      return plan.kernel.emitError()
             << "needs foresight.predict, foresight.select_certified and "
                "foresight.gather_linear together: a CPU kernel scores, "
                "selects "
                "and multiplies a block of neurons in one go";
    plan.body = BodyKind::SparseProduct;
  }
  return success();
}

/// An op on the body's results sees a unit at a time, of one product.
LogicalResult Planner::checkEpilogue(Operation *op) {
  if (!isa<AddOp, ActivationOp>(op))
    return op->emitError()
           << "needs whole rows, but its operand comes from the kernel's own "
              "body, a block at a time: put it in the next stage";
  Operation *product = nullptr;
  for (Value operand : op->getOperands()) {
    Operation *from = plan.productOf.lookup(operand);
    if (from && product && from != product)
      return op->emitError()
             << "joins two products of one kernel, whose blocks "
                "are computed apart";
    product = from ? from : product;
  }
  plan.productOf[op->getResult(0)] = product;
  return success();
}

LogicalResult Planner::checkDependences() {
  for (ProductRange &range : plan.products)
    plan.productOf[range.op.getResult()] = range.op;
  if (plan.column)
    plan.productOf[plan.column.getResult()] = plan.column;
  if (plan.sparse.product)
    plan.productOf[plan.sparse.product.getResult()] = plan.sparse.product;
  if (plan.attention)
    plan.productOf[plan.attention.getResult()] = plan.attention;

  for (Operation &op : plan.kernel.getBody().front().without_terminator()) {
    if (auto append = dyn_cast<KvAppendOp>(op)) {
      if (plan.append)
        return append.emitError() << "is the second append of this kernel";
      plan.append = append;
    }
    bool isBody = !isRowOp(&op);
    bool readsUnits = llvm::any_of(op.getOperands(), [&](Value operand) {
      return plan.productOf.contains(operand);
    });
    if (isBody) {
      if (readsUnits)
        return op.emitError() << "reads what the same kernel computes, a block "
                                 "at a time: put it in the next stage";
      continue;
    }
    if (readsUnits) {
      if (failed(checkEpilogue(&op)))
        return failure();
      continue;
    }
    plan.prologue.push_back(&op);
  }
  for (Value value :
       plan.kernel.getBody().front().getTerminator()->getOperands())
    if (isa<BlockArgument>(value))
      return plan.kernel.emitError()
             << "yields argument " << cast<BlockArgument>(value).getArgNumber()
             << " as it is: nothing computes it";
    else if (!isa<RankedTensorType, KvCacheType>(value.getType()))
      return plan.kernel.emitError()
             << "yields a value of type " << value.getType()
             << ", which has no buffer";
  for (Operation &op : plan.kernel.getBody().front().without_terminator())
    for (Value result : op.getResults())
      if (auto type = dyn_cast<RankedTensorType>(result.getType());
          type && !type.getElementType().isF32())
        return op.emitError() << "has a result of type " << type
                              << ": a CPU kernel computes rows of f32";
  return success();
}

LogicalResult Planner::planRowProduct() {
  int64_t bytes = 0;
  for (ProductRange &range : plan.products) {
    LinearOp op = range.op;
    if (!isOneRow(op.getX()))
      return op.emitError() << "has more than one row: on a CPU a product over "
                               "a prompt is a library stage";
    range.firstUnit = plan.info.units;
    range.units = ceilDiv(columnsOf(op.getResult()), kRowsPerUnit);
    plan.info.units += range.units;
    bytes = std::max(bytes, kRowsPerUnit * weightRowBytes(op.getWeight()));
  }
  plan.info.grain = grainFor(plan.info.units, bytes, kClaimBytes, kClaims);
  plan.streamRows = plan.info.grain * kRowsPerUnit;
  plan.sums = allocate(4 * plan.streamRows);
  return success();
}

LogicalResult Planner::planSparse() {
  SparseOps &s = plan.sparse;
  if (s.predict.getPredictor().size() != 1 ||
      !isa<LowBitType>(s.predict.getPredictor()[0].getType()))
    return s.predict.emitError()
           << "has no low-bit predictor: a CPU kernel has no other";
  if (s.select.getScores() != s.predict.getScores() ||
      s.select.getCopy() != s.predict.getPredictor()[0] ||
      s.product.getRows() != s.select.getResult())
    return s.select.emitError()
           << "must link the prediction and the product of its own kernel";
  if (!isOneRow(s.product.getX()))
    return s.product.emitError() << "has more than one row";
  if (s.product.getActivation() != Activation::Relu)
    return s.product.emitError()
           << "has an activation other than relu, which a certificate of "
              "inactivity does not cover";
  for (Value value : {s.product.getResult()})
    for (Operation *user : value.getUsers())
      if (!isa<YieldOp>(user))
        return user->emitError() << "follows a product of selected rows, which "
                                    "has no epilogue but its own";
  auto copy = cast<LowBitType>(s.select.getCopy().getType());
  int64_t neurons = columnsOf(s.product.getResult());
  if (copy.getRows() != neurons)
    return s.product.emitError()
           << "has " << neurons << " rows but the copy has " << copy.getRows();
  plan.info.units = ceilDiv(neurons, kNeuronsPerUnit);
  plan.info.grain = grainFor(
      plan.info.units,
      kNeuronsPerUnit * lowbit::rowBytes(copy.getColumns(), copy.getBits()),
      kScoredBytes, kScoredClaims);
  plan.info.hasCounts = true;
  plan.info.countBytes = weightRowBytes(s.product.getWeight());
  plan.info.hasPrepare = true;
  s.header = allocate(kLowBitHeaderBytes);
  s.activations = allocate(2 * lowbit::padColumns(copy.getColumns()));
  s.dots = allocate(4 * plan.info.grain * kNeuronsPerUnit);
  s.kept = allocate(4 * plan.info.grain * kNeuronsPerUnit);
  return success();
}

LogicalResult Planner::planColumn() {
  ColumnLinearOp op = plan.column;
  if (!isOneRow(op.getX()))
    return op.emitError() << "has more than one row: on a CPU a product over a "
                             "prompt is a library stage";
  if (op.getRows())
    return op.emitError() << "takes an index set, which is not known outside "
                             "the kernel that selects: use skip_zeros";
  int64_t rows = columnsOf(op.getX());
  int64_t columns = padRow(columnsOf(op.getResult()));
  int64_t segments =
      std::clamp<int64_t>(rows / kLeastSegment, 1, kMostSegments);
  plan.rowsPerStream =
      ceilDiv(ceilDiv(rows, segments * kColumnStreams), kColumnMaskRows) *
      kColumnMaskRows;
  plan.info.units = ceilDiv(rows, kColumnStreams * plan.rowsPerStream);
  static_assert(4 * kMostSegments <= FORESIGHT_ALIGNMENT);
  plan.info.sharedBytes = FORESIGHT_ALIGNMENT + 4 * columns * plan.info.units;
  if (op.getSkipZeros()) {
    plan.info.hasPrepare = true;
    plan.info.hasCounts = true;
    plan.info.countBytes = weightRowBytes(op.getWeight());
    // Rows are few: a worker goes on with the list.
    plan.info.grain = std::max<int64_t>(1, plan.info.units / 4);
    plan.listRows = allocate(4 * (rows + 1));
    plan.listValues = allocate(4 * rows);
    plan.listStarts = allocate(4 * (plan.info.units + 1));
  }
  return success();
}

LogicalResult Planner::planAttention() {
  AttentionOp op = plan.attention;
  if (op.getHeads() || op.getTokens())
    return op.emitError()
           << "selects heads or tokens, which has no CPU lowering";
  for (Operation *other : plan.prologue)
    if (!isa<KvAppendOp>(other))
      return other->emitError()
             << "cannot share a kernel with attention on a CPU";
  for (Operation *user : op.getResult().getUsers())
    if (!isa<YieldOp>(user))
      return user->emitError() << "cannot follow attention in one CPU kernel";
  if (plan.append && !isOneRow(op.getQuery()))
    return plan.append.emitError() << "writes several rows that the attention "
                                      "of the same kernel reads: "
                                      "put it in a stage before";
  if (plan.append && plan.append.getResult() != op.getCache())
    return plan.append.emitError() << "is not the cache that attention reads";
  auto cache = cast<KvCacheType>(op.getCache().getType());
  plan.info.units = cache.getHeads();
  plan.info.perToken = !isOneRow(op.getQuery());
  plan.info.grain =
      plan.info.perToken ? std::max<int64_t>(1, cache.getHeads() / 4) : 1;
  plan.query = allocate(4 * ceilDiv(cache.getHeadDim(), 16) * 16);
  plan.scores = allocate(4 * (cache.getCapacity() + 32));
  plan.prologue.clear();
  return success();
}

void Planner::planRows() {
  plan.info.units = 1;
  plan.info.perToken = true;
}

/// Gives every whole row that is not an argument, a view or (with
/// BodyKind::Rows) a result a place in scratch.
void Planner::placeRows() {
  for (Operation *op : plan.prologue) {
    if (isa<KvAppendOp, LastRowOp>(op))
      continue;
    Value row = op->getResult(0);
    if (plan.body == BodyKind::Rows && isYielded(row))
      continue;
    plan.rowSlots[row] = allocate(4 * lowbit::padColumns(columnsOf(row)));
    if (plan.body != BodyKind::Rows)
      plan.info.hasPrepare = true;
  }
}

void Planner::countWeights() {
  // A weight that several ops read is read once.
  llvm::SmallSetVector<Value, 8> whole;
  int64_t bytes = 0;
  for (Operation &op : plan.kernel.getBody().front().without_terminator()) {
    if (auto gather = dyn_cast<GatherRowsOp>(op)) {
      bytes += weightRowBytes(gather.getTable());
      continue;
    }
    for (Value operand : op.getOperands()) {
      if (auto column = dyn_cast<ColumnLinearOp>(op))
        if (operand == column.getWeight() && column.getSkipZeros())
          continue;
      if (auto gather = dyn_cast<GatherLinearOp>(op))
        if (operand == gather.getWeight())
          continue;
      whole.insert(operand);
    }
  }
  for (Value weight : whole) {
    if (auto copy = dyn_cast<LowBitType>(weight.getType())) {
      bytes += lowbit::record(copy.getRows(), copy.getColumns(), copy.getBits())
                   .bytes;
      continue;
    }
    // Vectors are stored as f32; matrices are told from rows by who reads them.
    auto type = dyn_cast<RankedTensorType>(weight.getType());
    if (!type || !isa<BlockArgument>(weight))
      continue;
    if (type.getRank() == 1 && isa<FloatType>(type.getElementType()))
      bytes += 4 * padRow(type.getDimSize(0));
    bool isMatrix = llvm::any_of(weight.getUsers(), [&](Operation *user) {
      if (auto linear = dyn_cast<LinearOp>(user))
        return linear.getWeight() == weight;
      if (auto column = dyn_cast<ColumnLinearOp>(user))
        return column.getWeight() == weight;
      return false;
    });
    if (isMatrix)
      bytes += type.getDimSize(0) * weightRowBytes(weight);
  }
  plan.info.weightBytes = bytes;
}

FailureOr<KernelPlan> Planner::run() {
  if (plan.kernel.getLibraryAttr()) {
    countWeights();
    return plan;
  }
  plan.info.units = 0;
  if (failed(sortOps()) || failed(checkDependences()))
    return failure();
  switch (plan.body) {
  case BodyKind::Rows:
    planRows();
    break;
  case BodyKind::RowProduct:
    if (failed(planRowProduct()))
      return failure();
    break;
  case BodyKind::SparseProduct:
    if (failed(planSparse()))
      return failure();
    break;
  case BodyKind::ColumnProduct:
    if (failed(planColumn()))
      return failure();
    break;
  case BodyKind::Attention:
    if (failed(planAttention()))
      return failure();
    break;
  }
  if (plan.append && plan.body != BodyKind::Rows &&
      plan.body != BodyKind::Attention)
    return plan.append.emitError()
           << "cannot share a kernel with a product on a CPU";
  placeRows();
  countWeights();
  return plan;
}

} // namespace

int64_t KernelPlan::resultArgument(int64_t i) const {
  KernelOp op = kernel;
  return op.getBody().getNumArguments() + i;
}

int64_t KernelPlan::sharedArgument() const {
  KernelOp op = kernel;
  return resultArgument(op.getBody().front().getTerminator()->getNumOperands());
}

int64_t KernelPlan::countsArgument() const {
  return sharedArgument() + (info.sharedBytes > 0);
}

int64_t foresight::columnsOf(Value row) {
  return cast<RankedTensorType>(row.getType()).getDimSize(1);
}

int64_t foresight::weightRowBytes(Value matrix) {
  auto type = cast<RankedTensorType>(matrix.getType());
  return padRow(type.getDimSize(1)) * elementBytes(type.getElementType());
}

bool foresight::isRowOp(Operation *op) {
  return isa<GatherRowsOp, LayerNormOp, AddOp, ActivationOp, LastRowOp,
             KvAppendOp>(op);
}

FailureOr<KernelPlan> foresight::planKernel(KernelOp kernel) {
  return Planner(kernel).run();
}

FailureOr<KernelInfo> foresight::analyzeCpuKernel(KernelOp kernel) {
  FailureOr<KernelPlan> plan = planKernel(kernel);
  if (failed(plan))
    return failure();
  return plan->info;
}
