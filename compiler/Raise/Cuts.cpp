//===- Cuts.cpp - Products with weights, lookups in tables, outputs -------===//

#include "Recogniser.h"

#include <cmath>

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;
using onnx::Tensor;

/// Handles a node that multiplies by, or looks up rows of, a weight matrix.
bool Recogniser::visitCut(onnx::NodeOp node) {
  StringRef type = node.getOpType();
  auto inputs = node.getInputs();
  // Of ONNX Runtime; it has the attributes of Gemm and adds nothing.
  bool gemm = type == "Gemm" || type == "FusedMatMul";
  if ((type == "MatMul" || gemm) && inputs.size() >= 2) {
    if (Matrix matrix = states[inputs[1]].matrix) {
      visitLinear(node, matrix, gemm);
      return true;
    }
    if (states[inputs[0]].matrix) {
      fail(node) << onnx::describe(node) << ": weight '"
                 << states[inputs[0]].matrix.constant.getName()
                 << "' is the left operand, which no layer of OPT has";
      states[node.getOutputs().front()].broken = true;
      return true;
    }
  }
  if (type == "Gather" && inputs.size() == 2) {
    auto params = node.getParamsAttr();
    auto axis = params ? params.getAs<IntegerAttr>("axis") : IntegerAttr();
    Matrix matrix = states[inputs[0]].matrix;
    if (matrix && (!axis || axis.getInt() == 0)) {
      visitEmbed(node, matrix);
      return true;
    }
  }
  return false;
}

/// The part that `value` is, or a new unknown one after a report.
int Recogniser::knownRows(onnx::NodeOp node, State &state, Value value) {
  return state.part >= 0 ? state.part : reportUnknown(node, state, value);
}

std::string Recogniser::describeLeaves(ArrayRef<int> made) {
  std::string text;
  for (int leaf : made) {
    std::string item;
    if (leaves[leaf].kind == Leaf::PartLeaf) {
      const Part &part = program.parts[leaves[leaf].index];
      item = ("the " + nameOf(part.kind) + " at '" +
              onnx::nameOf(part.locations.front()) + "'")
                 .str();
    } else if (leaves[leaf].kind == Leaf::VectorLeaf) {
      item = "tensor '" + vectors[leaves[leaf].index].constant.getName().str() +
             "'";
    } else {
      item = "input '" +
             cast<StringAttr>(graph.getInputs()[leaves[leaf].index]).str() +
             "'";
    }
    text += (text.empty() ? "" : ", ") + item;
  }
  return text.empty() ? "constants only" : text;
}

/// Goes on with a value as it is, to find what else is not understood.
void Recogniser::becomeUnknown(State &state, Location loc) {
  Part part{.kind = Part::Kind::Unknown,
            .width = std::max<int64_t>(widthOf(state), 0)};
  part.locations.push_back(loc);
  become(state, addPart(std::move(part), state.tensors));
}

int Recogniser::reportUnknown(onnx::NodeOp node, State &state, Value value) {
  // The last value that could have been a part says more than what was made of
  // it: a wrong sum rather than the LayerNorm of it.
  Value suspect = state.suspect ? state.suspect : value;
  auto maker = suspect.getDefiningOp<onnx::NodeOp>();
  {
    InFlightDiagnostic diagnostic = fail(maker ? maker : node);
    if (maker)
      diagnostic << onnx::describe(maker)
                 << ": what it computes is not a part of OPT";
    else
      diagnostic << onnx::describe(node) << ": its input is not understood";
    diagnostic << "; it is made of "
               << describeLeaves(state.suspect ? state.suspectLeaves
                                               : state.leaves);
    if (!state.nearest.empty())
      diagnostic << "; nearest is " << state.nearest;
    if (state.leaves.size() == 1 &&
        leaves[state.leaves[0]].kind == Leaf::PartLeaf &&
        worlds[0].tokens > 1 &&
        state.tensors[0].count() ==
            worlds[0].batch *
                program.parts[leaves[state.leaves[0]].index].width)
      diagnostic << "; it has one row a sequence, which is not that of the "
                    "last token";
    if (maker != node)
      diagnostic.attachNote(node.getLoc())
          << onnx::describe(node) << " depends on it";
  }
  // Whatever else fails for the same reason is not reported again.
  for (auto &[other, made] : states)
    if (other != value && state.suspect && made.suspect == state.suspect &&
        made.part < 0 && widthOf(made) > 0)
      becomeUnknown(made, node.getLoc());
  becomeUnknown(state, node.getLoc());
  return state.part;
}

/// Whether random rows can stand for what `node` computes.
llvm::Error Recogniser::checkRows(onnx::NodeOp node, int64_t width) {
  if (llvm::Error large = onnx::checkSize({worlds.front().rows(), width}))
    return large;
  int64_t count = 0;
  for (const World &world : worlds)
    count += world.rows() * width;
  return budget.chargeNormals(node, count);
}

void Recogniser::visitLinear(onnx::NodeOp node, Matrix matrix, bool gemm) {
  Value x = node.getInputs()[0], result = node.getOutputs().front();
  auto refuse = [&](const Twine &what) {
    fail(node) << onnx::describe(node) << ": " << what;
    states[result].broken = true;
  };
  auto number = [&](StringRef name, double otherwise) {
    DictionaryAttr params = node.getParamsAttr();
    Attribute value = params ? params.get(name) : Attribute();
    if (auto real = dyn_cast_or_null<FloatAttr>(value))
      return real.getValueAsDouble();
    if (auto integer = dyn_cast_or_null<IntegerAttr>(value))
      return static_cast<double>(integer.getInt());
    return otherwise;
  };
  // The graph multiplies by [in, out]; a part's matrix is [out, in].
  bool transB = gemm && number("transB", 0) != 0;
  if (!transB)
    matrix.transposed = !matrix.transposed;
  if (gemm && (number("transA", 0) != 0 || number("alpha", 1) != 1 ||
               number("transBatchA", 0) != 0 || number("transBatchB", 0) != 0))
    return refuse("a scaled or transposed product is not a layer of OPT");

  int64_t out = matrix.dim(0), in = matrix.dim(1);
  if (states[x].tensors.empty() || !states[x].tensors.front())
    return refuse("weight '" + matrix.constant.getName() +
                  "' is multiplied by another weight or by nothing");
  if (llvm::Error large = checkRows(node, out))
    return refuse(llvm::toString(std::move(large)));
  for (const Tensor &sample : states[x].tensors)
    if (!sample.isFloat() || sample.rank() < 1 ||
        sample.dim(sample.rank() - 1) != in)
      return refuse("weight '" + matrix.constant.getName() + "' has " +
                    Twine(in) + " inputs, but " +
                    (sample.isFloat() ? "" : "a tensor of integers of shape ") +
                    onnx::toString(sample.shape()) + " is multiplied by it");
  int part = knownRows(node, states[x], x);
  if (program.parts[part].width != in &&
      program.parts[part].kind == Part::Kind::Unknown) {
    states[result].broken = true; // why has been said
    return;
  }
  if (program.parts[part].width != in)
    return refuse("rows of " + Twine(program.parts[part].width) +
                  " features are multiplied by weight '" +
                  matrix.constant.getName() + "' of " + Twine(in));

  Part linear{.kind = Part::Kind::Linear, .width = out};
  linear.operands = {part};
  linear.matrix = matrix;
  linear.locations = {node.getLoc()};
  if (gemm && node.getInputs().size() > 2 &&
      !isa<NoneType>(node.getInputs()[2].getType())) {
    State &bias = states[node.getInputs()[2]];
    int vector = bias.leaves.size() == 1 &&
                         leaves[bias.leaves[0]].kind == Leaf::VectorLeaf
                     ? leaves[bias.leaves[0]].index
                     : -1;
    if (vector < 0 || number("beta", 1) != 1 ||
        static_cast<int64_t>(vectorData[vector].size()) != out ||
        bias.tensors[0].floats() != vectorData[vector])
      return refuse("what it adds is not a bias of " + Twine(out) + " numbers");
    linear.setBias(vectors[vector].constant, vectors[vector].elements);
  }
  std::vector<Tensor> tensors;
  for (auto [w, world] : llvm::enumerate(worlds)) {
    onnx::Shape shape = {world.rows(), out};
    tensors.push_back(Tensor::ofFloats(states[x].tensors[w].element(), shape,
                                       random.normals(onnx::countOf(shape))));
  }
  int index = addPart(std::move(linear), tensors);
  State &state = states[result];
  // An equal layer that was seen before keeps its data.
  for (size_t w = 0; w < worlds.size(); ++w) {
    onnx::Shape shape = states[x].tensors[w].shape();
    shape.back() = out;
    Tensor rows = data[index].worlds[w];
    if (states[x].kept)
      rows = lastRows(rows, w, states[x].kept);
    state.tensors.push_back(rows.reshaped(shape));
  }
  become(state, index);
  state.kept = states[x].kept;
}

void Recogniser::visitEmbed(onnx::NodeOp node, Matrix matrix) {
  Value result = node.getOutputs().front();
  State &indices = states[node.getInputs()[1]];
  auto refuse = [&](const Twine &what) {
    fail(node) << onnx::describe(node) << ": " << what;
    states[result].broken = true;
  };
  if (indices.tensors.empty() || !indices.tensors.front())
    return refuse("its rows are looked up by a weight or by nothing");
  if (llvm::Error large = checkRows(node, matrix.dim(1)))
    return refuse(llvm::toString(std::move(large)));
  if (matrix.transposed)
    return refuse("looks up columns of '" + matrix.constant.getName() +
                  "', which is not supported");
  size_t idsIndex = 0;
  while (inputs.roles[idsIndex] != Role::Ids)
    ++idsIndex;
  bool byId = true, byPosition = true;
  std::optional<int64_t> offset;
  std::string mismatch;
  for (auto [w, world] : llvm::enumerate(worlds)) {
    const Tensor &index = indices.tensors[w];
    // Position tables may be looked up once for all sequences.
    bool shared = index.count() == world.tokens && world.batch > 1;
    if (index.isFloat() || (index.count() != world.rows() && !shared))
      return refuse("looks up " + Twine(index.count()) + " rows for " +
                    Twine(world.rows()) + " tokens");
    for (int64_t row = 0; row < world.rows(); ++row) {
      if (!world.isReal(row))
        continue;
      // Far from any table, but near enough to count with.
      constexpr int64_t kFar = int64_t(1) << 48;
      int64_t found = std::clamp(
          index.ints()[shared ? row % world.tokens : row], -kFar, kFar);
      byId &= !shared && found == inputData[idsIndex][w].ints()[row];
      if (!offset)
        offset = found - world.position(row);
      if (found - world.position(row) != *offset && byPosition) {
        byPosition = false;
        mismatch =
            "a token at position " + std::to_string(world.position(row)) +
            " after " + std::to_string(world.pads[world.sequence(row)]) +
            " of padding looks up row " + std::to_string(found) + ", where " +
            std::to_string(world.position(row) + *offset) + " was expected";
      }
    }
  }
  if (!byId && (!byPosition || *offset < 0))
    return refuse("its rows are looked up neither by token id nor by "
                  "position: " +
                  mismatch);
  Part embed{.kind = Part::Kind::Embed, .width = matrix.dim(1)};
  embed.matrix = matrix;
  embed.offset = byId ? -1 : *offset;
  embed.locations = {node.getLoc()};
  std::vector<Tensor> rows, tensors;
  for (auto [w, world] : llvm::enumerate(worlds)) {
    onnx::Shape shape = indices.tensors[w].shape();
    shape.push_back(matrix.dim(1));
    Type element =
        cast<RankedTensorType>(matrix.constant.getType()).getElementType();
    tensors.push_back(
        Tensor::ofFloats(element, shape, random.normals(onnx::countOf(shape))));
    rows.push_back(tensors.back());
    if (tensors.back().count() == world.rows() * matrix.dim(1))
      continue;
    // One row a position: repeated for the sequences.
    std::vector<double> repeated;
    for (int64_t b = 0; b < world.batch; ++b)
      repeated.insert(repeated.end(), tensors.back().floats().begin(),
                      tensors.back().floats().end());
    rows.back() = Tensor::ofFloats(element, {world.rows(), matrix.dim(1)},
                                   std::move(repeated));
  }
  int index = addPart(std::move(embed), rows);
  State &state = states[result];
  for (size_t w = 0; w < worlds.size(); ++w) {
    Tensor known = data[index].worlds[w];
    if (tensors[w].count() != known.count())
      known = Tensor::ofFloats(known.element(), {tensors[w].count()},
                               {known.floats().begin(),
                                known.floats().begin() + tensors[w].count()});
    state.tensors.push_back(known.reshaped(tensors[w].shape()));
  }
  become(state, index);
}

//===----------------------------------------------------------------------===//
// Outputs
//===----------------------------------------------------------------------===//

/// Whether `state` is the cache of `part`'s rows after those of input `past`
/// (-1: none).
bool Recogniser::isCache(const State &state, int part, int past) {
  if (data[part].worlds.empty())
    return false;
  for (auto [w, world] : llvm::enumerate(worlds)) {
    const Tensor &cache = state.tensors[w];
    if (!cache.isFloat() || cache.rank() != 4 || cache.dim(0) != world.batch ||
        cache.dim(2) != world.history())
      return false;
    int64_t heads = cache.dim(1), size = cache.dim(3);
    if (heads * size != program.parts[part].width)
      return false;
    for (int64_t b = 0; b < world.batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t s = world.pads[b]; s < world.history(); ++s) {
          const double *expected = history(w, part, past, b, s, h, heads);
          for (int64_t k = 0; k < size; ++k)
            if (cache.floats()[((b * heads + h) * world.history() + s) * size +
                               k] != expected[k])
              return false;
        }
  }
  return true;
}

/// A cache that comes out is fed again as the input at the same place, so that
/// every attention must read one of its own.
void Recogniser::checkPasts(onnx::OutputOp output,
                            ArrayRef<std::pair<StringRef, int>> caches) {
  if (!inputs.hasPast)
    return;
  auto inputName = [&](int index) {
    return cast<StringAttr>(graph.getInputs()[index]).getValue();
  };
  SmallVector<int> pasts, readers(inputs.roles.size(), 0);
  for (auto [i, role] : llvm::enumerate(inputs.roles))
    if (role == Role::Past)
      pasts.push_back(static_cast<int>(i));
  for (const Part &part : program.parts)
    if (part.kind == Part::Kind::Attention)
      for (int past : {part.pastKey, part.pastValue})
        if (past >= 0)
          ++readers[past];
  for (int past : pasts)
    if (readers[past] != 1)
      fail(output) << "input '" << inputName(past) << "' is the cache of "
                   << readers[past] << " layers; it must be that of one";
  if (caches.size() != pasts.size())
    return;
  for (auto [past, cache] : llvm::zip(pasts, caches))
    if (cache.second != past)
      fail(output) << "output '" << cache.first << "' continues input '"
                   << inputName(cache.second) << "', but is fed again as '"
                   << inputName(past) << "'";
}

void Recogniser::visitOutputs(onnx::OutputOp output) {
  if (failed)
    return; // what is missing has been said
  Value logits;
  SmallVector<std::pair<StringRef, int>> caches;
  for (auto [nameAttr, value] :
       llvm::zip(output.getNames(), output.getValues())) {
    StringRef name = cast<StringAttr>(nameAttr).getValue();
    State &state = states[value];
    if (state.broken || state.tensors.empty())
      continue;
    bool isRows = state.part >= 0 || state.tensors.front().rank() != 4;
    if (isRows && (name == "logits" || !logits)) {
      logits = value;
      continue;
    }
    if (isRows) {
      if (!options.quiet)
        emitWarning(output.getLoc())
            << "output '" << name
            << "' is no part of a decoding step and is left out";
      continue;
    }
    std::optional<int> past;
    for (const Part &part : program.parts) {
      if (part.kind != Part::Kind::Attention)
        continue;
      if (isCache(state, part.operands[1], part.pastKey))
        past = part.pastKey;
      else if (isCache(state, part.operands[2], part.pastValue))
        past = part.pastValue;
    }
    if (!past)
      fail(output) << "output '" << name
                   << "' is not the cache of any attention of the graph";
    else
      caches.push_back({name, *past});
  }
  checkPasts(output, caches);
  if (!logits) {
    fail(output) << "the graph has no output of logits";
    return;
  }
  State &state = states[logits];
  if (state.part < 0) {
    if (auto maker = logits.getDefiningOp<onnx::NodeOp>())
      reportUnknown(maker, state, logits);
    else
      fail(output) << "the logits are not computed";
    return;
  }
  program.logits = state.part;
}
