//===- Compare.cpp - A bundle against a reference -------------------------===//
#include "foresight/verify/Compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace foresight::verify {

/// 0 if there is none; infinite if one is not finite.
static double largest(std::span<const float> values) {
  double most = 0;
  for (const float value : values) {
    if (!std::isfinite(value))
      return std::numeric_limits<double>::infinity();
    most = std::max(most, std::fabs(static_cast<double>(value)));
  }
  return most;
}

double relativeError(std::span<const float> found,
                     std::span<const float> expected) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const double scale = largest(expected);
  if (found.size() != expected.size() || std::isinf(scale) ||
      std::isinf(largest(found)))
    return kInfinite;
  double most = 0;
  for (size_t i = 0; i < found.size(); ++i)
    most = std::max(most, std::fabs(static_cast<double>(found[i]) -
                                    static_cast<double>(expected[i])));
  if (most == 0)
    return 0;
  return scale == 0 ? kInfinite : most / scale;
}

double toleranceOf(std::string_view dtype) {
  return dtype == "f32" ? 1e-4 : 2e-2;
}

bool Report::passed() const {
  return std::all_of(findings.begin(), findings.end(),
                     [&](const Finding &f) { return f.passed(tolerance); });
}

double Report::largestError() const {
  double most = 0;
  for (const Finding &finding : findings)
    most = std::max(most, finding.error);
  return most;
}

static Result<Finding> compareLogits(Session &session,
                                     const Sequence &sequence) {
  const int64_t vocabulary = session.manifest().model.vocabSize;
  if (sequence.vocabulary != vocabulary)
    return makeError(ErrorCode::BadInput, sequence.logits.file->path(), ": ",
                     sequence.name, ": has logits of ", sequence.vocabulary,
                     " tokens, but the bundle's vocabulary has ", vocabulary);
  Finding out;
  out.name = sequence.name;
  auto meet = [&](std::span<const float> row, int64_t t) {
    const double error = relativeError(row, sequence.row(t));
    if (error > out.error || out.worst < 0) {
      out.error = error;
      out.worst = t;
    }
  };
  const auto count = static_cast<int64_t>(sequence.ids.size());
  FORESIGHT_CHECK(session.reset());
  FORESIGHT_TRY(const auto whole, session.prompt(sequence.ids));
  meet(whole, count - 1);
  FORESIGHT_CHECK(session.reset());
  for (int64_t t = 0; t < count; ++t) {
    FORESIGHT_TRY(const auto row, session.decode(sequence.ids[t]));
    if (t < sequence.firstToken)
      continue;
    meet(row, t);
    ++out.tokens;
  }
  return out;
}

/// Follows the reference, so that one close choice does not change all that
/// comes behind it.
static Result<Finding> compareTokens(Session &session,
                                     const Continuation &expected,
                                     double tolerance) {
  Finding out;
  out.name = expected.name;
  out.greedy = true;
  const std::span<const int32_t> ids = expected.ids;
  FORESIGHT_CHECK(session.reset());
  FORESIGHT_TRY(auto row, session.prompt(ids.first(expected.prompt)));
  for (size_t t = expected.prompt; t < ids.size(); ++t) {
    const auto best = std::max_element(row.begin(), row.end());
    const int32_t id = ids[t];
    ++out.tokens;
    if (id >= static_cast<int64_t>(row.size()))
      return makeError(ErrorCode::BadInput, expected.name, ": token ", t,
                       " is ", id, ", but the bundle's vocabulary has ",
                       row.size());
    if (best - row.begin() != id) {
      // Both logits may be off by the tolerance.
      const double gap = static_cast<double>(*best) - row[id];
      if (gap <= 2 * tolerance * largest(row)) {
        ++out.close;
      } else {
        out.mismatch = "token " + std::to_string(t) + " is " +
                       std::to_string(best - row.begin()) + ", expected " +
                       std::to_string(id);
        return out;
      }
    }
    if (t + 1 < ids.size()) {
      FORESIGHT_TRY(row, session.decode(id));
    }
  }
  return out;
}

Result<Report> compare(Session &session, const Reference &reference,
                       double tolerance) {
  Report report;
  report.tolerance = tolerance;
  for (const Sequence &sequence : reference.sequences) {
    FORESIGHT_TRY(Finding finding, compareLogits(session, sequence));
    report.findings.push_back(std::move(finding));
  }
  for (const Continuation &next : reference.continuations) {
    FORESIGHT_TRY(Finding finding, compareTokens(session, next, tolerance));
    report.findings.push_back(std::move(finding));
  }
  return report;
}

} // namespace foresight::verify
