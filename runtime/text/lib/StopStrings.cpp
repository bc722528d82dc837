//===- StopStrings.cpp - Ending text where a string occurs ----------------===//
#include "foresight/text/StopStrings.h"

#include <algorithm>
#include <utility>

namespace foresight::text {

StopStrings::StopStrings(std::vector<std::string> given)
    : strings(std::move(given)) {
  std::erase(strings, "");
  for (const std::string &string : strings)
    longest = std::max(longest, string.size());
}

std::string StopStrings::push(std::string_view piece) {
  if (found)
    return {};
  held += piece;
  size_t end = std::string::npos;
  for (const std::string &string : strings)
    end = std::min(end, held.find(string));
  if (end != std::string::npos) {
    found = true;
    held.resize(end);
    return std::exchange(held, {});
  }

  // Keep the longest tail that some string starts with.
  size_t keep = std::min(held.size(), longest ? longest - 1 : 0);
  for (; keep > 0; --keep) {
    const auto tail = std::string_view(held).substr(held.size() - keep);
    if (std::any_of(strings.begin(), strings.end(), [&](const auto &string) {
          return std::string_view(string).starts_with(tail);
        }))
      break;
  }
  std::string out = held.substr(0, held.size() - keep);
  held.erase(0, held.size() - keep);
  return out;
}

std::string StopStrings::finish() { return std::exchange(held, {}); }

} // namespace foresight::text
