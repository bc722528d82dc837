//===- Interpreter.cpp - Functions, stages and kernels --------------------===//

#include "foresight/Interpreter/Interpreter.h"

#include "Evaluate.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;

namespace {

/// Runs blocks; knows the module's symbols and weights.
class Runner {
public:
  Runner(Weights &weights, SymbolTableCollection &symbols)
      : weights(weights), symbols(symbols) {}

  /// Runs `block` with `arguments` and gives what its terminator returns.
  FailureOr<SmallVector<Data>> run(Block &block, ArrayRef<Data> arguments) {
    Scope scope;
    for (auto [argument, data] : llvm::zip(block.getArguments(), arguments))
      scope.set(argument, data);
    for (Operation &op : block.without_terminator())
      if (failed(execute(&op, scope)))
        return failure();
    return values(block.getTerminator()->getOperands(), scope);
  }

private:
  static SmallVector<Data> values(ValueRange range, const Scope &scope) {
    SmallVector<Data> result;
    for (Value value : range)
      result.push_back(scope.get(value));
    return result;
  }

  /// The results of an op that has a single one, or one and a token.
  LogicalResult set(Operation *op, FailureOr<Data> data, Scope &scope) {
    if (failed(data))
      return failure();
    scope.set(op->getResult(0), std::move(*data));
    for (Value token : op->getResults().drop_front())
      scope.set(token, Token{});
    return success();
  }

  /// The results of an op that ran a block: those of the block, and a token.
  LogicalResult runNested(Operation *op, Block &block, ValueRange inputs,
                          Scope &scope) {
    FailureOr<SmallVector<Data>> results = run(block, values(inputs, scope));
    if (failed(results))
      return failure();
    for (auto [i, data] : llvm::enumerate(*results))
      scope.set(op->getResult(i), data);
    for (Value token : op->getResults().drop_front(results->size()))
      scope.set(token, Token{});
    return success();
  }

  LogicalResult execute(Operation *op, Scope &scope) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case<GatherRowsOp, LayerNormOp, LinearOp, ColumnLinearOp, MlpOp,
              ActivationOp, AddOp, LastRowOp, KvAppendOp, AttentionOp,
              PredictOp, SelectCertifiedOp, SelectThresholdOp, SelectTopkOp,
              GatherLinearOp, SparseMlpOp>(
            [&](auto known) { return set(op, evaluate(known, scope), scope); })
        .Case([&](GetWeightOp get) {
          auto weight = symbols.lookupNearestSymbolFrom<WeightOp>(
              op, get.getWeightAttr());
          return set(op, weights.get(weight), scope);
        })
        .Case([&](StageOp stage) {
          return runNested(op, stage.getBody().front(), stage.getInputs(),
                           scope);
        })
        .Case([&](LaunchOp launch) {
          auto kernel = symbols.lookupNearestSymbolFrom<KernelOp>(
              op, launch.getKernelAttr());
          return runNested(op, kernel.getBody().front(), launch.getInputs(),
                           scope);
        })
        .Case([&](func::CallOp call) -> LogicalResult {
          auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(
              op, call.getCalleeAttr());
          if (!callee || callee.isExternal())
            return op->emitOpError() << "calls a function without a body";
          return runNested(op, callee.getBody().front(), call.getOperands(),
                           scope);
        })
        .Default([&](Operation *) {
          return op->emitOpError() << "is not an op that the interpreter "
                                      "executes: only foresight and func.call";
        });
  }

  Weights &weights;
  SymbolTableCollection &symbols;
};

bool dimensionFits(int64_t declared, int64_t found) {
  return ShapedType::isDynamic(declared) || declared == found;
}

/// Whether `data` can be a value of `type`.
bool fits(Type type, const Data &data) {
  if (isa<TokenType>(type))
    return data.isToken();
  if (auto cache = dyn_cast<KvCacheType>(type)) {
    const auto *found = data.getIf<KvCache>();
    return found && found->heads == cache.getHeads() &&
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

FailureOr<SmallVector<Data>> Interpreter::run(func::FuncOp function,
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
