//===- Runner.cpp - Blocks of ops -----------------------------------------===//

#include "Runner.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;

static SmallVector<Data> values(ValueRange range, const Scope &scope) {
  SmallVector<Data> result;
  for (Value value : range)
    result.push_back(scope.get(value));
  return result;
}

/// What a type of 16 bits says is rounded. Weights are so already.
static Data rounded(Type type, Data data) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  const auto *matrix = data.getIf<Matrix>();
  if (!tensor || !matrix || tensor.getElementTypeBitWidth() == 32)
    return data;
  Matrix result = *matrix;
  for (double &v : result.data)
    v = roundTo(tensor.getElementType(), v);
  return Data(std::move(result));
}

FailureOr<SmallVector<Data>> Runner::run(Block &block,
                                         ArrayRef<Data> arguments) {
  Scope scope;
  for (auto [argument, data] : llvm::zip(block.getArguments(), arguments))
    scope.set(argument, data);
  for (Operation &op : block.without_terminator())
    if (failed(execute(&op, scope)))
      return failure();
  return values(block.getTerminator()->getOperands(), scope);
}

FailureOr<Data> Runner::weight(GetWeightOp op) {
  return weights.get(
      symbols.lookupNearestSymbolFrom<WeightOp>(op, op.getWeightAttr()));
}

KernelOp Runner::kernelOf(LaunchOp launch) {
  return symbols.lookupNearestSymbolFrom<KernelOp>(launch,
                                                   launch.getKernelAttr());
}

/// The results of an op that has a single one, or one and a token.
LogicalResult Runner::set(Operation *op, FailureOr<Data> data, Scope &scope) {
  if (failed(data))
    return failure();
  scope.set(op->getResult(0),
            rounded(op->getResult(0).getType(), std::move(*data)));
  for (Value token : op->getResults().drop_front())
    scope.set(token, Token{});
  return success();
}

/// The results of an op that ran a block: those of the block, and a token.
LogicalResult Runner::runNested(Operation *op, Block &block, ValueRange inputs,
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

LogicalResult Runner::execute(Operation *op, Scope &scope) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<GatherRowsOp, LayerNormOp, LinearOp, ColumnLinearOp, MlpOp,
            ActivationOp, AddOp, LastRowOp, KvAppendOp, AttentionOp, PredictOp,
            SelectCertifiedOp, SelectThresholdOp, SelectTopkOp, GatherLinearOp,
            SparseMlpOp>(
          [&](auto known) { return set(op, evaluate(known, scope), scope); })
      .Case([&](GetWeightOp get) { return set(op, weight(get), scope); })
      .Case([&](StageOp stage) {
        return runNested(op, stage.getBody().front(), stage.getInputs(), scope);
      })
      .Case([&](LaunchOp launch) {
        return runNested(op, kernelOf(launch).getBody().front(),
                         launch.getInputs(), scope);
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
