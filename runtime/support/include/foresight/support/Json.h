//===- Json.h - JSON without exceptions -------------------------*- C++ -*-===//
//
// nlohmann-json throws; these helpers do not. Members are read through `read`,
// whose error says which member of what is missing or has another type.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_SUPPORT_JSON_H
#define FORESIGHT_SUPPORT_JSON_H

#include "foresight/support/Result.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foresight {

using Json = nlohmann::json;
/// Keeps the order of insertion: for files that people read. Looking a key up
/// is linear, so it is for writing.
using OrderedJson = nlohmann::ordered_json;

/// Parses `text`; `source` names it in errors. A key that occurs twice in one
/// object is an error.
Result<Json> parseJson(std::string_view text, const std::string &source,
                       ErrorCode code = ErrorCode::BadInput);
Result<Json> readJsonFile(const std::string &path,
                          ErrorCode code = ErrorCode::BadInput);

/// Never fails: bytes that are not UTF-8 become U+FFFD. `indent` -1: one line.
std::string dumpJson(const Json &value, int indent = -1);
std::string dumpJson(const OrderedJson &value, int indent = -1);

/// An object and the words that name it in errors ("m.fsb: manifest: stage 3").
struct JsonObject {
  const Json &value;
  std::string where;
  ErrorCode code = ErrorCode::BadInput;
};

/// `T` is bool, int64_t, double, std::string, or a vector of int64_t, double or
/// std::string. A number that is not whole is no int64_t.
template <typename T>
Result<T> read(const JsonObject &object, std::string_view key);
/// The same; an absent or null member gives `fallback`.
template <typename T>
Result<T> readOr(const JsonObject &object, std::string_view key, T fallback);
/// A member that must be an object or an array.
Result<const Json *> readObject(const JsonObject &object, std::string_view key);
Result<const Json *> readArray(const JsonObject &object, std::string_view key);

#define FORESIGHT_JSON_TYPE(T)                                                 \
  extern template Result<T> read<T>(const JsonObject &, std::string_view);     \
  extern template Result<T> readOr<T>(const JsonObject &, std::string_view, T);
FORESIGHT_JSON_TYPE(bool)
FORESIGHT_JSON_TYPE(int64_t)
FORESIGHT_JSON_TYPE(double)
FORESIGHT_JSON_TYPE(std::string)
FORESIGHT_JSON_TYPE(std::vector<int64_t>)
FORESIGHT_JSON_TYPE(std::vector<double>)
FORESIGHT_JSON_TYPE(std::vector<std::string>)
#undef FORESIGHT_JSON_TYPE

} // namespace foresight
#endif
