// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/byte_pair.h"

#include <array>
#include <queue>

namespace kvant {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
// Up to so many bytes, looking through all pairs for the best one beats keeping a queue.
constexpr std::size_t kShortWord = 32;

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

void BytePairMerger::EncodeShort(std::string_view word, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortWord> tokens;
  std::array<const Merge*, kShortWord> merges;  // [i]: of tokens i and i + 1
  std::size_t n = word.size();
  for (std::size_t i = 0; i < n; ++i) tokens[i] = byte_token_[static_cast<unsigned char>(word[i])];
  for (std::size_t i = 0; i + 1 < n; ++i) merges[i] = Find(tokens[i], tokens[i + 1]);
  for (;;) {
    std::size_t best = kNone;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      if (merges[i] == nullptr) continue;
      if (best == kNone || merges[i]->rank < merges[best]->rank) best = i;
    }
    if (best == kNone) break;
    tokens[best] = merges[best]->merged;
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      tokens[i] = tokens[i + 1];
      merges[i - 1] = merges[i];
    }
    --n;
    if (best > 0) merges[best - 1] = Find(tokens[best - 1], tokens[best]);
    if (best + 1 < n) merges[best] = Find(tokens[best], tokens[best + 1]);
  }
  out.insert(out.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n));
}

void BytePairMerger::Encode(std::string_view word, std::vector<TokenId>& out) const {
  if (word.size() <= kShortWord) return EncodeShort(word, out);
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
