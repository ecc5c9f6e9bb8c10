// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/byte_level.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "llm/gguf_parse.h"
#include "llm/utf8.h"

namespace kvant {
namespace {

// GPT-2's printable alphabet for bytes: visible Latin-1 characters stand for themselves, the other
// 68 bytes for the code points from 256 on, in order.
std::array<std::uint32_t, 256> ByteAlphabet() {
  std::array<std::uint32_t, 256> alphabet = {};
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool visible =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    alphabet[byte] = visible ? byte : next++;
  }
  return alphabet;
}

// Token text in that alphabet to raw bytes; text with other characters is taken literally.
class AlphabetDecoder {
 public:
  AlphabetDecoder() {
    const auto alphabet = ByteAlphabet();
    byte_of_.fill(-1);
    for (int byte = 0; byte < 256; ++byte)
      byte_of_[alphabet[static_cast<std::size_t>(byte)]] = byte;
  }

  std::string Bytes(std::string_view text) const {
    std::string bytes;
    for (std::string_view rest = text; !rest.empty();) {
      const Utf8Sequence sequence = ReadUtf8(rest);
      const bool known = sequence.valid && sequence.code_point < byte_of_.size() &&
                         byte_of_[sequence.code_point] >= 0;
      if (!known) return std::string(text);
      bytes.push_back(static_cast<char>(byte_of_[sequence.code_point]));
      rest.remove_prefix(sequence.bytes);
    }
    return bytes;
  }

 private:
  std::array<int, 512> byte_of_;
};

}  // namespace

TokenTable::BytesOf ByteLevelModel::BytesOf() {
  return [decoder = AlphabetDecoder()](std::string_view text, TokenType type, TokenId) {
    return IsSpecialType(type) ? std::string(text) : decoder.Bytes(text);
  };
}

// There is no safe default for the pre-tokenizer: with the wrong patterns a model reads other
// tokens than it learned.
ByteLevelModel::ByteLevelModel(const GgufFile& file, const TokenTable& table)
    : pre_tokenizer_(PreTokenizer::FromName(file.GetString("tokenizer.ggml.pre"))) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (table.IsSpecial(id)) continue;
    AddToIndex(table, id, id_of_);
    const std::string& bytes = table.bytes[i];
    if (bytes.size() == 1) merger_.SetByteToken(static_cast<unsigned char>(bytes[0]), id);
  }
  LoadMerges(file);
  if (!Expresses(kReplacementText)) {
    Fail(ErrorCode::kCorruptData,
         "{}: the vocabulary lacks single-byte tokens, even those of U+FFFD; byte-level BPE needs "
         "them",
         file.path());
  }
}

void ByteLevelModel::LoadMerges(const GgufFile& file) {
  const auto& merges = VocabularyArray<std::string_view>(file, "tokenizer.ggml.merges");
  const AlphabetDecoder decoder;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    // The alphabet has no space, so the first one after the first character separates.
    const std::size_t space = merges[rank].find(' ', 1);
    const auto fail = [&](std::string_view what) {
      Fail(ErrorCode::kCorruptData, "{}: merge {} ({}) {}", file.path(), rank,
           gguf::Quoted(merges[rank]), what);
    };
    if (space == std::string_view::npos) fail("is not a pair");
    const std::string left = decoder.Bytes(merges[rank].substr(0, space));
    const std::string right = decoder.Bytes(merges[rank].substr(space + 1));
    const auto left_id = id_of_.find(left);
    const auto right_id = id_of_.find(right);
    const auto merged_id = id_of_.find(left + right);
    if (left_id == id_of_.end() || right_id == id_of_.end() || merged_id == id_of_.end()) {
      fail("names a token that is not in the vocabulary");
    }
    merger_.AddMerge(left_id->second, right_id->second, merged_id->second,
                     static_cast<std::uint32_t>(rank));
  }
}

bool ByteLevelModel::Expresses(std::string_view text) const {
  return CountInexpressible(text) == 0;
}

std::size_t ByteLevelModel::CountInexpressible(std::string_view fragment) const {
  return static_cast<std::size_t>(std::count_if(fragment.begin(), fragment.end(), [this](char c) {
    return !merger_.HasByte(static_cast<unsigned char>(c));
  }));
}

void ByteLevelModel::Encode(std::string_view fragment, TokenSink& out) const {
  for (const std::string_view word : pre_tokenizer_.Split(fragment)) {
    out.AddWord(word, [this](std::string_view text, auto& ids) { EncodeWord(text, ids); });
  }
}

void ByteLevelModel::EncodeWord(std::string_view word, std::vector<TokenId>& out) const {
  if (pre_tokenizer_.whole_words_first()) {
    if (const auto found = id_of_.find(word); found != id_of_.end()) {
      out.push_back(found->second);
      return;
    }
  }
  if (Expresses(word)) return merger_.Encode(word, out);
  std::string expressible;
  for (const char c : word) {
    if (merger_.HasByte(static_cast<unsigned char>(c))) {
      expressible.push_back(c);
    } else {
      expressible += kReplacementText;
    }
  }
  merger_.Encode(expressible, out);
}

}  // namespace kvant
