//===- Recogniser.cpp - Runs the graph and keeps what is known ------------===//

#include "Recogniser.h"

#include "llvm/ADT/STLExtras.h"

#include <utility>

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;
using onnx::Tensor;

/// Constants that are not weights (masks, tables of the graph's arithmetic) may
/// be as large as a causal mask for 4096 tokens.
static constexpr int64_t kLargestConstant = int64_t(1) << 24;

InFlightDiagnostic Recogniser::fail(Operation *op) {
  failed = true;
  // Not on the op: printing a whole node after each message helps nobody.
  return emitError(op->getLoc());
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

/// What to say of an operator that the evaluator does not know.
static StringRef hintFor(onnx::NodeOp node) {
  StringRef type = node.getOpType();
  if (type == "QuantizeLinear" || type == "DynamicQuantizeLinear")
    return "activations are quantised, which is not supported; quantise "
           "weights only, or export the model without quantisation and choose "
           "a type with --dtype";
  if (type.contains_insensitive("quantize") || type.contains("Integer") ||
      type.contains("QLinear") || type.contains("NBits"))
    return "the model is quantised in a way that is not supported; export it "
           "without quantisation and choose a type with --dtype";
  if (node.getDomain())
    return "operators of this domain come from optimisers; export the model "
           "without optimisation";
  return "the operator is not supported";
}

LogicalResult Recogniser::prepare() {
  // Everything unsupported at once, one line an operator.
  llvm::MapVector<StringRef, std::pair<onnx::NodeOp, int64_t>> unsupported;
  graph.walk([&](onnx::NodeOp node) {
    if (!onnx::isSupported(node))
      if (unsupported.insert({node.getOpType(), {node, 0}})
              .first->second.second++)
        return;
  });
  for (auto &[type, first] : unsupported) {
    InFlightDiagnostic diagnostic = fail(first.first);
    diagnostic << onnx::describe(first.first) << ": " << hintFor(first.first);
    if (first.second > 1)
      diagnostic << " (" << first.second << " nodes of this type)";
  }
  // The walk goes on: what else is wrong is said in the same run.
  FailureOr<Inputs> classified = classifyInputs(graph, options.usePast);
  if (mlir::failed(classified))
    return failure();
  inputs = *classified;
  merged = llvm::is_contained(inputs.roles, Role::Flag);
  FailureOr<std::vector<World>> made = makeWorlds(graph, inputs);
  if (mlir::failed(made))
    return failure();
  worlds = std::move(*made);

  graph.walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      ++uses[operand];
  });
  Block &block = graph.getBody().front();
  for (BlockArgument arg : block.getArguments()) {
    unsigned index = arg.getArgNumber();
    State state;
    state.fixed = inputs.roles[index] == Role::Flag;
    std::vector<Tensor> perWorld;
    perWorld.reserve(worlds.size());
    for (const World &world : worlds)
      perWorld.push_back(
          makeInput(graph, inputs, index, options.usePast, world, random));
    state.tensors.assign(perWorld.begin(), perWorld.end());
    inputData.push_back(std::move(perWorld));
    int leaf = addLeaf({Leaf::InputLeaf, static_cast<int>(index)});
    states[arg] = std::move(state);
    setLeaves(states[arg], {leaf});
  }
  return success();
}

FailureOr<Program> Recogniser::run() {
  if (mlir::failed(prepare()))
    return failure();
  runBlock(graph.getBody().front());
  if (failed)
    return failure();
  return std::move(program);
}

void Recogniser::runBlock(Block &block) {
  for (Operation &op : block) {
    if (auto constant = dyn_cast<onnx::ConstantOp>(op))
      visit(constant);
    else if (auto node = dyn_cast<onnx::NodeOp>(op))
      visit(node);
    else if (isa<onnx::NoneOp>(op))
      states[op.getResult(0)] = State();
    else if (auto output = dyn_cast<onnx::OutputOp>(op))
      if (output->getParentOp() == graph)
        visitOutputs(output);
    finishUses(op);
  }
}

/// Forgets values, and the data of parts, that nothing will read again.
void Recogniser::finishUses(Operation &op) {
  if (isa<onnx::OutputOp>(op))
    return;
  for (Value operand : op.getOperands()) {
    if (--uses[operand] > 0)
      continue;
    auto known = states.find(operand);
    if (known == states.end())
      continue;
    setLeaves(known->second, {});
    states.erase(known);
  }
}

void Recogniser::visit(onnx::ConstantOp constant) {
  State &state = states[constant.getResult()];
  if (failed && llvm::all_of(constant->getUsers(), [](Operation *user) {
        auto node = dyn_cast<onnx::NodeOp>(user);
        return node && !onnx::isSupported(node);
      })) {
    state.broken = true; // its users have been reported
    return;
  }
  auto type = cast<RankedTensorType>(constant.getType());
  int64_t wide =
      llvm::count_if(type.getShape(), [](int64_t s) { return s > 1; });
  if (isa<FloatType>(type.getElementType()) && type.getRank() == 2 &&
      wide == 2) {
    state.matrix = {constant, false};
    return;
  }
  if (isa<FloatType>(type.getElementType()) && wide == 1) {
    // Not its own values, which are often all 0 or all 1 and then fit formulas
    // that they are no part of.
    if (!roomForVector(type.getNumElements())) {
      fail(constant) << "tensor '" << constant.getName() << "' of type " << type
                     << ": the vectors up to it are larger than those of any "
                        "OPT model";
      state.broken = true;
      return;
    }
    state.vector =
        addVector({constant, {}}, random.normals(type.getNumElements()));
    Tensor tensor = Tensor::ofFloats(type.getElementType(), type.getShape(),
                                     vectorData.back());
    state.tensors.assign(worlds.size(), tensor);
    setLeaves(state, {addLeaf({Leaf::VectorLeaf, state.vector})});
    return;
  }
  if (type.getNumElements() > kLargestConstant) {
    fail(constant) << "tensor '" << constant.getName() << "' of type " << type
                   << " is neither a weight matrix nor a small constant";
    state.broken = true;
    return;
  }
  llvm::Expected<Tensor> value = onnx::load(constant);
  if (!value) {
    fail(constant) << llvm::toString(value.takeError());
    state.broken = true;
    return;
  }
  state.tensors.assign(worlds.size(), *value);
}

void Recogniser::visit(onnx::NodeOp node) {
  if (node.getOutputs().empty())
    return; // nobody sees what it computes
  bool broken = !onnx::isSupported(node), fixed = true;
  for (Value input : node.getInputs()) {
    auto known = states.find(input);
    broken |= known == states.end() || known->second.broken;
    fixed &= known == states.end() || known->second.fixed;
  }
  if (broken) {
    for (Value output : node.getOutputs())
      states[output].broken = true;
    return;
  }
  if (node.getOpType() == "If")
    return visitIf(node);
  if (!passMatrix(node) && !visitCut(node))
    compute(node);
  for (Value output : node.getOutputs())
    states[output].fixed = fixed;
}

/// `If` on the flag of a merged graph, or on a constant: one branch is the
/// graph.
void Recogniser::visitIf(onnx::NodeOp node) {
  auto breakOutputs = [&] {
    for (Value output : node.getOutputs())
      states[output].broken = true;
  };
  if (node.getInputs().empty() || !node.getBranchesAttr()) {
    fail(node) << onnx::describe(node) << ": it has no condition or no branch";
    return breakOutputs();
  }
  const State &decides = states[node.getInputs().front()];
  bool same = decides.fixed && !decides.tensors.empty(), condition = false;
  for (const Tensor &tensor : decides.tensors) {
    same &= tensor && tensor.count() == 1;
    condition = same && tensor.number(0) != 0;
  }
  StringRef taken = condition ? "then_branch" : "else_branch";
  for (auto [name, body] :
       llvm::zip(node.getBranchesAttr(), node.getBodies())) {
    if (!same || cast<StringAttr>(name).getValue() != taken)
      continue;
    runBlock(body.front());
    auto output = cast<onnx::OutputOp>(body.front().back());
    for (auto [result, value] :
         llvm::zip(node.getOutputs(), output.getValues())) {
      State state = states.lookup(value);
      SmallVector<int, 8> made = state.leaves;
      state.leaves.clear();
      states[result] = std::move(state);
      setLeaves(states[result], made);
    }
    return;
  }
  fail(node) << onnx::describe(node)
             << ": its condition depends on the input, which is not supported";
  breakOutputs();
}

/// Nodes that give a weight matrix on, perhaps transposed.
bool Recogniser::passMatrix(onnx::NodeOp node) {
  if (node.getInputs().empty())
    return false;
  Matrix matrix = states[node.getInputs().front()].matrix;
  if (!matrix)
    return false;
  StringRef type = node.getOpType();
  if (type == "Shape" || type == "Size") {
    onnx::Shape shape = {matrix.dim(0), matrix.dim(1)};
    // Only the shape of this tensor is read; it has no elements.
    Tensor tensor =
        Tensor(Float32Type::get(node.getContext()), {0}).reshaped(shape);
    llvm::Expected<onnx::Tensors> result =
        onnx::evaluate(node, {tensor}, graph.getOpset());
    if (!result) {
      fail(node) << llvm::toString(result.takeError());
      states[node.getOutputs().front()].broken = true;
      return true;
    }
    states[node.getOutputs().front()].tensors.assign(worlds.size(),
                                                     result->front());
    return true;
  }
  DictionaryAttr params = node.getParamsAttr();
  if (type == "Transpose") {
    auto order =
        params ? params.getAs<DenseI64ArrayAttr>("perm") : DenseI64ArrayAttr();
    if (!order || order.asArrayRef() == ArrayRef<int64_t>{1, 0})
      matrix.transposed = !matrix.transposed;
    else if (order.asArrayRef() != ArrayRef<int64_t>{0, 1})
      return false;
  } else if (type == "Cast") {
    // Integers would be other weights.
    auto to = params ? params.getAs<IntegerAttr>("to") : IntegerAttr();
    if (!to || !isa_and_nonnull<FloatType>(
                   onnx::typeOf(to.getInt(), node.getContext())))
      return false;
  } else if (type != "Identity" &&
             (type != "Dropout" || node.getInputs().size() > 2)) {
    return false;
  }
  states[node.getOutputs().front()].matrix = matrix;
  return true;
}

/// A small matrix that no layer multiplies by, such as a mask, is a constant.
bool Recogniser::materialise(onnx::NodeOp node, Value value) {
  State &state = states[value];
  onnx::ConstantOp constant = state.matrix.constant;
  if (cast<RankedTensorType>(constant.getType()).getNumElements() >
          kLargestConstant ||
      state.matrix.transposed) {
    fail(node) << onnx::describe(node) << ": weight '" << constant.getName()
               << "' is used in a way that is not understood; a weight may be "
                  "multiplied by (MatMul, Gemm), looked up (Gather), cast or "
                  "transposed";
    return false;
  }
  llvm::Expected<Tensor> loaded = onnx::load(constant);
  if (!loaded) {
    fail(node) << llvm::toString(loaded.takeError());
    return false;
  }
  state.tensors.assign(worlds.size(), *loaded);
  return true;
}

void Recogniser::compute(onnx::NodeOp node) {
  SmallVector<int, 8> made;
  bool shapeOnly = node.getOpType() == "Shape" || node.getOpType() == "Size";
  auto breakOutputs = [&] {
    for (Value output : node.getOutputs())
      states[output].broken = true;
  };
  for (Value input : node.getInputs()) {
    State &state = states[input];
    if (state.matrix && state.tensors.empty() && !materialise(node, input))
      return breakOutputs();
    if (!shapeOnly)
      made.append(state.leaves.begin(), state.leaves.end());
  }
  llvm::sort(made);
  made.erase(llvm::unique(made), made.end());

  std::vector<onnx::Tensors> results;
  for (size_t w = 0; w < worlds.size(); ++w) {
    SmallVector<Tensor> arguments;
    for (Value input : node.getInputs()) {
      const State &state = states[input];
      arguments.push_back(state.tensors.empty() ? Tensor() : state.tensors[w]);
    }
    if (llvm::Error costly = budget.charge(node, arguments)) {
      if (!std::exchange(exhausted, true))
        fail(node) << llvm::toString(std::move(costly));
      else
        llvm::consumeError(std::move(costly));
      return breakOutputs();
    }
    llvm::Expected<onnx::Tensors> result =
        onnx::evaluate(node, arguments, graph.getOpset());
    if (!result) {
      fail(node) << llvm::toString(result.takeError()) << " (run with "
                 << worlds[w].describe() << ")";
      return breakOutputs();
    }
    results.push_back(std::move(*result));
  }
  for (auto [i, output] : llvm::enumerate(node.getOutputs())) {
    State &state = states[output];
    for (const onnx::Tensors &result : results)
      state.tensors.push_back(result[i]);
    setLeaves(state, made);
    if (made.size() == 1 && leaves[made[0]].kind == Leaf::VectorLeaf)
      sliceVector(state);
    match(node, state);
    if (state.part >= 0)
      continue;
    if (!state.nearest.empty()) {
      state.suspect = output;
      state.suspectLeaves = state.leaves;
    }
    // A view of something that came close is no news.
    for (Value input : node.getInputs()) {
      const State &before = states[input];
      if (before.part >= 0 || before.nearest.empty() ||
          (!state.nearest.empty() && state.nearest != before.nearest))
        continue;
      state.nearest = before.nearest;
      state.nearestError = before.nearestError;
      state.suspect = before.suspect;
      state.suspectLeaves = before.suspectLeaves;
    }
  }
}
