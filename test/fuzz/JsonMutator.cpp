//===- JsonMutator.cpp - Changes of JSON that leave it JSON ---------------===//
//
// Bytes changed at random hardly ever leave a file that parses. Linked into a
// target, this changes the value of a member every other time.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "foresight/support/Json.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

using namespace foresight;
using namespace foresight::fuzz;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t largest);

namespace {

constexpr int64_t kNumbers[] = {-1,        0,
                                1,         2,
                                3,         5,
                                16,        31,
                                64,        255,
                                4095,      4096,
                                65536,     1 << 20,
                                1 << 24,   (1 << 28) + 1,
                                INT32_MAX, int64_t{INT32_MAX} + 1,
                                INT64_MAX, INT64_MIN};

class Mutation {
public:
  explicit Mutation(unsigned seed) : random(seed) {}

  void change(Json &root) {
    places.clear();
    collect(root);
    Json &at = *places[below(places.size())];
    switch (below(6)) {
    case 0: // something else that the file has
      at = Json(*places[below(places.size())]);
      return;
    case 1:
      at = kNumbers[below(std::size(kNumbers))];
      return;
    case 2:
      at = anything();
      return;
    case 3:
      return removeFrom(at);
    case 4:
      return repeat(at);
    default:
      if (at.is_number_integer())
        at = static_cast<int64_t>(at.get<uint64_t>() + below(5) - 2);
      else if (at.is_number())
        at = at.get<double>() * (static_cast<double>(below(9)) - 4);
      else if (at.is_boolean())
        at = !at.get<bool>();
      else
        at = anything();
    }
  }

private:
  size_t below(size_t limit) { return limit ? random() % limit : 0; }

  void collect(Json &value) {
    places.push_back(&value);
    if (value.is_structured())
      for (Json &member : value)
        collect(member);
  }

  Json anything() {
    const Json values[] = {
        nullptr, true,       1e300,         0.5,           "",
        "x",     "\xc4\xa0", Json::array(), Json::object()};
    return values[below(std::size(values))];
  }

  void removeFrom(Json &at) {
    if (!at.is_structured() || at.empty())
      return;
    auto it = at.begin();
    std::advance(it, static_cast<ptrdiff_t>(below(at.size())));
    at.erase(it);
  }

  /// An element or member once more.
  void repeat(Json &at) {
    if (!at.is_structured() || at.empty())
      return;
    auto it = at.begin();
    std::advance(it, static_cast<ptrdiff_t>(below(at.size())));
    const Json copy = *it;
    if (at.is_array())
      at.push_back(copy);
    else
      at[it.key() + std::to_string(below(3))] = copy;
  }

  std::minstd_rand random;
  std::vector<Json *> places;
};

} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t largest, unsigned seed) {
  // Only the first part of a tokenizer's input is JSON.
  std::string_view text = textOf(data, size);
  const size_t end = std::min(text.find('\0'), size);
  auto json = parseJson(text.substr(0, end), "input");
  if (seed % 2 == 0 || !json.ok())
    return LLVMFuzzerMutate(data, size, largest);
  Mutation(seed / 2).change(*json);
  const std::string changed = dumpJson(*json) + std::string(text.substr(end));
  if (changed.size() > largest)
    return LLVMFuzzerMutate(data, size, largest);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
