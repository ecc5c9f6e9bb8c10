// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/tokenizer_specials.h"

#include "base/error.h"

namespace kvant {
namespace {

constexpr std::size_t kMaxSpecialBytes = 4096;

}  // namespace

SpecialTokens::SpecialTokens(const TokenTable& table) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& name = table.bytes[i];
    if (!table.IsSpecial(id) || name.empty()) continue;
    if (name.size() > kMaxSpecialBytes) {
      Fail(ErrorCode::kCorruptData,
           "{}: token {} is a special one of {} bytes; up to {} are allowed", table.path, id,
           name.size(), kMaxSpecialBytes);
    }
    Node node = 0;
    for (const char c : name) {
      Node& child = node == 0 ? first_[static_cast<unsigned char>(c)] : next_[Key(node, c)];
      if (child == 0) {
        child = static_cast<Node>(ends_.size());
        ends_.emplace_back();
      }
      node = child;
    }
    End& end = ends_[node];
    if (end.any < 0) end.any = id;
    if (end.user_defined < 0 && table.types[i] == TokenType::kUserDefined) end.user_defined = id;
  }
}

SpecialTokens::Match SpecialTokens::LongestAt(std::string_view text, bool parse_special) const {
  Match longest;
  Node node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 0) {
      node = first_[static_cast<unsigned char>(text[0])];
      if (node == 0) break;
    } else {
      const auto child = next_.find(Key(node, text[i]));
      if (child == next_.end()) break;
      node = child->second;
    }
    const TokenId id = parse_special ? ends_[node].any : ends_[node].user_defined;
    if (id >= 0) longest = {id, i + 1};
  }
  return longest;
}

std::vector<SpecialTokens::Fragment> SpecialTokens::Partition(std::string_view text,
                                                              bool parse_special) const {
  std::vector<Fragment> fragments;
  std::size_t begin = 0;  // of the text since the last special token
  for (std::size_t at = 0; at < text.size();) {
    const Match match = LongestAt(text.substr(at), parse_special);
    if (match.id < 0) {
      ++at;
      continue;
    }
    if (at > begin) fragments.push_back({.text = text.substr(begin, at - begin)});
    fragments.push_back({.text = text.substr(at, match.bytes), .special = match.id});
    at += match.bytes;
    begin = at;
  }
  if (begin < text.size()) fragments.push_back({.text = text.substr(begin)});
  return fragments;
}

}  // namespace kvant
