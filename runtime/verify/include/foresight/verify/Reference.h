//===- Reference.h - Logits that another framework computed -----*- C++ -*-===//
//
// A safetensors file of cases. The tensors of a case share a prefix ("single.",
// or none):
//   P.input_ids       [batch, tokens] or [tokens]
//   P.attention_mask  of the same shape, optional: 0 is padding
//   P.logits          [batch, tokens, vocabulary] or, of the last token alone,
//                     [batch, vocabulary]; without batch where ids have none
//   P.greedy, P.tokens  a prompt that is in some P.input_ids, and the
//                     likeliest token after each token from its end on
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_VERIFY_REFERENCE_H
#define FORESIGHT_VERIFY_REFERENCE_H

#include "foresight/support/Safetensors.h"

#include <cstdint>
#include <string>
#include <vector>

namespace foresight::verify {

/// One row of a batch without its padding: nothing else of the batch has an
/// influence on it.
struct Sequence {
  std::string name; ///< "left_padded, row 2"
  std::vector<int32_t> ids;
  TensorInfo logits;
  int64_t vocabulary = 0;
  int64_t firstRow = 0; ///< in `logits`, of token `firstToken`
  int64_t firstToken = 0;

  /// The logits after token `t`, which is `firstToken` or a later one.
  std::vector<float> row(int64_t t) const;
};

struct Continuation {
  std::string name;
  std::vector<int32_t> ids; ///< the prompt too
  size_t prompt = 0;        ///< its length
};

struct Reference {
  std::vector<Sequence> sequences;
  std::vector<Continuation> continuations;

  /// BadInput where tensors are missing or contradict each other; Unsupported
  /// for a mask with holes.
  static Result<Reference> read(const std::string &path);
};

} // namespace foresight::verify
#endif
