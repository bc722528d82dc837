//===- ManifestReader.cpp - Reading manifest members ----------------------===//
#include "ManifestReader.h"

#include <cmath>

namespace foresight {

void MemberReader::fail(const std::string &rule) {
  if (status.ok())
    status = makeError(ErrorCode::BadBundle, object.where, ": ", rule);
}

void MemberReader::check(const char *key, int64_t value, int64_t low,
                         int64_t high) {
  if (status.ok() && (value < low || value > high))
    status = makeError(ErrorCode::BadBundle, object.where, ": '", key, "' is ",
                       value, " but must be in ", low, "..", high);
}

MemberReader &MemberReader::get(const char *key, int64_t &to, int64_t low,
                                int64_t high) {
  get(key, to);
  check(key, to, low, high);
  return *this;
}

MemberReader &MemberReader::getOr(const char *key, int64_t &to, int64_t low,
                                  int64_t high) {
  getOr(key, to);
  check(key, to, low, high);
  return *this;
}

MemberReader &MemberReader::getFinite(const char *key, double &to) {
  get(key, to);
  if (!std::isfinite(to))
    fail(std::string("'") + key + "' is not a finite number");
  return *this;
}

const Json *MemberReader::objectAt(const char *key) {
  if (!status.ok())
    return nullptr;
  auto found = readObject(object, key);
  if (found.ok())
    return *found;
  status = std::move(found).error();
  return nullptr;
}

const Json *MemberReader::arrayAt(const char *key) {
  if (!status.ok())
    return nullptr;
  auto found = readArray(object, key);
  if (found.ok())
    return *found;
  status = std::move(found).error();
  return nullptr;
}

bool MemberReader::has(const char *key) const {
  return object.value.is_object() && object.value.contains(key) &&
         !object.value.at(key).is_null();
}

} // namespace foresight
