//===- ManifestReader.h - Reading manifest members --------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_MANIFESTREADER_H
#define FORESIGHT_RUNTIME_MANIFESTREADER_H

#include "foresight/runtime/Manifest.h"
#include "foresight/support/Json.h"

namespace foresight {

/// Sizes and offsets beyond this are damage; sums of two of them fit int64_t.
constexpr int64_t kLargestSize = int64_t(1) << 48;

/// The host keeps a float of each token of the vocabulary and plans for each
/// number of tokens in a call: a damaged number must not ask for much of
/// either.
constexpr int64_t kLargestVocabulary = int64_t(1) << 24;
constexpr int64_t kMostTokens = int64_t(1) << 16;

/// Reads members of one object into variables. The first fault is kept, later
/// reads do nothing, so that a struct is read without a test a member.
class MemberReader {
public:
  MemberReader(const Json &value, std::string where)
      : object{value, std::move(where), ErrorCode::BadBundle} {
    if (!value.is_object())
      fail("must be an object");
  }

  template <typename T> MemberReader &get(const char *key, T &to) {
    if (status.ok())
      take(read<T>(object, key), to);
    return *this;
  }
  template <typename T> MemberReader &getOr(const char *key, T &to) {
    if (status.ok())
      take(readOr<T>(object, key, to), to);
    return *this;
  }
  /// A whole number in [low, high].
  MemberReader &get(const char *key, int64_t &to, int64_t low, int64_t high);
  MemberReader &getOr(const char *key, int64_t &to, int64_t low, int64_t high);
  /// A number that must be there and finite.
  MemberReader &getFinite(const char *key, double &to);

  /// The member if it is an object or an array as asked, null after a fault.
  const Json *objectAt(const char *key);
  const Json *arrayAt(const char *key);
  bool has(const char *key) const;

  void fail(const std::string &rule);
  bool ok() const { return status.ok(); }
  Status finish() { return std::move(status); }
  const std::string &where() const { return object.where; }

private:
  template <typename T> void take(Result<T> value, T &to) {
    if (value.ok())
      to = std::move(*value);
    else
      status = std::move(value).error();
  }
  void check(const char *key, int64_t value, int64_t low, int64_t high);

  JsonObject object;
  Status status;
};

/// Checks of what several parts of a manifest say about each other.
Status checkManifest(const Manifest &manifest, const std::string &where,
                     uint64_t weightsBytes);

} // namespace foresight
#endif
