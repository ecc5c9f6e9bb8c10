// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What every tokenizer reads of a GGUF file: the tokens, their kinds, and which of them begin and
// end texts. It cuts no text; tokenizer_model.h does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llm/gguf.h"
#include "llm/tokenizer.h"

namespace kvant {

/// Values of tokenizer.ggml.token_type that mean something here; others are ordinary tokens.
enum class TokenType : std::int64_t {
  kNormal = 1,
  kUnknown = 2,      // stands for what the vocabulary cannot express
  kControl = 3,      // <|im_start|>
  kUserDefined = 4,  // text that is always this one token
  kUnused = 5,       // a place that no text leads to
  kByte = 6,         // <0x41>: one byte, for text that has no other token
};

/// Is a token of this kind taken out of a text whole, before the text is cut into others?
constexpr bool IsSpecialType(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown ||
         type == TokenType::kUserDefined;
}

/// U+FFFD, for bytes that a byte-level vocabulary has no token for.
inline constexpr std::string_view kReplacementText = "\xef\xbf\xbd";

struct TokenTable {
  /// The bytes that a token stands for, from its text and kind in the file.
  using BytesOf = std::function<std::string(std::string_view text, TokenType type, TokenId id)>;

  std::string path;
  std::vector<std::string> bytes;  // [n_vocab]
  std::vector<TokenType> types;    // [n_vocab], all kNormal where the file has none
  std::vector<bool> ends;          // [n_vocab]: ends an answer
  std::optional<TokenId> bos, eos;

  /// Throws Error(kCorruptData) for missing or contradictory keys.
  static TokenTable Load(const GgufFile& file, const BytesOf& bytes_of);

  std::size_t size() const { return bytes.size(); }
  const std::string& BytesAt(TokenId id) const { return bytes[static_cast<std::size_t>(id)]; }
  TokenType TypeAt(TokenId id) const { return types[static_cast<std::size_t>(id)]; }
  bool IsSpecial(TokenId id) const { return IsSpecialType(TypeAt(id)); }
};

/// A token id under a key of the file; nothing where the key is absent. Throws Error(kCorruptData)
/// for an id outside the vocabulary.
std::optional<TokenId> FindTokenId(const GgufFile& file, std::string_view key, std::size_t n_vocab);

/// Tokens by the bytes that they stand for. The keys view the table's bytes.
using TokenIndex = std::unordered_map<std::string_view, TokenId>;

/// Adds one token. Throws Error(kCorruptData) where another one stands for the same bytes.
void AddToIndex(const TokenTable& table, TokenId id, TokenIndex& index);

/// The items of a metadata array of strings, integers or floats. Throws Error(kCorruptData) where
/// the key is absent or of another kind.
template <typename T>
const std::vector<T>& VocabularyArray(const GgufFile& file, std::string_view key);

extern template const std::vector<std::string_view>& VocabularyArray(const GgufFile&,
                                                                     std::string_view);
extern template const std::vector<std::int64_t>& VocabularyArray(const GgufFile&, std::string_view);
extern template const std::vector<double>& VocabularyArray(const GgufFile&, std::string_view);

}  // namespace kvant
