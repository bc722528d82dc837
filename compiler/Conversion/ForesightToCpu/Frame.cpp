//===- Frame.cpp - One function of a kernel while it is emitted -----------===//

#include "Frame.h"

#include "foresight/abi/Kernel.h"

#include <cstddef>

using namespace mlir;
using namespace foresight;

Frame::Frame(CodeBuilder &code, const KernelPlan &plan, Value args, Value step,
             Value scratch)
    : c(code), plan(plan), token(code.i64(0)), step(step), scratch(scratch) {
  int64_t count = plan.countsArgument() + plan.info.hasCounts;
  for (int64_t i = 0; i < count; ++i)
    arguments.push_back(c.load(c.pointerType(), c.at(args, 8 * i)));
}

Value Frame::tokens() {
  return c.load(c.b.getI64Type(), c.at(step, offsetof(foresight_step, tokens)));
}

Value Frame::memoryOf(Value value) {
  // A cache after an append is the same memory.
  while (auto append = value.getDefiningOp<KvAppendOp>())
    value = append.getCache();
  return arguments[cast<BlockArgument>(value).getArgNumber()];
}

Value Frame::rowOf(Value value) {
  int64_t stride = 4 * padRow(columnsOf(value));
  if (auto last = value.getDefiningOp<LastRowOp>()) {
    Value source = last.getX();
    Value first = isa<BlockArgument>(source) ? memoryOf(source) : rowOf(source);
    return c.at(first, c.mul(c.sub(tokens(), c.i64(1)), stride));
  }
  if (isa<BlockArgument>(value))
    return c.at(memoryOf(value), c.mul(token, stride));
  auto slot = plan.rowSlots.find(value);
  if (slot != plan.rowSlots.end())
    return scratchAt(slot->second);
  return resultsOf(value).front();
}

SmallVector<Value> Frame::resultsOf(Value value) {
  SmallVector<Value> rows;
  KernelOp kernel = plan.kernel;
  Operation *yield = kernel.getBody().front().getTerminator();
  for (auto [i, yielded] : llvm::enumerate(yield->getOperands()))
    if (yielded == value)
      rows.push_back(c.at(argument(plan.resultArgument(i)),
                          c.mul(token, 4 * padRow(columnsOf(value)))));
  return rows;
}

SmallVector<std::pair<Value, Value>>
Frame::resultsOfProduct(Operation *product) {
  SmallVector<std::pair<Value, Value>> results;
  KernelOp kernel = plan.kernel;
  Operation *yield = kernel.getBody().front().getTerminator();
  for (auto [i, yielded] : llvm::enumerate(yield->getOperands()))
    if (plan.productOf.lookup(yielded) == product)
      results.emplace_back(yielded, argument(plan.resultArgument(i)));
  return results;
}
