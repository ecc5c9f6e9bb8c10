// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Byte-level BPE (tokenizer.ggml.model = "gpt2"): words cut by a pre-tokenizer, then merges by
// rank. Token texts are written in GPT-2's printable alphabet for bytes.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "llm/byte_pair.h"
#include "llm/gguf.h"
#include "llm/pre_tokenizer.h"
#include "llm/tokenizer_model.h"
#include "llm/tokenizer_table.h"

namespace kvant {

class ByteLevelModel final : public TokenizerModel {
 public:
  /// How this kind of vocabulary writes bytes.
  static TokenTable::BytesOf BytesOf();
  /// The table must outlive the model. Throws Error: kUnsupported for an unknown pre-tokenizer,
  /// kCorruptData for missing keys, merges of unknown tokens and missing single bytes.
  ByteLevelModel(const GgufFile& file, const TokenTable& table);

  void Encode(std::string_view fragment, TokenSink& out) const override;
  std::size_t CountInexpressible(std::string_view fragment) const override;
  bool prefixes_space() const override { return false; }
  bool default_add_bos() const override { return pre_tokenizer_.whole_words_first(); }

 private:
  void LoadMerges(const GgufFile& file);
  bool Expresses(std::string_view text) const;
  void EncodeWord(std::string_view word, std::vector<TokenId>& out) const;

  TokenIndex id_of_;  // ordinary tokens
  BytePairMerger merger_;
  PreTokenizer pre_tokenizer_;
};

}  // namespace kvant
