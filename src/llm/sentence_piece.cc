// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/sentence_piece.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <string>

#include "base/error.h"
#include "llm/gguf_parse.h"
#include "llm/utf8.h"

namespace kvant {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
// Each step of the merging reads a token's length of text, which would be much of a long one.
constexpr std::size_t kMaxPieceBytes = 1024;
constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581

std::string WithSpaces(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(kSpaceMark)) {
      bytes.push_back(' ');
      at += kSpaceMark.size();
    } else {
      bytes.push_back(text[at++]);
    }
  }
  return bytes;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte that "<0x41>" names; nothing for other texts.
std::optional<char> NamedByte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const int high = HexDigit(text[3]);
  const int low = HexDigit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>((high << 4) | low);
}

// A piece of the word at hand: neighbours, and where it stands. One that was joined to its left
// neighbour has no bytes.
struct Symbol {
  std::size_t begin, bytes;
  std::size_t previous, next;
};

// Two neighbours that may be joined; stale once one of them has changed.
struct Candidate {
  double score;
  std::size_t left, right;
  std::size_t bytes;  // of both

  bool operator<(const Candidate& other) const {  // the queue gives the largest first
    return score != other.score ? score < other.score : left > other.left;
  }
};

std::vector<Symbol> Characters(std::string_view word) {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (std::size_t at = 0; at < word.size();) {
    const Utf8Sequence sequence = ReadUtf8(word.substr(at));
    const std::size_t bytes = sequence.valid ? sequence.bytes : 1;
    const std::size_t i = symbols.size();
    symbols.push_back({at, bytes, i == 0 ? kNone : i - 1, i + 1});
    at += bytes;
  }
  if (!symbols.empty()) symbols.back().next = kNone;
  return symbols;
}

}  // namespace

TokenTable::BytesOf SentencePieceModel::BytesOf(const std::string& path) {
  return [path](std::string_view text, TokenType type, TokenId id) {
    if (type == TokenType::kControl || type == TokenType::kUnknown) return std::string(text);
    if (type != TokenType::kByte) return WithSpaces(text);
    const std::optional<char> byte = NamedByte(text);
    if (!byte) {
      Fail(ErrorCode::kCorruptData,
           "{}: token {} ({}) stands for a byte; the names of bytes are <0x00> to <0xFF>", path, id,
           gguf::Quoted(text));
    }
    return std::string(1, *byte);
  };
}

SentencePieceModel::SentencePieceModel(const GgufFile& file, const TokenTable& table)
    : scores_(VocabularyArray<double>(file, "tokenizer.ggml.scores")),
      add_space_prefix_(file.GetBoolOr("tokenizer.ggml.add_space_prefix", true)) {
  if (scores_.size() != table.size()) {
    Fail(ErrorCode::kCorruptData, "{}: {} tokens but {} scores", file.path(), table.size(),
         scores_.size());
  }
  byte_token_.fill(-1);
  unknown_ = FindTokenId(file, "tokenizer.ggml.unknown_token_id", table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (std::isnan(scores_[i])) {
      Fail(ErrorCode::kCorruptData, "{}: the score of token {} is not a number", file.path(), id);
    }
    switch (table.types[i]) {
      case TokenType::kControl:
      case TokenType::kUserDefined:
      case TokenType::kUnused:
        break;
      case TokenType::kUnknown:
        if (!unknown_) unknown_ = id;
        break;
      case TokenType::kByte:
        AddByte(table, id);
        break;
      default:
        AddPiece(table, id);
    }
  }
  all_bytes_ =
      std::all_of(byte_token_.begin(), byte_token_.end(), [](TokenId id) { return id >= 0; });
  CheckCoverage(file);
}

void SentencePieceModel::AddByte(const TokenTable& table, TokenId id) {
  TokenId& place = byte_token_[static_cast<unsigned char>(table.BytesAt(id)[0])];
  if (place >= 0) {
    Fail(ErrorCode::kCorruptData, "{}: tokens {} and {} are the same byte", table.path, place, id);
  }
  place = id;
}

void SentencePieceModel::AddPiece(const TokenTable& table, TokenId id) {
  const std::string& bytes = table.BytesAt(id);
  if (bytes.empty() || bytes.size() > kMaxPieceBytes) {
    Fail(ErrorCode::kCorruptData, "{}: token {} has {} bytes; allowed are 1 to {}", table.path, id,
         bytes.size(), kMaxPieceBytes);
  }
  AddToIndex(table, id, id_of_);
  max_piece_bytes_ = std::max(max_piece_bytes_, bytes.size());
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) inside_.set(PairKey(bytes[i], bytes[i + 1]));
}

void SentencePieceModel::CheckCoverage(const GgufFile& file) const {
  if (!all_bytes_ && !unknown_) {
    Fail(ErrorCode::kCorruptData,
         "{}: the vocabulary has neither a token for every byte nor an unknown token; it needs one "
         "of the two to express every text",
         file.path());
  }
  if (add_space_prefix_ && !id_of_.contains(" ") && byte_token_[' '] < 0) {
    Fail(ErrorCode::kCorruptData,
         "{}: the vocabulary has no token for a space, which tokenizer.ggml.add_space_prefix wants "
         "in front of every text",
         file.path());
  }
}

// Cuts where no join can ever cross: no token has the two bytes at the cut side by side. Words of
// most languages come out, and words repeat.
std::vector<std::string_view> SentencePieceModel::Words(std::string_view text) const {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Sequence sequence = ReadUtf8(text.substr(at));
    if (at > begin && !inside_[PairKey(text[at - 1], text[at])]) {
      words.push_back(text.substr(begin, at - begin));
      begin = at;
    }
    at += sequence.valid ? sequence.bytes : 1;
  }
  if (begin < text.size()) words.push_back(text.substr(begin));
  return words;
}

SentencePieceModel::Pieces SentencePieceModel::Merge(std::string_view word) const {
  std::vector<Symbol> symbols = Characters(word);
  std::priority_queue<Candidate> queue;
  const auto consider = [&](std::size_t left, std::size_t right) {
    if (left == kNone || right == kNone) return;
    const std::size_t bytes = symbols[left].bytes + symbols[right].bytes;
    if (bytes > max_piece_bytes_) return;
    const auto found = id_of_.find(word.substr(symbols[left].begin, bytes));
    if (found == id_of_.end()) return;
    queue.push({scores_[static_cast<std::size_t>(found->second)], left, right, bytes});
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    // Symbols only grow until they are joined away, so equal sizes mean that neither has changed.
    if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != best.bytes) continue;
    left.bytes = best.bytes;
    right.bytes = 0;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
  Pieces pieces;
  for (std::size_t i = symbols.empty() ? kNone : 0; i != kNone; i = symbols[i].next) {
    pieces.push_back(word.substr(symbols[i].begin, symbols[i].bytes));
  }
  return pieces;
}

bool SentencePieceModel::HasBytes(std::string_view text) const {
  return std::all_of(text.begin(), text.end(),
                     [this](char c) { return byte_token_[static_cast<unsigned char>(c)] >= 0; });
}

void SentencePieceModel::EncodeWord(std::string_view word, std::vector<TokenId>& out) const {
  for (const std::string_view piece : Merge(word)) {
    if (const auto found = id_of_.find(piece); found != id_of_.end()) {
      out.push_back(found->second);
    } else if (HasBytes(piece)) {
      for (const char c : piece) out.push_back(byte_token_[static_cast<unsigned char>(c)]);
    } else {
      out.push_back(*unknown_);  // CheckCoverage: it is there where bytes are missing
    }
  }
}

std::string SentencePieceModel::Prefixed(std::string_view fragment) const {
  std::string text(add_space_prefix_ ? " " : "");
  text += fragment;
  return text;
}

void SentencePieceModel::Encode(std::string_view fragment, TokenSink& out) const {
  const std::string prefixed = Prefixed(fragment);
  for (const std::string_view word : Words(prefixed)) {
    out.AddWord(word, [this](std::string_view text, auto& ids) { EncodeWord(text, ids); });
  }
}

std::size_t SentencePieceModel::CountInexpressible(std::string_view fragment) const {
  if (all_bytes_) return 0;
  std::size_t n = 0;
  const std::string prefixed = Prefixed(fragment);
  for (const std::string_view word : Words(prefixed)) {
    for (const std::string_view piece : Merge(word)) {
      if (!id_of_.contains(piece) && !HasBytes(piece)) n += piece.size();
    }
  }
  return n;
}

}  // namespace kvant
