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
mlir::FailureOr<OptModel> findOptBlocks(Program &program, mlir::Location loc,
                                        bool quiet = false);

} // namespace foresight::raising

#endif // FORESIGHT_RAISE_OPTBLOCKS_H
