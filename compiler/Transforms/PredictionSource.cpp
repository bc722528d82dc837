//===- PredictionSource.cpp - What a prediction reads ---------------------===//

#include "PredictionSource.h"

using namespace mlir;
using namespace foresight;

bool foresight::feedsProof(PredictOp predict) {
  return llvm::any_of(predict.getScores().getUsers(), [](Operation *user) {
    auto select = dyn_cast<SelectCertifiedOp>(user);
    return select && select.getKappa().convertToDouble() >= 1;
  });
}

/// What `x` is the LayerNorm of. A model that normalises after each block has
/// the norm behind `x`, whoever else reads it.
static Value streamBehind(Value x) {
  auto norm = x.getDefiningOp<LayerNormOp>();
  return norm ? norm.getX() : Value();
}

PredictionSource::PredictionSource(func::FuncOp entry) {
  entry.walk([&](Operation *op) {
    if (auto attention = dyn_cast<AttentionOp>(op)) {
      auto query = attention.getQuery().getDefiningOp<LinearOp>();
      blocks.push_back(
          {query ? streamBehind(query.getX()) : Value(), Value(), {}});
    } else if (isa<MlpOp, SparseMlpOp>(op) && !blocks.empty()) {
      blocks.back().mlpStream = streamBehind(op->getOperand(0));
      blocks.back().mlps.push_back(op);
    }
  });
}

/// The MLP whose rows are selected by the scores of `predict`.
static Operation *consumerOf(PredictOp predict) {
  for (Operation *select : predict.getScores().getUsers())
    for (Operation *user : select->getUsers())
      if (isa<SparseMlpOp>(user))
        return user;
  return nullptr;
}

FailureOr<Value> PredictionSource::streamFor(PredictOp predict) const {
  Operation *consumer = consumerOf(predict);
  const auto *block = llvm::find_if(blocks, [&](const Block &candidate) {
    return llvm::is_contained(candidate.mlps, consumer);
  });
  if (!consumer || block == blocks.end())
    return predict.emitError()
           << "looks ahead, but its scores select for no sparse_mlp that "
              "follows an attention";
  size_t index = block - blocks.begin();
  size_t back = 0;
  switch (predict.getLookahead()) {
  case Lookahead::Here:
    return streamBehind(consumer->getOperand(0));
  case Lookahead::HalfBlock:
    break;
  case Lookahead::Block:
    back = 1;
    break;
  case Lookahead::TwoBlocks:
    back = 2;
    break;
  }
  Value stream = back == 0 || back > index ? block->attentionStream
                                           : blocks[index - back].mlpStream;
  // The first block: nothing lies further back than its attention's input.
  if (back > index && index > 0)
    stream = blocks.front().mlpStream;
  // A model that normalises after its blocks has no LayerNorm before the first.
  if (!stream)
    stream = streamBehind(consumer->getOperand(0));
  if (!stream)
    return predict.emitError()
           << "looks ahead, but neither its MLP nor what lies before it reads "
              "a LayerNorm";
  return stream;
}
