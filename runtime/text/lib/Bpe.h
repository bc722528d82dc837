//===- Bpe.h - Byte pair merging --------------------------------*- C++ -*-===//
#ifndef FORESIGHT_TEXT_LIB_BPE_H
#define FORESIGHT_TEXT_LIB_BPE_H

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace foresight::text {

/// The merges of a tokenizer: which two ids become which one, and how early.
class MergeTable {
public:
  struct Merge {
    int32_t rank; ///< lower merges first
    int32_t id;
  };

  void reserve(size_t count) { merges.reserve(count); }
  /// A pair that occurs again replaces the earlier one.
  void insert(int32_t left, int32_t right, Merge merge) {
    merges.insert_or_assign(key(left, right), merge);
  }
  const Merge *find(int32_t left, int32_t right) const {
    const auto found = merges.find(key(left, right));
    return found == merges.end() ? nullptr : &found->second;
  }

private:
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 |
           static_cast<uint32_t>(right);
  }
  struct Hash {
    size_t operator()(uint64_t key) const {
      key *= 0x9E3779B97F4A7C15u;
      return key ^ key >> 32;
    }
  };
  std::unordered_map<uint64_t, Merge, Hash> merges;
};

/// Merges the symbols of one word until no merge applies: always the pair of
/// lowest rank, the leftmost of equals. O(n log n) in the length of the word.
class Merger {
public:
  explicit Merger(const MergeTable &table) : table(table) {}
  /// Replaces `symbols` with the merged ids.
  void merge(std::vector<int32_t> &symbols);

private:
  struct Symbol {
    int32_t id;
    int32_t previous, next; ///< -1 at the ends
  };
  struct Candidate {
    int32_t rank;
    int32_t at; ///< index of the left symbol
    int32_t left, right, merged;
  };
  void propose(int32_t at);

  const MergeTable &table;
  // Kept from word to word so that a word allocates nothing.
  std::vector<Symbol> chain;
  std::vector<Candidate> heap;
};

} // namespace foresight::text
#endif
