//===- Hash.cpp - XXH3 ----------------------------------------------------===//

// Compiled in, so that a bundle with its runtime needs no library beside it.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "foresight/support/Hash.h"

#include <new>

using namespace foresight;

uint64_t foresight::hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Hash128 foresight::hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

struct Hasher::State {
  // XXH3 takes its input in the same way for both widths; they differ in the
  // digest only. The test compares with the hashes of whole arrays.
  XXH3_state_t xxh;
};

Hasher::Hasher() : state(std::make_unique<State>()) { reset(); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher &&) noexcept = default;
Hasher &Hasher::operator=(Hasher &&) noexcept = default;

void Hasher::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state->xxh, bytes.data(), bytes.size());
}

uint64_t Hasher::digest64() const { return XXH3_64bits_digest(&state->xxh); }

Hash128 Hasher::digest128() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state->xxh);
  return {hash.low64, hash.high64};
}

void Hasher::reset() { XXH3_128bits_reset(&state->xxh); }
