// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/byte_pair.h"

#include <algorithm>
#include <queue>

namespace kvant {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// A piece of the word at hand: a token and its neighbours. A merged-away piece has token -1.
struct Piece {
  TokenId token;
  std::size_t previous, next;
};

// A pair that may be merged; stale once one of its tokens has changed.
struct Candidate {
  std::uint32_t rank;
  std::size_t left;
  TokenId left_token, right_token, merged;

  bool operator<(const Candidate& other) const {  // the queue gives the largest first
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

void BytePairMerger::AddMerge(TokenId left, TokenId right, TokenId merged, std::uint32_t rank) {
  merges_.try_emplace(Key(left, right), Merge{rank, merged});
}

const BytePairMerger::Merge* BytePairMerger::Find(TokenId left, TokenId right) const {
  const auto found = merges_.find(Key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairMerger::Encode(std::string_view word, std::vector<TokenId>& out) const {
  std::vector<Piece> pieces(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) {
    pieces[i] = {byte_token_[static_cast<unsigned char>(word[i])], i == 0 ? kNone : i - 1,
                 i + 1 == word.size() ? kNone : i + 1};
  }
  std::priority_queue<Candidate> queue;
  const auto consider = [&](std::size_t left) {
    if (left == kNone || pieces[left].next == kNone) return;
    const TokenId a = pieces[left].token;
    const TokenId b = pieces[pieces[left].next].token;
    if (const Merge* merge = Find(a, b)) queue.push({merge->rank, left, a, b, merge->merged});
  };
  for (std::size_t i = 0; i + 1 < word.size(); ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Piece& left = pieces[best.left];
    if (left.token != best.left_token || left.next == kNone) continue;
    Piece& right = pieces[left.next];
    if (right.token != best.right_token) continue;
    left.token = best.merged;
    right.token = -1;
    left.next = right.next;
    if (left.next != kNone) pieces[left.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (std::size_t i = word.empty() ? kNone : 0; i != kNone; i = pieces[i].next) {
    out.push_back(pieces[i].token);
  }
}

}  // namespace kvant
