//===- StageGroups.cpp - Which ops become one stage -----------------------===//

#include "StageGroups.h"

#include "Utils.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

#include <queue>

using namespace mlir;
using namespace foresight;

/// The sum that is the only use of a product: its residual.
static AddOp residualOf(Operation *product) {
  Value result = product->getResult(0);
  return result.hasOneUse() ? dyn_cast<AddOp>(*result.user_begin()) : AddOp();
}

/// The most rows of `decode_batch`; 0: another entry.
static int64_t rowsOfBatch(func::FuncOp entry) {
  auto name = entry->getAttrOfType<StringAttr>(kEntryAttr);
  auto rows = entry->getAttrOfType<IntegerAttr>(kMaxTokensAttr);
  return name && name.getValue() == "decode_batch" && rows ? rows.getInt() : 0;
}

/// Whether `value` can only be known when `op`, of the same block, has run.
static bool dependsOn(Value value, Operation *op) {
  SmallVector<Value> open = {value};
  llvm::SmallPtrSet<Operation *, 16> seen;
  while (!open.empty()) {
    Operation *def = open.pop_back_val().getDefiningOp();
    // What is in front of `op` cannot depend on it.
    if (!def || !seen.insert(def).second || def->isBeforeInBlock(op))
      continue;
    if (def == op)
      return true;
    llvm::append_range(open, def->getOperands());
  }
  return false;
}

AttentionOp foresight::attentionBeside(GatherLinearOp gather) {
  auto select = gather.getRows().getDefiningOp<SelectCertifiedOp>();
  auto predict =
      select ? select.getScores().getDefiningOp<PredictOp>() : PredictOp();
  if (!predict || llvm::any_of(predict->getUsers(),
                               [&](Operation *user) { return user != select; }))
    return {};
  AttentionOp last;
  for (auto attention : gather->getBlock()->getOps<AttentionOp>())
    if (attention->isBeforeInBlock(gather))
      last = attention;
  if (!last || dependsOn(predict.getX(), last) ||
      dependsOn(select.getX(), last))
    return {};
  return last;
}

namespace {

/// Builds the groups of one entry. Bodies are placed first, then what can be
/// computed before or after them.
class GroupBuilder {
public:
  GroupBuilder(func::FuncOp entry, const TargetInfo &target)
      : target(target), block(entry.getBody().front()),
        areFew(hasFewRows(entry, target)),
        fewProducts(areFew && rowsOfBatch(entry) <= target.mostFewRows()),
        columnsBecomeRows(target.multipliesByRows() &&
                          !leavesOutRows(entry->getParentOfType<ModuleOp>())) {}

  FailureOr<std::vector<StageGroup>> run();

private:
  bool isGrouped(Operation *op) const { return groupOf.contains(op); }
  unsigned makeGroup(ArrayRef<Operation *> ops) {
    groups.emplace_back();
    for (Operation *op : ops)
      addTo(groups.size() - 1, op);
    return groups.size() - 1;
  }
  void addTo(unsigned group, Operation *op) {
    groupOf[op] = group;
    groups[group].ops.push_back(op);
  }

  RowCount rowsOf(Operation *op) const;
  void groupProduct(Operation *product);
  LogicalResult groupSelection(GatherLinearOp gather);
  void groupEmbedding(AddOp add);
  void groupAttention(AttentionOp attention);
  void groupBefore(Operation *op);
  /// The one group that all uses of `op` are in.
  std::optional<unsigned> onlyUser(Operation *op) const;
  void collectProducers();
  FailureOr<std::vector<StageGroup>> order();

  const TargetInfo &target;
  Block &block;
  /// Whether rows are those of a batch, whether there is code for products of
  /// so many, and whether products by columns become such by rows.
  bool areFew, fewProducts, columnsBecomeRows;
  std::vector<StageGroup> groups;
  llvm::DenseMap<Operation *, unsigned> groupOf;
  /// What predicts and selects for the MLP behind an attention.
  llvm::DenseMap<Operation *, SmallVector<Operation *, 2>> besideAttention;
  /// Products without a residual by their input, where the target groups them.
  llvm::DenseMap<Value, unsigned> productsOf;
};

} // namespace

/// How many token rows `op` yields. What a target has no code for with few is
/// computed as with many.
RowCount GroupBuilder::rowsOf(Operation *op) const {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (type.getDimSize(0) == 1)
    return RowCount::One;
  bool isKnown = areFew;
  if (isa<LinearOp, ColumnLinearOp>(op)) {
    bool isByRows = isa<LinearOp>(op) || columnsBecomeRows;
    bool isWide = getElementTypeOrSelf(op->getOperand(1)).isF32();
    isKnown &= fewProducts && isByRows && !isWide;
  }
  return isKnown ? RowCount::Few : RowCount::Many;
}

void GroupBuilder::groupProduct(Operation *product) {
  RowCount rows = rowsOf(product);
  AddOp residual = residualOf(product);
  auto linear = dyn_cast<LinearOp>(product);
  bool shares = linear && !residual && target.groupsProducts(rows);
  if (shares) {
    if (auto found = productsOf.find(linear.getX()); found != productsOf.end())
      return addTo(found->second, product);
  }
  unsigned group = makeGroup(product);
  if (shares)
    productsOf[linear.getX()] = group;
  // A library multiplies by all of a matrix.
  if (!isa<GatherLinearOp>(product))
    groups[group].library = target.productLibrary(rows).str();
  if (residual && !isGrouped(residual))
    addTo(group, residual);
}

/// Prediction and selection run where the selected rows are computed, and a set
/// does not leave its stage; or where the target wants it beside attention.
LogicalResult GroupBuilder::groupSelection(GatherLinearOp gather) {
  Operation *select = gather.getRows().getDefiningOp();
  if (!select)
    return gather.emitError()
           << "selects rows with an argument of the entry; expected a select_* "
              "op of the same entry";
  if (target.predictsBesideAttention())
    if (AttentionOp attention = attentionBeside(gather)) {
      besideAttention[attention].push_back(select);
      besideAttention[attention].push_back(
          select->getOperand(0).getDefiningOp());
      return success();
    }
  if (!select->getResult(0).hasOneUse())
    return select->emitError()
           << "makes a set that more than one op uses, but a set cannot leave "
              "the stage that makes it: select once for each use";
  unsigned group = groupOf.lookup(gather);
  addTo(group, select);
  auto predict = select->getOperand(0).getDefiningOp<PredictOp>();
  if (predict && llvm::all_of(predict->getUsers(),
                              [&](Operation *user) { return user == select; }))
    addTo(group, predict);
  return success();
}

void GroupBuilder::groupEmbedding(AddOp add) {
  SmallVector<Operation *> gathers;
  for (Value operand : add->getOperands()) {
    auto gather = operand.getDefiningOp<GatherRowsOp>();
    if (!gather || !gather.getResult().hasOneUse())
      return;
    gathers.push_back(gather);
  }
  unsigned group = makeGroup(gathers);
  addTo(group, add);
}

void GroupBuilder::groupAttention(AttentionOp attention) {
  unsigned group = makeGroup(attention.getOperation());
  for (Operation *op : besideAttention.lookup(attention))
    addTo(group, op);
  auto append = attention.getCache().getDefiningOp<KvAppendOp>();
  if (!append || !target.appendsInAttention(rowsOf(attention)))
    return;
  bool onlyHere = llvm::all_of(append->getUsers(), [&](Operation *user) {
    return user == attention || user == block.getTerminator();
  });
  if (onlyHere)
    addTo(group, append);
}

std::optional<unsigned> GroupBuilder::onlyUser(Operation *op) const {
  std::optional<unsigned> only;
  for (Operation *user : op->getUsers()) {
    auto found = groupOf.find(user);
    if (found == groupOf.end() || (only && *only != found->second))
      return std::nullopt;
    only = found->second;
  }
  return only;
}

/// A LayerNorm, or the choice of the last row, in front of a body.
void GroupBuilder::groupBefore(Operation *op) {
  std::optional<unsigned> user = onlyUser(op);
  bool joins =
      user && groups[*user].library.empty() &&
      groups[*user]
          .contains<LinearOp, GatherLinearOp, ColumnLinearOp, PredictOp>();
  // What a residual sum adds is not in front of the body.
  if (joins && isa<LayerNormOp>(op))
    joins = target.recomputesNorm(rowsOf(op)) &&
            llvm::none_of(op->getUsers(),
                          [](Operation *user) { return isa<AddOp>(user); });
  if (joins)
    addTo(*user, op);
  else
    makeGroup(op);
}

void GroupBuilder::collectProducers() {
  for (auto [index, group] : llvm::enumerate(groups)) {
    llvm::sort(group.ops, [](Operation *a, Operation *b) {
      return a->isBeforeInBlock(b);
    });
    for (Operation *op : group.ops)
      for (Value operand : op->getOperands()) {
        Operation *def = operand.getDefiningOp();
        auto found = def ? groupOf.find(def) : groupOf.end();
        if (found != groupOf.end() && found->second != index &&
            !llvm::is_contained(group.producers, found->second))
          group.producers.push_back(found->second);
      }
  }
}

/// Sorts the groups so that producers come first, otherwise as the program has
/// them.
FailureOr<std::vector<StageGroup>> GroupBuilder::order() {
  auto later = [&](unsigned a, unsigned b) {
    return groups[b].ops.back()->isBeforeInBlock(groups[a].ops.back());
  };
  std::priority_queue<unsigned, std::vector<unsigned>, decltype(later)> ready(
      later);
  SmallVector<unsigned> waitsFor(groups.size(), 0);
  SmallVector<SmallVector<unsigned>> consumers(groups.size());
  for (auto [index, group] : llvm::enumerate(groups)) {
    waitsFor[index] = group.producers.size();
    for (unsigned producer : group.producers)
      consumers[producer].push_back(index);
    if (group.producers.empty())
      ready.push(index);
  }
  std::vector<StageGroup> ordered;
  SmallVector<unsigned> newIndex(groups.size(), 0);
  SmallVector<bool> done(groups.size(), false);
  while (!ready.empty()) {
    unsigned index = ready.top();
    ready.pop();
    done[index] = true;
    newIndex[index] = ordered.size();
    ordered.push_back(groups[index]);
    for (unsigned consumer : consumers[index])
      if (--waitsFor[consumer] == 0)
        ready.push(consumer);
  }
  for (auto [index, group] : llvm::enumerate(groups))
    if (!done[index])
      return group.ops.back()->emitError()
             << "is in a group of ops that needs its own result by way of "
                "another group; the target's rules do not fit this program";
  for (StageGroup &group : ordered)
    for (unsigned &producer : group.producers)
      producer = newIndex[producer];
  return ordered;
}

FailureOr<std::vector<StageGroup>> GroupBuilder::run() {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator()) {
    if (isa<GetWeightOp>(op))
      continue;
    if (!isa<GatherRowsOp, LayerNormOp, LinearOp, GatherLinearOp,
             ColumnLinearOp, ActivationOp, AddOp, LastRowOp, KvAppendOp,
             AttentionOp, PredictOp, SelectCertifiedOp, SelectThresholdOp,
             SelectTopkOp>(op)) {
      op.emitError() << "cannot be part of a stage; expected an op that "
                        "foresight-expand-mlp leaves";
      return failure();
    }
    ops.push_back(&op);
  }

  for (Operation *op : ops)
    if (isa<LinearOp, GatherLinearOp, ColumnLinearOp>(op))
      groupProduct(op);
  for (Operation *op : ops)
    if (auto gather = dyn_cast<GatherLinearOp>(op))
      if (failed(groupSelection(gather)))
        return failure();
  for (Operation *op : ops) {
    if (auto attention = dyn_cast<AttentionOp>(op))
      groupAttention(attention);
    else if (auto add = dyn_cast<AddOp>(op); add && !isGrouped(add))
      groupEmbedding(add);
  }
  // Backwards: the last row may be in front of a LayerNorm.
  for (Operation *op : llvm::reverse(ops))
    if (isa<LayerNormOp, LastRowOp>(op))
      groupBefore(op);
  for (Operation *op : ops) {
    if (isGrouped(op))
      continue;
    if (isa<SelectCertifiedOp, SelectThresholdOp, SelectTopkOp>(op)) {
      op->emitError() << "makes a set that no gather_linear uses";
      return failure();
    }
    makeGroup(op);
  }
  collectProducers();
  return order();
}

bool foresight::hasFewRows(func::FuncOp entry, const TargetInfo &target) {
  return target.mostFewRows() > 0 && rowsOfBatch(entry) > 0;
}

FailureOr<std::vector<StageGroup>>
foresight::groupStages(func::FuncOp entry, const TargetInfo &target) {
  return GroupBuilder(entry, target).run();
}
