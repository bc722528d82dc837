//===- Data.cpp - Comparing and printing values ---------------------------===//

#include "foresight/Interpreter/Data.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace foresight::interpreter;

namespace {

/// Compares numbers one by one; `place` says where number i is.
template <typename Place>
void compareNumbers(std::span<const double> lhs, std::span<const double> rhs,
                    Difference &difference, Place &&place) {
  for (size_t i = 0; i < lhs.size(); ++i) {
    // Equal infinities and NaN on both sides are no difference.
    if (lhs[i] == rhs[i] || (std::isnan(lhs[i]) && std::isnan(rhs[i])))
      continue;
    double apart = std::fabs(lhs[i] - rhs[i]);
    if (std::isnan(apart))
      apart = HUGE_VAL;
    if (apart > difference.largest) {
      difference.largest = apart;
      difference.where = place(i);
    }
  }
}

Difference cannot(std::string why) { return {HUGE_VAL, std::move(why), false}; }

std::string shape(const Matrix &m) {
  return std::to_string(m.rows) + "x" + std::to_string(m.columns);
}

Difference compare(const Matrix &a, const Matrix &b) {
  if (a.rows != b.rows || a.columns != b.columns)
    return cannot("shapes are " + shape(a) + " and " + shape(b));
  Difference difference;
  compareNumbers(a.data, b.data, difference, [&](size_t i) {
    return "[" + std::to_string(i / a.columns) + ", " +
           std::to_string(i % a.columns) + "]";
  });
  return difference;
}

Difference compare(const IndexSets &a, const IndexSets &b) {
  if (a.universe != b.universe || a.rows.size() != b.rows.size())
    return cannot("sets are of other universes or tokens");
  for (size_t t = 0; t < a.rows.size(); ++t) {
    std::vector<int32_t> only;
    std::set_symmetric_difference(a.rows[t].begin(), a.rows[t].end(),
                                  b.rows[t].begin(), b.rows[t].end(),
                                  std::back_inserter(only));
    if (!only.empty())
      return {1,
              "member " + std::to_string(only[0]) + " of token " +
                  std::to_string(t) + " is in one set only",
              true};
  }
  return {};
}

Difference compare(const KvCache &a, const KvCache &b) {
  if (a.sequences != b.sequences || a.heads != b.heads ||
      a.headDim != b.headDim || a.capacity != b.capacity)
    return cannot("caches have other shapes");
  Difference difference;
  auto place = [&](const char *what) {
    return [&a, what](size_t i) {
      const int64_t element = static_cast<int64_t>(i);
      const int64_t head = element / a.headDim / a.capacity;
      return std::string(what) +
             (a.sequences > 1
                  ? " of sequence " + std::to_string(head / a.heads) + ","
                  : std::string()) +
             " of head " + std::to_string(head % a.heads) + ", position " +
             std::to_string(element / a.headDim % a.capacity);
    };
  };
  compareNumbers(a.keys, b.keys, difference, place("keys"));
  compareNumbers(a.values, b.values, difference, place("values"));
  return difference;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value == 0 ? 0.0 : value);
  return text;
}

template <typename Range, typename Fn>
std::string list(const Range &range, size_t limit, Fn &&text) {
  std::string result = "[";
  size_t count = 0;
  for (const auto &element : range) {
    if (count == limit) {
      result += ", ...";
      break;
    }
    result += (count++ ? ", " : "") + text(element);
  }
  return result + "]";
}

std::string integer(int32_t value) { return std::to_string(value); }

} // namespace

Difference foresight::interpreter::compare(const Data &lhs, const Data &rhs) {
  if (lhs.isToken() && rhs.isToken())
    return {};
  if (const auto *a = lhs.getIf<Matrix>())
    if (const auto *b = rhs.getIf<Matrix>())
      return ::compare(*a, *b);
  if (const auto *a = lhs.getIf<IndexSets>())
    if (const auto *b = rhs.getIf<IndexSets>())
      return ::compare(*a, *b);
  if (const auto *a = lhs.getIf<KvCache>())
    if (const auto *b = rhs.getIf<KvCache>())
      return ::compare(*a, *b);
  if (const auto *a = lhs.getIf<Ids>())
    if (const auto *b = rhs.getIf<Ids>())
      return a->values == b->values ? Difference{}
                                    : Difference{1, "ids differ", true};
  return cannot("values are of different kinds");
}

std::string foresight::interpreter::print(const Data &data, size_t limit) {
  if (const auto *m = data.getIf<Matrix>()) {
    std::string text = shape(*m);
    for (int64_t r = 0; r < m->rows; ++r)
      text += (m->rows > 1 ? "\n  " : " ") + list(m->row(r), limit, number);
    return text;
  }
  if (const auto *ids = data.getIf<Ids>())
    return "ids " + list(ids->values, limit, integer);
  if (const auto *sets = data.getIf<IndexSets>()) {
    std::string text = "sets of " + std::to_string(sets->universe);
    for (const std::vector<int32_t> &row : sets->rows)
      text +=
          " " + std::to_string(row.size()) + ": " + list(row, limit, integer);
    return text;
  }
  if (const auto *cache = data.getIf<KvCache>()) {
    double keys = 0, values = 0;
    for (double v : cache->keys)
      keys += v * v;
    for (double v : cache->values)
      values += v * v;
    return "cache of " + std::to_string(cache->heads) + " heads x " +
           std::to_string(cache->headDim) + ", norm of keys " +
           number(std::sqrt(keys)) + ", of values " + number(std::sqrt(values));
  }
  if (const auto *copy = data.getIf<LowBitCopy>())
    return std::to_string(copy->bits) + "-bit copy of " + shape(copy->values);
  return "token";
}
