//===- OptBlocks.cpp - The structure of OPT in a program ------------------===//

#include "OptBlocks.h"

#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;

namespace {

class BlockFinder {
public:
  BlockFinder(Program &program, Location loc, bool tieHead)
      : program(program), loc(loc), tieHead(tieHead), live(program.live()),
        users(program.parts.size()) {
    for (size_t i = 0; i < program.parts.size(); ++i)
      if (live[i])
        for (int operand : program.parts[i].operands)
          users[operand].push_back(static_cast<int>(i));
  }

  FailureOr<OptModel> find(bool quiet);

private:
  using Kind = Part::Kind;

  Part &part(int i) { return program.parts[i]; }
  Location locOf(int i) { return part(i).locations.back(); }
  void name(int i, const Twine &text) { part(i).name = text.str(); }

  /// The user of `i` of a kind, if there is exactly one; else -1.
  int userOf(int i, Kind kind) {
    int found = -1;
    for (int user : users[i])
      if (part(user).kind == kind) {
        if (found >= 0)
          return -1;
        found = user;
      }
    return found;
  }
  /// The only user of `i`, if it is of a kind; else -1.
  int onlyUser(int i, Kind kind) {
    return users[i].size() == 1 ? userOf(i, kind) : -1;
  }
  int other(int sum, int operand) {
    auto &operands = part(sum).operands;
    return operands[0] == operand ? operands[1] : operands[0];
  }

  FailureOr<int> embeddings();
  FailureOr<int> layer(int h);
  FailureOr<int> mlp(int h, const std::string &name);
  LogicalResult head(int h);
  int addHead(int h);
  LogicalResult complete();
  int attentionOf(int x);

  InFlightDiagnostic fail(int i, const Twine &what) {
    InFlightDiagnostic diagnostic = emitError(locOf(i));
    diagnostic << "node '" << onnx::nameOf(locOf(i))
               << "': not an OPT model: " << what;
    return diagnostic;
  }

  Program &program;
  Location loc;
  bool tieHead;
  std::vector<bool> live;
  std::vector<SmallVector<int, 4>> users;
  OptModel model;
  /// Whether LayerNorm comes before attention and MLP; unset before layer 0.
  std::optional<bool> normFirst;
  Matrix embedMatrix;
};

/// Whether two matrices hold the same numbers.
bool equal(Matrix a, Matrix b) {
  for (unsigned i : {0u, 1u})
    if (a.dim(i) != b.dim(i))
      return false;
  auto x = dyn_cast<ExternalAttr>(a.constant.getSource());
  auto y = dyn_cast<ExternalAttr>(b.constant.getSource());
  if (!x || !y || x.getElement() != y.getElement())
    return false;
  bool sameOrder = a.transposed == b.transposed;
  if (sameOrder && x == y)
    return true;
  auto map = [](ExternalAttr at) {
    return llvm::MemoryBuffer::getFileSlice(at.getFile(), at.getBytes(),
                                            at.getOffset());
  };
  auto left = map(x), right = map(y);
  if (!left || !right || (*left)->getBufferSize() != (*right)->getBufferSize())
    return false;
  const char *p = (*left)->getBufferStart(), *q = (*right)->getBufferStart();
  if (sameOrder)
    return std::memcmp(p, q, (*left)->getBufferSize()) == 0;
  auto type = cast<RankedTensorType>(a.constant.getType());
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  size_t bytes = x.getElement().getIntOrFloatBitWidth() / 8;
  // Different matrices differ at once, so only equal ones are read in full.
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      if (std::memcmp(p + (r * columns + c) * bytes, q + (c * rows + r) * bytes,
                      bytes) != 0)
        return false;
  return true;
}

} // namespace

FailureOr<int> BlockFinder::embeddings() {
  for (size_t i = 0; i < program.parts.size(); ++i) {
    if (!live[i] || part(i).kind != Kind::Add)
      continue;
    for (int side : {0, 1}) {
      int places = part(i).operands[side], words = part(i).operands[1 - side];
      int projection = -1;
      if (part(words).kind == Kind::Linear &&
          part(part(words).operands[0]).kind == Kind::Embed) {
        projection = words;
        words = part(words).operands[0];
      }
      if (part(places).kind != Kind::Embed || part(places).offset < 0 ||
          part(words).kind != Kind::Embed || part(words).offset >= 0)
        continue;
      name(places, "embed_positions");
      name(words, "embed_tokens");
      name(i, "embed");
      if (projection >= 0)
        name(projection, "project_in");
      model.hiddenSize = part(i).width;
      model.vocabSize = part(words).matrix.dim(0);
      model.positions = part(places).matrix.dim(0) - part(places).offset;
      embedMatrix = part(words).matrix;
      return static_cast<int>(i);
    }
  }
  emitError(loc) << "not an OPT model: no sum of a token embedding and a "
                    "position embedding was found";
  return failure();
}

/// The attention whose query, key and value are products with `x`; -1 if none.
int BlockFinder::attentionOf(int x) {
  for (int user : users[x]) {
    if (part(user).kind != Kind::Linear)
      continue;
    for (int attention : users[user])
      if (part(attention).kind == Kind::Attention &&
          llvm::all_of(part(attention).operands, [&](int projection) {
            return part(projection).kind == Kind::Linear &&
                   part(projection).operands[0] == x;
          }))
        return attention;
  }
  return -1;
}

/// A layer that begins at `h`: its end, or -1 if none begins there.
FailureOr<int> BlockFinder::layer(int h) {
  int norm = -1, attention = attentionOf(h);
  for (int user : users[h])
    if (attention < 0 && part(user).kind == Kind::Norm) {
      attention = attentionOf(user);
      norm = attention < 0 ? -1 : user;
    }
  if (attention < 0)
    return -1;
  std::string prefix = "layers." + std::to_string(model.attentions.size());
  bool first = norm >= 0;
  if (normFirst && *normFirst != first)
    return fail(attention, prefix + " has LayerNorm " +
                               (first ? "before" : "after") +
                               " attention, the layers before it have not");
  normFirst = first;
  name(attention, prefix + ".self_attn");
  const char *projections[] = {".q_proj", ".k_proj", ".v_proj"};
  for (auto [i, projection] : llvm::enumerate(part(attention).operands)) {
    if (users[projection].size() != 1)
      return fail(projection, prefix + ": a projection has other uses");
    name(projection, prefix + ".self_attn" + projections[i]);
  }
  if (model.heads && model.heads != part(attention).heads)
    return fail(attention, prefix + " has " + Twine(part(attention).heads) +
                               " heads, the layers before it " +
                               Twine(model.heads));
  model.heads = part(attention).heads;

  int out = onlyUser(attention, Kind::Linear);
  if (out < 0)
    return fail(attention,
                prefix + ": attention is not followed by its projection alone");
  int sum = onlyUser(out, Kind::Add);
  if (sum < 0 || other(sum, out) != h)
    return fail(out, prefix + ": the attention's result is not added to the "
                              "residual stream");
  name(out, prefix + ".self_attn.out_proj");
  name(sum, prefix + ".attention");
  int next = sum;
  if (!first) {
    norm = onlyUser(sum, Kind::Norm);
    if (norm < 0)
      return fail(sum, prefix + ": no LayerNorm after attention");
    next = norm;
  }
  name(norm, prefix + ".self_attn_layer_norm");
  model.attentions.push_back(attention);
  return mlp(next, prefix);
}

FailureOr<int> BlockFinder::mlp(int h, const std::string &prefix) {
  int norm = *normFirst ? userOf(h, Kind::Norm) : -1;
  if (*normFirst && norm < 0)
    return fail(h, prefix + ": no LayerNorm before the MLP");
  int x = *normFirst ? norm : h;
  int fc1 = userOf(x, Kind::Linear);
  int activation = fc1 < 0 ? -1 : onlyUser(fc1, Kind::Activate);
  int fc2 = activation < 0 ? -1 : onlyUser(activation, Kind::Linear);
  if (fc2 < 0)
    return fail(x, prefix + ": the MLP is not two linear layers with an "
                            "activation between them");
  int sum = onlyUser(fc2, Kind::Add);
  if (sum < 0 || other(sum, fc2) != h)
    return fail(fc2, prefix + ": the MLP's result is not added to the residual "
                              "stream");
  name(fc1, prefix + ".fc1");
  name(activation, prefix + ".activation");
  name(fc2, prefix + ".fc2");
  name(sum, prefix + ".mlp");
  model.ffnDim.push_back(part(fc1).width);
  int next = sum;
  if (!*normFirst) {
    norm = onlyUser(sum, Kind::Norm);
    if (norm < 0)
      return fail(sum, prefix + ": no LayerNorm after the MLP");
    next = norm;
  }
  name(norm, prefix + ".final_layer_norm");
  return next;
}

/// Hidden states times the embedding's matrix, which the graph lacks.
int BlockFinder::addHead(int h) {
  Part head{.kind = Kind::Linear, .width = model.vocabSize};
  head.operands = {h};
  head.matrix = embedMatrix;
  head.locations = {locOf(h)};
  program.logits = static_cast<int>(program.parts.size());
  program.parts.push_back(std::move(head));
  live.push_back(true);
  users[h].push_back(program.logits);
  users.emplace_back();
  return program.logits;
}

LogicalResult BlockFinder::head(int h) {
  int at = h;
  if (int norm = onlyUser(at, Kind::Norm); norm >= 0) {
    name(norm, "final_layer_norm");
    at = norm;
  }
  int linear = onlyUser(at, Kind::Linear);
  // Narrow embeddings: the last layer gives hidden states of their width.
  bool narrow = linear >= 0 && linear == program.logits &&
                part(linear).width == embedMatrix.dim(1) &&
                part(linear).width != model.vocabSize;
  if (linear >= 0 && (linear != program.logits || narrow)) {
    name(linear, "project_out");
    at = narrow ? linear : at;
    linear = onlyUser(linear, Kind::Linear);
  }
  if (at == program.logits) {
    if (!tieHead)
      return fail(at, "it ends with hidden states and has no head (lm_head): "
                      "export OPTForCausalLM rather than OPTModel, with the "
                      "task text-generation, or take the embedding as its head "
                      "(--tie-head)");
    if (part(at).width != embedMatrix.dim(1))
      return fail(at, "its hidden states have " + Twine(part(at).width) +
                          " features, but the embedding that --tie-head takes "
                          "has " +
                          Twine(embedMatrix.dim(1)));
    linear = addHead(at);
  } else if (tieHead) {
    return fail(at, "--tie-head is for a model without a head, but it goes on "
                    "behind its hidden states");
  }
  if (linear < 0 || linear != program.logits)
    return fail(at, "after layer " + Twine(model.attentions.size()) +
                        " there is neither another layer nor the head");
  name(linear, "lm_head");
  if (part(linear).width != model.vocabSize)
    return fail(linear, "the head gives " + Twine(part(linear).width) +
                            " logits, but the embedding has " +
                            Twine(model.vocabSize) + " rows");
  model.tied = equal(embedMatrix, part(linear).matrix);
  return success();
}

LogicalResult BlockFinder::complete() {
  for (size_t i = 0; i < program.parts.size(); ++i)
    if (live[i] && part(i).name.empty())
      return fail(i, "a " + nameOf(part(i).kind) +
                         " is no part of embedding, layers or head");
  return success();
}

FailureOr<OptModel> BlockFinder::find(bool quiet) {
  FailureOr<int> h = embeddings();
  while (succeeded(h)) {
    FailureOr<int> next = layer(*h);
    if (failed(next))
      return failure();
    if (*next < 0)
      break;
    h = next;
  }
  if (failed(h))
    return failure();
  if (model.attentions.empty())
    return fail(*h, "no layer follows the embedding");
  if (failed(head(*h)) || failed(complete()))
    return failure();
  if (!quiet)
    warnOfDifferences(program, live, loc);
  return model;
}

FailureOr<OptModel> raising::findOptBlocks(Program &program, Location loc,
                                           bool tieHead, bool quiet) {
  return BlockFinder(program, loc, tieHead).find(quiet);
}
