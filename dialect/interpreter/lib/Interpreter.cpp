//===- Interpreter.cpp - Functions, stages and kernels --------------------===//

#include "foresight/Interpreter/Interpreter.h"

#include "Runner.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;

namespace {

bool dimensionFits(int64_t declared, int64_t found) {
  return ShapedType::isDynamic(declared) || declared == found;
}

/// Whether `data` can be a value of `type`.
bool fits(Type type, const Data &data) {
  if (isa<TokenType>(type))
    return data.isToken();
  if (auto cache = dyn_cast<KvCacheType>(type)) {
    const auto *found = data.getIf<KvCache>();
    return found && found->sequences == cache.getSequences() &&
           found->heads == cache.getHeads() &&
           found->headDim == cache.getHeadDim() &&
           found->capacity == cache.getCapacity();
  }
  if (auto sets = dyn_cast<IndexSetType>(type)) {
    const auto *found = data.getIf<IndexSets>();
    return found && found->universe == sets.getUniverse();
  }
  if (auto copy = dyn_cast<LowBitType>(type)) {
    const auto *found = data.getIf<LowBitCopy>();
    return found && found->values.rows == copy.getRows() &&
           found->values.columns == copy.getColumns();
  }
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return false;
  if (tensor.getElementType().isInteger(32)) {
    const auto *found = data.getIf<Ids>();
    return found && tensor.getRank() == 1 &&
           dimensionFits(tensor.getDimSize(0), found->values.size());
  }
  const auto *found = data.getIf<Matrix>();
  if (!found || tensor.getRank() < 1 || tensor.getRank() > 2)
    return false;
  const int64_t rows = tensor.getRank() == 1 ? 1 : tensor.getDimSize(0);
  return dimensionFits(rows, found->rows) &&
         dimensionFits(tensor.getShape().back(), found->columns);
}

} // namespace

LogicalResult Interpreter::check(func::FuncOp function,
                                 ArrayRef<Data> arguments) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return function.emitOpError() << "must have a body of one block";
  if (arguments.size() != function.getNumArguments())
    return function.emitOpError()
           << "takes " << function.getNumArguments() << " arguments but "
           << arguments.size() << " were given";
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
    if (!fits(type, arguments[i]))
      return function.emitOpError()
             << "argument " << i << " has type " << type << " but was given "
             << print(arguments[i], 4);
  return success();
}

FailureOr<SmallVector<Data>> Interpreter::run(func::FuncOp function,
                                              ArrayRef<Data> arguments) {
  if (failed(check(function, arguments)))
    return failure();
  return Runner(weights, symbols).run(function.getBody().front(), arguments);
}

func::FuncOp interpreter::findEntry(ModuleOp module, StringRef entry) {
  for (auto function : module.getOps<func::FuncOp>()) {
    auto attribute = function->getAttrOfType<StringAttr>("foresight.entry");
    if (function.getSymName() == entry ||
        (attribute && attribute.getValue() == entry))
      return function;
  }
  return {};
}
