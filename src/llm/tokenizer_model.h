// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What differs between kinds of vocabularies: how text without special tokens becomes ids.
// Tokenizer owns one model and does the rest. byte_level.h and sentence_piece.h implement it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llm/tokenizer.h"

namespace kvant {

/// The ids of one text in the making. Words repeat, so each short one is encoded once.
class TokenSink {
 public:
  void Add(TokenId id) { ids_.push_back(id); }
  /// Appends the ids of a word that depend on the word alone; `encode(word, ids)` is called where
  /// they are not known yet.
  template <typename EncodeWord>
  void AddWord(std::string_view word, const EncodeWord& encode) {
    if (const auto hit = known_.find(word); hit != known_.end()) {
      const auto [begin, end] = hit->second;
      for (std::size_t i = begin; i < end; ++i) ids_.push_back(ids_[i]);
      return;
    }
    const std::size_t begin = ids_.size();
    encode(word, ids_);
    if (word.size() <= kKnownWordBytes && known_.size() < kMaxKnownWords) {
      known_.emplace(word, std::pair{begin, ids_.size()});
    }
  }
  std::vector<TokenId> Take() { return std::move(ids_); }

 private:
  static constexpr std::size_t kKnownWordBytes = 32;  // longer words hardly repeat
  static constexpr std::size_t kMaxKnownWords = 1 << 16;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  std::vector<TokenId> ids_;
  // Where in ids_ the ids of a word stand.
  std::unordered_map<std::string, std::pair<std::size_t, std::size_t>, Hash, std::equal_to<>>
      known_;
};

class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;
  /// Appends the ids of a fragment, that is text without special tokens. Thread-safe.
  virtual void Encode(std::string_view fragment, TokenSink& out) const = 0;
  /// Bytes of a fragment that the vocabulary has no token for.
  virtual std::size_t CountInexpressible(std::string_view fragment) const = 0;
  /// Does Encode put a space in front of every fragment? Decoding then takes it away.
  virtual bool prefixes_space() const = 0;
  /// Where the file does not say whether texts begin with BOS.
  virtual bool default_add_bos() const = 0;
};

}  // namespace kvant
