//===- Compare.h - A bundle against a reference -----------------*- C++ -*-===//
#ifndef FORESIGHT_VERIFY_COMPARE_H
#define FORESIGHT_VERIFY_COMPARE_H

#include "foresight/runtime/Session.h"
#include "foresight/verify/Reference.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresight::verify {

/// The largest difference of two rows of logits by the largest of `expected`;
/// infinite if a number is not finite.
double relativeError(std::span<const float> found,
                     std::span<const float> expected);

/// 1e-4 for weights and cache in f32, 2e-2 for 16 bits.
double toleranceOf(std::string_view dtype);

struct Finding {
  std::string name;
  int64_t tokens = 0; ///< compared
  /// Of logits: the largest relative error, and after which token.
  double error = 0;
  int64_t worst = -1;
  /// Of greedy tokens: how many are not the likeliest here but within the
  /// tolerance of it, and the first that is neither.
  bool greedy = false;
  int64_t close = 0;
  std::string mismatch;

  bool passed(double tolerance) const {
    return error <= tolerance && mismatch.empty();
  }
};

struct Report {
  std::vector<Finding> findings;
  double tolerance = 0;

  bool passed() const;
  /// Over all logits.
  double largestError() const;
};

/// Runs every sequence of the reference twice, as a prompt and token by token,
/// and every continuation. Fails if they cannot be run: ids out of range, too
/// many tokens, another vocabulary.
Result<Report> compare(Session &session, const Reference &reference,
                       double tolerance);

} // namespace foresight::verify
#endif
