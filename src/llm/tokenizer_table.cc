// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/tokenizer_table.h"

#include <algorithm>
#include <array>
#include <variant>

#include "base/error.h"

namespace kvant {
namespace {

constexpr std::size_t kMaxVocab = 1 << 24;

// Names of control tokens that end an answer in the models that kvant knows.
constexpr std::array<std::string_view, 9> kEndNames = {
    "<|im_end|>",    "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>",
    "<end_of_turn>", "<EOT>",      "</s>"};

void FindEnds(const GgufFile& file, TokenTable& table) {
  table.bos = FindTokenId(file, "tokenizer.ggml.bos_token_id", table.size());
  table.eos = FindTokenId(file, "tokenizer.ggml.eos_token_id", table.size());
  table.ends.assign(table.size(), false);
  for (const auto& id : {table.eos, FindTokenId(file, "tokenizer.ggml.eot_token_id", table.size()),
                         FindTokenId(file, "tokenizer.ggml.eom_token_id", table.size())}) {
    if (id) table.ends[static_cast<std::size_t>(*id)] = true;
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.types[i] == TokenType::kControl &&
        std::find(kEndNames.begin(), kEndNames.end(), table.bytes[i]) != kEndNames.end()) {
      table.ends[i] = true;
    }
  }
}

}  // namespace

template <typename T>
const std::vector<T>& VocabularyArray(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.Find(key);
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  const auto* items = array == nullptr ? nullptr : std::get_if<std::vector<T>>(&array->items);
  if (items == nullptr) {
    Fail(ErrorCode::kCorruptData,
         "{}: '{}' is missing or of another kind; the vocabulary is incomplete", file.path(), key);
  }
  return *items;
}

template const std::vector<std::string_view>& VocabularyArray(const GgufFile&, std::string_view);
template const std::vector<std::int64_t>& VocabularyArray(const GgufFile&, std::string_view);
template const std::vector<double>& VocabularyArray(const GgufFile&, std::string_view);

TokenTable TokenTable::Load(const GgufFile& file, const BytesOf& bytes_of) {
  const auto& tokens = VocabularyArray<std::string_view>(file, "tokenizer.ggml.tokens");
  if (tokens.empty() || tokens.size() > kMaxVocab) {
    Fail(ErrorCode::kCorruptData, "{}: the vocabulary has {} tokens; allowed are 1 to {}",
         file.path(), tokens.size(), kMaxVocab);
  }
  TokenTable table;
  table.path = file.path();
  table.types.assign(tokens.size(), TokenType::kNormal);
  if (file.Find("tokenizer.ggml.token_type") != nullptr) {
    table.types.clear();
    for (const std::int64_t type :
         VocabularyArray<std::int64_t>(file, "tokenizer.ggml.token_type")) {
      table.types.push_back(static_cast<TokenType>(type));
    }
  }
  if (table.types.size() != tokens.size()) {
    Fail(ErrorCode::kCorruptData, "{}: {} tokens but {} token types", file.path(), tokens.size(),
         table.types.size());
  }
  table.bytes.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    table.bytes.push_back(bytes_of(tokens[i], table.types[i], static_cast<TokenId>(i)));
  }
  FindEnds(file, table);
  return table;
}

std::optional<TokenId> FindTokenId(const GgufFile& file, std::string_view key,
                                   std::size_t n_vocab) {
  if (file.Find(key) == nullptr) return std::nullopt;
  const std::int64_t id = file.GetInt(key);
  if (id < 0 || static_cast<std::size_t>(id) >= n_vocab) {
    Fail(ErrorCode::kCorruptData, "{}: {} is {}; the vocabulary has tokens 0 to {}", file.path(),
         key, id, n_vocab - 1);
  }
  return static_cast<TokenId>(id);
}

void AddToIndex(const TokenTable& table, TokenId id, TokenIndex& index) {
  const auto [place, added] = index.emplace(table.BytesAt(id), id);
  if (!added) {
    Fail(ErrorCode::kCorruptData, "{}: tokens {} and {} are the same text", table.path,
         place->second, id);
  }
}

}  // namespace kvant
