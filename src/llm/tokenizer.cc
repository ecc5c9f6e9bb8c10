// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/tokenizer.h"

#include "base/error.h"
#include "llm/byte_level.h"
#include "llm/gguf.h"
#include "llm/gguf_parse.h"
#include "llm/sentence_piece.h"
#include "llm/tokenizer_model.h"
#include "llm/tokenizer_specials.h"
#include "llm/tokenizer_table.h"

namespace kvant {

struct Tokenizer::Impl {
  explicit Impl(TokenTable loaded) : table(std::move(loaded)), specials(table) {}

  TokenTable table;
  SpecialTokens specials;
  std::unique_ptr<TokenizerModel> model;
  std::string pre_name;
  bool add_bos = false;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::FromGguf(const GgufFile& file) {
  const std::string_view model = file.GetString("tokenizer.ggml.model");
  const bool byte_level = model == "gpt2";
  if (!byte_level && model != "llama") {
    Fail(
        ErrorCode::kUnsupported,
        "{}: tokenizer model {} is not supported; this version reads byte-level BPE (\"gpt2\") and "
        "SentencePiece's BPE (\"llama\")",
        file.path(), gguf::Quoted(model));
  }
  auto impl = std::make_unique<Impl>(TokenTable::Load(
      file, byte_level ? ByteLevelModel::BytesOf() : SentencePieceModel::BytesOf(file.path())));
  if (byte_level) {
    impl->pre_name = file.GetString("tokenizer.ggml.pre");
    impl->model = std::make_unique<ByteLevelModel>(file, impl->table);
  } else {
    impl->pre_name = file.GetStringOr("tokenizer.ggml.pre", "default");
    impl->model = std::make_unique<SentencePieceModel>(file, impl->table);
  }
  impl->add_bos = file.GetBoolOr("tokenizer.ggml.add_bos_token", impl->model->default_add_bos());
  return Tokenizer(std::move(impl));
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  TokenSink ids;
  for (const SpecialTokens::Fragment& fragment : impl_->specials.Partition(text, parse_special)) {
    if (fragment.special >= 0) {
      ids.Add(fragment.special);
    } else {
      impl_->model->Encode(fragment.text, ids);
    }
  }
  return ids.Take();
}

std::size_t Tokenizer::CountInexpressible(std::string_view text) const {
  std::size_t n = 0;
  for (const SpecialTokens::Fragment& fragment : impl_->specials.Partition(text, false)) {
    if (fragment.special < 0) n += impl_->model->CountInexpressible(fragment.text);
  }
  return n;
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= impl_->table.size()) {
    Fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary; allowed are 0 to {}",
         id, impl_->table.size() - 1);
  }
  return impl_->table.BytesAt(id);
}

std::string Tokenizer::Decode(std::span<const TokenId> ids) const {
  std::string text;
  const bool prefixed = impl_->model->prefixes_space();
  bool at_start = true;  // of the text or of a text behind a special token
  for (const TokenId id : ids) {
    std::string_view bytes = TokenBytes(id);
    const bool special = impl_->table.IsSpecial(id);
    if (prefixed && at_start && !special && bytes.starts_with(' ')) bytes.remove_prefix(1);
    text += bytes;
    at_start = special;
  }
  return text;
}

std::size_t Tokenizer::size() const { return impl_->table.size(); }

bool Tokenizer::IsControl(TokenId id) const {
  TokenBytes(id);  // checks the range
  return impl_->table.TypeAt(id) == TokenType::kControl;
}

bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  TokenBytes(id);
  return impl_->table.ends[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Tokenizer::bos() const { return impl_->table.bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->table.eos; }
bool Tokenizer::add_bos() const { return impl_->add_bos; }
std::string_view Tokenizer::pre_tokenizer() const { return impl_->pre_name; }

}  // namespace kvant
