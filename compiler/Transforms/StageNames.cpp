//===- StageNames.cpp - What a stage is in the model ----------------------===//

#include "StageGroups.h"

#include "foresight/Dialect/Foresight.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace foresight;

/// Which of the entry's caches `cache` is a version of.
static int64_t layerOfCache(Value cache) {
  while (auto append = cache.getDefiningOp<KvAppendOp>())
    cache = append.getCache();
  auto arg = dyn_cast<BlockArgument>(cache);
  if (!arg)
    return -1;
  int64_t layer = 0;
  for (BlockArgument other : arg.getOwner()->getArguments()) {
    if (other == arg)
      return layer;
    layer += isa<KvCacheType>(other.getType());
  }
  return -1;
}

namespace {

class StageNamer {
public:
  StageNamer(func::FuncOp entry, std::vector<StageGroup> &groups);
  void run();

private:
  void describe(StageGroup &group, StringRef role, StringRef what,
                int64_t layer) {
    group.role = role.str();
    group.layer = layer;
    whats[&group - groups.data()] = what.str();
  }
  const StageGroup *groupOfValue(Value value) const {
    Operation *def = value.getDefiningOp();
    auto found = def ? groupOf.find(def) : groupOf.end();
    return found == groupOf.end() ? nullptr : &groups[found->second];
  }
  SmallVector<const StageGroup *> consumers(const StageGroup &group) const;
  int64_t layerOfProducers(const StageGroup &group) const;

  void nameAttention();
  void nameForward(StageGroup &group);
  void nameNorm(StageGroup &group);
  void assignNames();

  std::vector<StageGroup> &groups;
  std::vector<std::string> whats;
  llvm::DenseMap<Operation *, unsigned> groupOf;
  Operation *terminator;
};

} // namespace

StageNamer::StageNamer(func::FuncOp entry, std::vector<StageGroup> &groups)
    : groups(groups), whats(groups.size()),
      terminator(entry.getBody().front().getTerminator()) {
  for (auto [index, group] : llvm::enumerate(groups))
    for (Operation *op : group.ops)
      groupOf[op] = index;
}

SmallVector<const StageGroup *>
StageNamer::consumers(const StageGroup &group) const {
  SmallVector<const StageGroup *> result;
  unsigned index = &group - groups.data();
  for (const StageGroup &other : groups)
    if (llvm::is_contained(other.producers, index))
      result.push_back(&other);
  return result;
}

int64_t StageNamer::layerOfProducers(const StageGroup &group) const {
  int64_t layer = -1;
  for (unsigned producer : group.producers)
    layer = std::max(layer, groups[producer].layer);
  return layer;
}

/// Attention says which layer it is by its cache; so does what feeds it.
void StageNamer::nameAttention() {
  auto nameInput = [&](Value value, StringRef what, int64_t layer) {
    auto *group = const_cast<StageGroup *>(groupOfValue(value));
    if (!group || !group->contains<LinearOp>())
      return;
    bool named = group->role == "qkv";
    describe(*group, "qkv", named ? "qkv" : what, layer);
  };
  for (StageGroup &group : groups) {
    if (auto append = group.find<KvAppendOp>()) {
      int64_t layer = layerOfCache(append.getCache());
      describe(group, "attention", "kv_append", layer);
      nameInput(append.getKeys(), "k", layer);
      nameInput(append.getValues(), "v", layer);
    }
    if (auto attention = group.find<AttentionOp>()) {
      int64_t layer = layerOfCache(attention.getCache());
      describe(group, "attention", "attention", layer);
      nameInput(attention.getQuery(), "q", layer);
    }
  }
}

/// Roles of the groups that are not near a cache, producers first.
void StageNamer::nameForward(StageGroup &group) {
  int64_t layer = layerOfProducers(group);
  bool isProduct = group.contains<LinearOp, GatherLinearOp, ColumnLinearOp>();
  if (!isProduct) {
    if (group.contains<GatherRowsOp>())
      describe(group, "embed", "embed", -1);
    else if (!group.contains<LayerNormOp>())
      describe(group, "other", group.ops.back()->getName().stripDialect(),
               layer);
    return;
  }
  bool returnsRow = llvm::any_of(group.ops, [&](Operation *op) {
    return llvm::is_contained(op->getUsers(), terminator);
  });
  if (returnsRow)
    return describe(group, "head", "head", -1);
  if (group.contains<ColumnLinearOp>())
    return describe(group, "fc2", "fc2", layer);
  if (group.contains<GatherLinearOp>())
    return describe(group, "fc1", "fc1", layer);
  for (unsigned producer : group.producers)
    if (groups[producer].role == "attention")
      return describe(group, "out_proj", "out_proj", layer);
  // Embeddings of another width than the blocks are projected, in and out.
  StringRef what = "linear";
  for (unsigned producer : group.producers)
    if (groups[producer].role == "embed")
      what = "project_in";
  for (const StageGroup *consumer : consumers(group)) {
    if (consumer->contains<ColumnLinearOp>())
      return describe(group, "fc1", "fc1", layer);
    for (Operation *op : consumer->ops)
      if (llvm::is_contained(op->getUsers(), terminator) && isa<LinearOp>(op))
        what = "project_out";
  }
  describe(group, "other", what, layer);
}

/// A LayerNorm belongs to what it prepares, or, where the residual stream reads
/// it too, to the block that it ends.
void StageNamer::nameNorm(StageGroup &group) {
  int64_t layer = layerOfProducers(group);
  std::string what = "norm";
  bool endsBlock = false;
  for (Operation *user : group.ops.back()->getUsers())
    endsBlock |= isa<AddOp>(user);
  for (const StageGroup *consumer : consumers(group)) {
    if (consumer->role == "qkv") {
      what = endsBlock ? "block_norm" : "attention_norm";
      layer = endsBlock ? layer : consumer->layer;
    } else if (consumer->role == "fc1") {
      what = "mlp_norm";
    } else if (consumer->role == "head") {
      what = "final_norm";
      layer = -1;
    }
  }
  describe(group, "norm", what, layer);
}

void StageNamer::assignNames() {
  llvm::StringSet<> taken;
  for (auto [group, what] : llvm::zip(groups, whats)) {
    std::string base =
        group.layer < 0 ? what
                        : "layers." + std::to_string(group.layer) + "." + what;
    group.name = base;
    for (unsigned n = 1; !taken.insert(group.name).second; ++n)
      group.name = base + "_" + std::to_string(n);
  }
}

void StageNamer::run() {
  nameAttention();
  for (StageGroup &group : groups) {
    // What a norm prepares comes after it: its layer, from its producers, must
    // be there before, its name can wait.
    if (group.contains<LayerNormOp>() &&
        !group
             .contains<LinearOp, GatherLinearOp, ColumnLinearOp, AttentionOp>())
      describe(group, "norm", "norm", layerOfProducers(group));
    else if (group.role == "other")
      nameForward(group);
  }
  for (StageGroup &group : groups)
    if (group.role == "norm")
      nameNorm(group);
  // Between the last block and the head nothing belongs to a layer.
  for (StageGroup &group : llvm::reverse(groups)) {
    auto users = consumers(group);
    if ((group.role == "other" || group.role == "norm") && !users.empty() &&
        llvm::all_of(users, [&](const StageGroup *user) {
          return user->role == "head" || (user->layer < 0);
        }))
      group.layer = -1;
  }
  assignNames();
}

void foresight::nameStages(func::FuncOp entry,
                           std::vector<StageGroup> &groups) {
  StageNamer(entry, groups).run();
}
