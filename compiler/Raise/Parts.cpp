//===- Parts.cpp - What is known of a graph so far ------------------------===//

#include "Recogniser.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;
using onnx::Tensor;

StringRef raising::nameOf(Part::Kind kind) {
  switch (kind) {
  case Part::Kind::Embed:
    return "embedding";
  case Part::Kind::Linear:
    return "linear layer";
  case Part::Kind::Norm:
    return "LayerNorm";
  case Part::Kind::Activate:
    return "activation";
  case Part::Kind::Add:
    return "sum";
  case Part::Kind::Attention:
    return "attention";
  case Part::Kind::Unknown:
    return "unknown part";
  }
  return "";
}

std::vector<bool> Program::live() const {
  std::vector<bool> result(parts.size());
  if (logits >= 0)
    result[logits] = true;
  for (size_t i = parts.size(); i-- > 0;)
    if (result[i])
      for (int operand : parts[i].operands)
        result[operand] = true;
  return result;
}

int Recogniser::addLeaf(Leaf leaf) {
  leaves.push_back(leaf);
  return static_cast<int>(leaves.size()) - 1;
}

/// A step of OPT-175B has a quarter of these numbers in biases and norms.
static constexpr int64_t kMostVectorNumbers = int64_t(1) << 26;

bool Recogniser::roomForVector(int64_t count) const {
  return count <= kMostVectorNumbers - vectorNumbers;
}

int Recogniser::addVector(Vector vector, std::vector<double> values) {
  vectorNumbers += static_cast<int64_t>(values.size());
  vectors.push_back(vector);
  vectorData.push_back(std::move(values));
  return static_cast<int>(vectors.size()) - 1;
}

/// Keeps count of who is made of which part, so that its data can go.
void Recogniser::setLeaves(State &state, SmallVector<int, 8> made) {
  auto partOf = [&](int leaf) {
    return leaves[leaf].kind == Leaf::PartLeaf ? leaves[leaf].index : -1;
  };
  for (int leaf : made)
    if (int part = partOf(leaf); part >= 0)
      ++data[part].users;
  for (int leaf : state.leaves)
    if (int part = partOf(leaf); part >= 0 && --data[part].users == 0)
      data[part].worlds.clear();
  state.leaves = std::move(made);
}

int Recogniser::addPart(Part part, ArrayRef<Tensor> tensors) {
  for (size_t i = 0; i < program.parts.size(); ++i) {
    if (part.kind == Part::Kind::Unknown || !program.parts[i].same(part))
      continue;
    if (data[i].worlds.empty())
      data[i].worlds.assign(tensors.begin(), tensors.end());
    return static_cast<int>(i);
  }
  int index = static_cast<int>(program.parts.size());
  if (options.explain) {
    InFlightDiagnostic diagnostic = emitRemark(part.locations.front());
    diagnostic << "part " << index << ": "
               << (part.kind == Part::Kind::Activate
                       ? stringifyActivation(part.activation)
                       : nameOf(part.kind))
               << " at '" << onnx::nameOf(part.locations.back()) << "', "
               << part.width << " wide";
    if (!part.operands.empty())
      diagnostic << ", of part";
    for (int operand : part.operands)
      diagnostic << " " << operand;
    if (part.kind == Part::Kind::Attention)
      diagnostic << ", " << part.heads << " heads, scale " << part.number;
    if (part.kind == Part::Kind::Norm)
      diagnostic << ", epsilon " << part.number;
  }
  program.parts.push_back(std::move(part));
  PartData entry;
  entry.worlds.assign(tensors.begin(), tensors.end());
  entry.leaf = addLeaf({Leaf::PartLeaf, index});
  data.push_back(std::move(entry));
  return index;
}

void Recogniser::become(State &state, int part) {
  state.part = part;
  setLeaves(state, {data[part].leaf});
}
