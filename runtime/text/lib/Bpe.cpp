//===- Bpe.cpp - Byte pair merging ----------------------------------------===//
#include "Bpe.h"

#include <algorithm>
#include <tuple>

namespace foresight::text {

void Merger::propose(int32_t at) {
  if (at < 0 || chain[at].next < 0)
    return;
  const int32_t left = chain[at].id, right = chain[chain[at].next].id;
  const MergeTable::Merge *merge = table.find(left, right);
  if (!merge)
    return;
  heap.push_back({merge->rank, at, left, right, merge->id});
  std::push_heap(heap.begin(), heap.end(),
                 [](const Candidate &a, const Candidate &b) {
                   return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
                 });
}

void Merger::merge(std::vector<int32_t> &symbols) {
  const auto count = static_cast<int32_t>(symbols.size());
  chain.resize(symbols.size());
  heap.clear();
  for (int32_t i = 0; i < count; ++i)
    chain[i] = {symbols[i], i - 1, i + 1 < count ? i + 1 : -1};
  for (int32_t i = 0; i < count; ++i)
    propose(i);

  constexpr int32_t kGone = -1;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(),
                  [](const Candidate &a, const Candidate &b) {
                    return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
                  });
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol &left = chain[best.at];
    // A merge nearby may have changed the pair since it was proposed.
    if (left.id != best.left || left.next < 0 ||
        chain[left.next].id != best.right)
      continue;
    Symbol &right = chain[left.next];
    left.id = best.merged;
    left.next = right.next;
    right.id = kGone;
    if (left.next >= 0)
      chain[left.next].previous = best.at;
    propose(left.previous);
    propose(best.at);
  }

  symbols.clear();
  for (int32_t i = 0; i >= 0 && count > 0; i = chain[i].next)
    symbols.push_back(chain[i].id);
}

} // namespace foresight::text
