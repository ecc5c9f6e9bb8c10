// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Finds tokens that are taken out of a text whole: control tokens written out in it and
// user-defined ones. At each place the longest token that begins there is taken, then the search
// goes on behind it, as the models' own tokenizers do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llm/tokenizer.h"
#include "llm/tokenizer_table.h"

namespace kvant {

class SpecialTokens {
 public:
  /// A text between special tokens (never empty), or a special token.
  struct Fragment {
    std::string_view text;
    TokenId special = -1;
  };

  /// Throws Error(kCorruptData) for a special token longer than 4,096 bytes, because a search costs
  /// the length of the text times that of the longest token.
  explicit SpecialTokens(const TokenTable& table);

  /// Covers the text in order. Without parse_special only user-defined tokens are found.
  std::vector<Fragment> Partition(std::string_view text, bool parse_special) const;

 private:
  using Node = std::uint32_t;
  // Ids of the token that ends at a node; -1 where none does.
  struct End {
    TokenId any = -1;
    TokenId user_defined = -1;
  };
  struct Match {
    TokenId id = -1;
    std::size_t bytes = 0;
  };
  static std::uint64_t Key(Node node, char c) {
    return (std::uint64_t{node} << 8) | static_cast<unsigned char>(c);
  }
  Match LongestAt(std::string_view text, bool parse_special) const;

  // A trie; node 0 is the root. The root's children stand apart, because most searches end there.
  std::array<Node, 256> first_ = {};
  std::unordered_map<std::uint64_t, Node> next_;
  std::vector<End> ends_ = std::vector<End>(1);  // [node]
};

}  // namespace kvant
