// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// SentencePiece's BPE (tokenizer.ggml.model = "llama"; Kudo and Richardson 2018, arXiv 1808.06226):
// from single characters on, the two neighbours whose joined text is the token of the highest score
// are joined, the leftmost ones where scores tie, until no two neighbours make a token. What is no
// token then is written byte by byte (<0x41>), or as the unknown token where the vocabulary has no
// tokens for bytes.
//
// Tokens write a space as U+2581. A U+2581 in a text is another character all the same: it goes
// through the byte tokens, where SentencePiece makes a space of it, so that decoding gives it back.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/gguf.h"
#include "llm/tokenizer_model.h"
#include "llm/tokenizer_table.h"

namespace kvant {

class SentencePieceModel final : public TokenizerModel {
 public:
  /// How this kind of vocabulary writes bytes. The function throws Error(kCorruptData) for a byte
  /// token that names no byte; `path` stands in the message.
  static TokenTable::BytesOf BytesOf(const std::string& path);
  /// The table must outlive the model. Throws Error(kCorruptData) for missing, surplus or NaN
  /// scores, tokens that are empty, too long or there twice, and a vocabulary that cannot express
  /// every text.
  SentencePieceModel(const GgufFile& file, const TokenTable& table);

  void Encode(std::string_view fragment, TokenSink& out) const override;
  std::size_t CountInexpressible(std::string_view fragment) const override;
  bool prefixes_space() const override { return add_space_prefix_; }
  bool default_add_bos() const override { return true; }

 private:
  // A word in pieces that are tokens or single characters.
  using Pieces = std::vector<std::string_view>;

  void AddPiece(const TokenTable& table, TokenId id);
  void AddByte(const TokenTable& table, TokenId id);
  void CheckCoverage(const GgufFile& file) const;
  std::string Prefixed(std::string_view fragment) const;
  std::vector<std::string_view> Words(std::string_view text) const;
  Pieces Merge(std::string_view word) const;
  bool HasBytes(std::string_view text) const;
  void EncodeWord(std::string_view word, std::vector<TokenId>& out) const;

  static std::size_t PairKey(char left, char right) {
    return (std::size_t{static_cast<unsigned char>(left)} << 8) | static_cast<unsigned char>(right);
  }

  TokenIndex id_of_;            // ordinary tokens
  std::vector<double> scores_;  // [n_vocab]
  std::size_t max_piece_bytes_ = 0;
  std::bitset<65536> inside_;  // [PairKey]: does a token have these two bytes side by side?
  std::array<TokenId, 256> byte_token_ = {};  // -1: none
  bool all_bytes_ = false;                    // have tokens
  std::optional<TokenId> unknown_;
  bool add_space_prefix_ = true;
};

}  // namespace kvant
