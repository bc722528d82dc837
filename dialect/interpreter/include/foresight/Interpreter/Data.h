//===- Data.h - What values of the dialect are while they run ---*- C++ -*-===//
#ifndef FORESIGHT_INTERPRETER_DATA_H
#define FORESIGHT_INTERPRETER_DATA_H

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace foresight::interpreter {

/// Rows of numbers, or a vector (one row).
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> data;

  Matrix() = default;
  Matrix(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), data(rows * columns) {}

  double &at(int64_t r, int64_t c) { return data[r * columns + c]; }
  double at(int64_t r, int64_t c) const { return data[r * columns + c]; }
  std::span<const double> row(int64_t r) const {
    return std::span(data).subspan(r * columns, columns);
  }
};

/// Token ids or positions.
struct Ids {
  std::vector<int32_t> values;
};

/// One ascending set for each row.
struct IndexSets {
  int64_t universe = 0;
  std::vector<std::vector<int32_t>> rows;
};

/// Keys and values: element ((sequence * heads + head) * capacity + position) *
/// headDim + j.
struct KvCache {
  int64_t heads = 0, headDim = 0, capacity = 0;
  std::vector<double> keys, values;
  int64_t sequences = 1;

  int64_t offset(int64_t sequence, int64_t head, int64_t position) const {
    return ((sequence * heads + head) * capacity + position) * headDim;
  }
};

/// A low-bit copy, decoded. The bias has the slack of the record in it.
struct LowBitCopy {
  int64_t bits = 0;
  Matrix values;
  std::vector<double> bias, error;
};

struct Token {};

/// A value. Copies share what they hold, which never changes.
class Data {
public:
  Data() : held(Token{}) {}
  Data(Token token) : held(token) {}
  template <typename T>
  Data(T value) : held(std::make_shared<const T>(std::move(value))) {}

  /// The value as a T, or null if it is something else.
  template <typename T> const T *getIf() const {
    const auto *pointer = std::get_if<std::shared_ptr<const T>>(&held);
    return pointer ? pointer->get() : nullptr;
  }
  bool isToken() const { return std::holds_alternative<Token>(held); }

private:
  template <typename T> using Shared = std::shared_ptr<const T>;
  std::variant<Token, Shared<Matrix>, Shared<Ids>, Shared<IndexSets>,
               Shared<KvCache>, Shared<LowBitCopy>>
      held;
};

/// How far apart two values are.
struct Difference {
  double largest = 0; ///< infinite if one is NaN and the other is not
  std::string where;  ///< the place of it, or why they cannot be compared
  bool comparable = true;
};

/// Members of index sets that only one side has count as 1.
Difference compare(const Data &lhs, const Data &rhs);

/// A text for people: shape and numbers, at most `limit` elements a row.
std::string print(const Data &data, size_t limit);

} // namespace foresight::interpreter
#endif
