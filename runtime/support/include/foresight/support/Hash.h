//===- Hash.h - XXH3 --------------------------------------------*- C++ -*-===//
//
// Checksums of bundles (64 bits) and identity of weights by content (128 bits).
// Not cryptographic: they find damage and equality, not forgery.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_SUPPORT_HASH_H
#define FORESIGHT_SUPPORT_HASH_H

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace foresight {

struct Hash128 {
  uint64_t low = 0, high = 0;
  auto operator<=>(const Hash128 &) const = default;
};

uint64_t hash64(std::span<const std::byte> bytes);
Hash128 hash128(std::span<const std::byte> bytes);

/// The same hashes of bytes that arrive in pieces.
class Hasher {
public:
  Hasher();
  ~Hasher();
  Hasher(Hasher &&) noexcept;
  Hasher &operator=(Hasher &&) noexcept;

  void update(std::span<const std::byte> bytes);
  uint64_t digest64() const;
  Hash128 digest128() const;
  void reset();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace foresight
#endif
