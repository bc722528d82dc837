//===- StageOrder.cpp - What runs before what -----------------------------===//

#include "StageOrder.h"

using namespace mlir;
using namespace foresight;

StepOrder::StepOrder(ArrayRef<SmallVector<unsigned>> needs)
    : needs(needs.begin(), needs.end()) {
  before.reserve(needs.size());
  for (ArrayRef<unsigned> list : needs) {
    llvm::BitVector set(needs.size());
    for (unsigned step : list) {
      set.set(step);
      set |= before[step];
    }
    before.push_back(std::move(set));
  }
}

SmallVector<unsigned> StepOrder::reduced(unsigned step) const {
  SmallVector<unsigned> result;
  for (unsigned candidate : needs[step]) {
    bool implied = llvm::any_of(needs[step], [&](unsigned other) {
      return isBefore(candidate, other);
    });
    if (!implied && !llvm::is_contained(result, candidate))
      result.push_back(candidate);
  }
  llvm::sort(result);
  return result;
}

std::optional<LaunchOrder> LaunchOrder::fromTokens(Block &block) {
  SmallVector<LaunchOp> launches(block.getOps<LaunchOp>());
  llvm::DenseMap<Operation *, unsigned> index;
  std::vector<SmallVector<unsigned>> needs;
  for (LaunchOp launch : launches) {
    SmallVector<unsigned> list;
    for (Value token : launch.getAfter()) {
      auto found = index.find(token.getDefiningOp());
      if (found == index.end())
        return std::nullopt;
      list.push_back(found->second);
    }
    index[launch] = needs.size();
    needs.push_back(std::move(list));
  }
  return LaunchOrder{std::move(launches), StepOrder(needs)};
}

std::optional<unsigned> foresight::stateArgument(Block &body, unsigned index) {
  Value value = body.getTerminator()->getOperand(index);
  if (!isa<KvCacheType>(value.getType()))
    return std::nullopt;
  while (auto append = value.getDefiningOp<KvAppendOp>())
    value = append.getCache();
  if (auto arg = dyn_cast<BlockArgument>(value))
    return arg.getArgNumber();
  return std::nullopt;
}

std::optional<unsigned> foresight::inPlaceArgument(Block &body,
                                                   unsigned index) {
  auto add = body.getTerminator()->getOperand(index).getDefiningOp<AddOp>();
  if (!add || !add.getResult().hasOneUse())
    return std::nullopt;
  for (Value operand : add->getOperands()) {
    auto arg = dyn_cast<BlockArgument>(operand);
    if (arg && arg.hasOneUse())
      return arg.getArgNumber();
  }
  return std::nullopt;
}
