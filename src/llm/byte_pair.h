// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Byte-pair merges (Sennrich et al. 2016, arXiv 1508.07909) over raw bytes: the pair with the
// lowest rank is merged first, the leftmost one where ranks tie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llm/tokenizer.h"

namespace kvant {

class BytePairMerger {
 public:
  /// The token of each single byte; -1 where the vocabulary has none.
  void SetByteToken(unsigned char byte, TokenId id) { byte_token_[byte] = id; }
  /// Rank r merges `left` and `right` into `merged`. The first rank of a pair counts.
  void AddMerge(TokenId left, TokenId right, TokenId merged, std::uint32_t rank);

  /// Appends the tokens of a word. Every byte of it must have a token. O(n log n).
  void Encode(std::string_view word, std::vector<TokenId>& out) const;
  bool HasByte(unsigned char byte) const { return byte_token_[byte] >= 0; }

 private:
  struct Merge {
    std::uint32_t rank;
    TokenId merged;
  };
  static std::uint64_t Key(TokenId left, TokenId right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
  }
  void EncodeShort(std::string_view word, std::vector<TokenId>& out) const;
  const Merge* Find(TokenId left, TokenId right) const;

  std::unordered_map<std::uint64_t, Merge> merges_;
  std::vector<TokenId> byte_token_ = std::vector<TokenId>(256, -1);
};

}  // namespace kvant
