//===- StopStrings.h - Ending text where a string occurs --------*- C++ -*-===//
#ifndef FORESIGHT_TEXT_STOPSTRINGS_H
#define FORESIGHT_TEXT_STOPSTRINGS_H

#include <string>
#include <string_view>
#include <vector>

namespace foresight::text {

/// Looks for strings in text that comes in pieces and holds back what may be
/// the start of one. The text given out ends before the first string found.
class StopStrings {
public:
  /// Empty strings are left out.
  explicit StopStrings(std::vector<std::string> strings);

  /// The text that can be shown once `piece` has come.
  std::string push(std::string_view piece);
  /// What was held back, when no more text comes.
  std::string finish();
  /// Whether one of the strings was found; `push` gives nothing afterwards.
  bool stopped() const { return found; }

private:
  std::vector<std::string> strings;
  size_t longest = 0;
  std::string held;
  bool found = false;
};

} // namespace foresight::text
#endif
