//===- Json.cpp - JSON without exceptions ---------------------------------===//

#include "foresight/support/Json.h"

#include "foresight/support/MappedFile.h"

#include <cmath>
#include <set>

using namespace foresight;

/// Far more than any file of a model has. Printing a value takes stack for each
/// of its levels.
static constexpr int kMaxDepth = 200;

namespace {

/// Looks at a text before a value is made of it. nlohmann's parser with a
/// callback could do both at once, but goes through all members of an object's
/// parent each time an object ends.
class Watcher : public nlohmann::json_sax<Json> {
public:
  bool deep = false;
  std::string twice, wrong;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t &) override { return true; }
  bool string(string_t &) override { return true; }
  bool binary(binary_t &) override { return true; }
  bool start_object(size_t) override {
    keys.emplace_back();
    return enter();
  }
  bool key(string_t &name) override {
    if (twice.empty() && !keys.back().insert(name).second)
      twice = name;
    return true;
  }
  bool end_object() override {
    keys.pop_back();
    --depth;
    return true;
  }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override {
    --depth;
    return true;
  }
  bool parse_error(size_t, const std::string &,
                   const Json::exception &exception) override {
    wrong = exception.what();
    return false;
  }

private:
  bool enter() {
    deep |= ++depth > kMaxDepth;
    return true;
  }

  int depth = 0;
  /// Of each object that is open.
  std::vector<std::set<std::string>> keys;
};

} // namespace

Result<Json> foresight::parseJson(std::string_view text,
                                  const std::string &source, ErrorCode code) {
  try {
    Watcher watcher;
    if (!Json::sax_parse(text.begin(), text.end(), &watcher)) {
      // "[json.exception.parse_error.101] parse error at line 1, ...".
      std::string what = watcher.wrong;
      if (size_t end = what.find("] "); end != std::string::npos)
        what = what.substr(end + 2);
      return makeError(code, source, ": not valid JSON: ", what);
    }
    if (watcher.deep)
      return makeError(code, source, ": is nested deeper than ", kMaxDepth,
                       " levels");
    if (!watcher.twice.empty())
      return makeError(code, source, ": the key \"", watcher.twice,
                       "\" occurs twice in one object");
    return Json::parse(text.begin(), text.end());
  } catch (const std::bad_alloc &) {
    return makeError(ErrorCode::Resource, source,
                     ": not enough memory to read this JSON");
  }
}

Result<Json> foresight::readJsonFile(const std::string &path, ErrorCode code) {
  FORESIGHT_TRY(MappedFile file, MappedFile::open(path));
  return parseJson({reinterpret_cast<const char *>(file.data()),
                    static_cast<size_t>(file.size())},
                   path, code);
}

std::string foresight::dumpJson(const Json &value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string foresight::dumpJson(const OrderedJson &value, int indent) {
  return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

namespace {

/// What a C++ type is called, and how a JSON value becomes one.
template <typename T> struct Reader;

template <> struct Reader<bool> {
  static constexpr const char *name = "true or false";
  static bool get(const Json &value, bool &out) {
    if (!value.is_boolean())
      return false;
    out = value.get<bool>();
    return true;
  }
};

template <> struct Reader<int64_t> {
  static constexpr const char *name = "a whole number";
  static bool get(const Json &value, int64_t &out) {
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      return false;
    if (value.is_number_float()) { // 3.0 is fine, 3.5 and 1e300 are not
      const double number = value.get<double>();
      if (std::trunc(number) != number || std::fabs(number) > 0x1p53)
        return false;
      out = static_cast<int64_t>(number);
      return true;
    }
    if (!value.is_number_integer())
      return false;
    out = value.get<int64_t>();
    return true;
  }
};

template <> struct Reader<double> {
  static constexpr const char *name = "a number";
  static bool get(const Json &value, double &out) {
    if (!value.is_number())
      return false;
    out = value.get<double>();
    return true;
  }
};

template <> struct Reader<std::string> {
  static constexpr const char *name = "a string";
  static bool get(const Json &value, std::string &out) {
    if (!value.is_string())
      return false;
    out = value.get_ref<const std::string &>();
    return true;
  }
};

template <typename T> struct Reader<std::vector<T>> {
  static constexpr const char *name =
      std::is_same_v<T, std::string> ? "an array of strings"
      : std::is_same_v<T, int64_t>   ? "an array of whole numbers"
                                     : "an array of numbers";
  static bool get(const Json &value, std::vector<T> &out) {
    if (!value.is_array())
      return false;
    out.resize(value.size());
    for (size_t i = 0; i < out.size(); ++i)
      if (!Reader<T>::get(value[i], out[i]))
        return false;
    return true;
  }
};

/// Enough of a value to recognise it in a message.
std::string excerpt(const Json &value) {
  std::string text = dumpJson(value);
  if (text.size() > 60)
    text = text.substr(0, 57) + "...";
  return text;
}

/// The member, or null if it is absent.
Result<const Json *> member(const JsonObject &object, std::string_view key) {
  if (!object.value.is_object())
    return makeError(object.code, object.where, ": expected an object, found ",
                     excerpt(object.value));
  auto found = object.value.find(std::string(key));
  return found == object.value.end() ? nullptr : &*found;
}

Error wrongType(const JsonObject &object, std::string_view key,
                const char *expected, const Json &found) {
  return makeError(object.code, object.where, ": \"", key, "\" must be ",
                   expected, ", found ", excerpt(found));
}

Error missing(const JsonObject &object, std::string_view key,
              const char *expected) {
  return makeError(object.code, object.where, ": \"", key,
                   "\" is missing; expected ", expected);
}

} // namespace

template <typename T>
Result<T> foresight::read(const JsonObject &object, std::string_view key) {
  FORESIGHT_TRY(const Json *found, member(object, key));
  if (!found)
    return missing(object, key, Reader<T>::name);
  T value{};
  if (!Reader<T>::get(*found, value))
    return wrongType(object, key, Reader<T>::name, *found);
  return value;
}

template <typename T>
Result<T> foresight::readOr(const JsonObject &object, std::string_view key,
                            T fallback) {
  FORESIGHT_TRY(const Json *found, member(object, key));
  if (!found || found->is_null())
    return fallback;
  return read<T>(object, key);
}

Result<const Json *> foresight::readObject(const JsonObject &object,
                                           std::string_view key) {
  FORESIGHT_TRY(const Json *found, member(object, key));
  if (!found)
    return missing(object, key, "an object");
  if (!found->is_object())
    return wrongType(object, key, "an object", *found);
  return found;
}

Result<const Json *> foresight::readArray(const JsonObject &object,
                                          std::string_view key) {
  FORESIGHT_TRY(const Json *found, member(object, key));
  if (!found)
    return missing(object, key, "an array");
  if (!found->is_array())
    return wrongType(object, key, "an array", *found);
  return found;
}

#define FORESIGHT_JSON_TYPE(T)                                                 \
  template Result<T> foresight::read<T>(const JsonObject &, std::string_view); \
  template Result<T> foresight::readOr<T>(const JsonObject &,                  \
                                          std::string_view, T);
FORESIGHT_JSON_TYPE(bool)
FORESIGHT_JSON_TYPE(int64_t)
FORESIGHT_JSON_TYPE(double)
FORESIGHT_JSON_TYPE(std::string)
FORESIGHT_JSON_TYPE(std::vector<int64_t>)
FORESIGHT_JSON_TYPE(std::vector<double>)
FORESIGHT_JSON_TYPE(std::vector<std::string>)
