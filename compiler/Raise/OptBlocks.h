//===- OptBlocks.h - The structure of OPT in a program ----------*- C++ -*-===//
#ifndef FORESIGHT_RAISE_OPTBLOCKS_H
#define FORESIGHT_RAISE_OPTBLOCKS_H

#include "Program.h"

namespace foresight::raising {

/// What the blocks of a program have in common.
struct OptModel {
  int64_t vocabSize = 0, hiddenSize = 0, heads = 0, positions = 0;
  std::vector<int64_t> ffnDim;
  /// Attention of each layer, in order.
  std::vector<int> attentions;
  /// Token embedding and head share one matrix.
  bool tied = false;
};

/// Finds embeddings, blocks and head, and gives every part that the logits need
/// its name in OPT ("layers.3.fc1"). Reports where the program is something
/// else, and, unless `quiet`, warns of what no OPT model has but is compiled.
/// With `tieHead`, a program that ends with hidden states gets a head: the
/// embedding's matrix.
mlir::FailureOr<OptModel> findOptBlocks(Program &program, mlir::Location loc,
                                        bool tieHead, bool quiet = false);

/// Warns of numbers that no OPT model has and of tensors that stand where
/// others should by their names. Parts have their names in OPT already.
void warnOfDifferences(Program &program, const std::vector<bool> &live,
                       mlir::Location loc);

} // namespace foresight::raising

#endif // FORESIGHT_RAISE_OPTBLOCKS_H
