// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "llm/byte_pair.h"
#include "llm/gguf.h"
#include "llm/gguf_parse.h"
#include "llm/pre_tokenizer.h"
#include "llm/utf8.h"

namespace kvant {
namespace {

// tokenizer.ggml.token_type
enum TokenType : std::int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

constexpr std::size_t kMaxVocab = 1 << 24;
constexpr std::size_t kCachedWordBytes = 32;  // longer words hardly repeat
constexpr std::size_t kMaxCachedWords = 1 << 16;

// U+FFFD, for bytes that a vocabulary has no token for.
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Names of control tokens that end an answer in the models that kvant knows.
constexpr std::array<std::string_view, 9> kEndNames = {
    "<|im_end|>",    "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>",
    "<end_of_turn>", "<EOT>",      "</s>"};

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

template <typename T>
const std::vector<T>& ArrayOf(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.Find(key);
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  const auto* items = array == nullptr ? nullptr : std::get_if<std::vector<T>>(&array->items);
  if (items == nullptr) {
    Fail(ErrorCode::kCorruptData,
         "{}: '{}' is missing or of another kind; the vocabulary is incomplete", file.path(), key);
  }
  return *items;
}

}  // namespace

struct Tokenizer::Impl {
  std::string path;
  std::vector<std::string> bytes;  // of each token
  std::vector<std::int64_t> types;
  std::vector<bool> ends;
  std::vector<TokenId> specials;  // control, unknown and user-defined tokens, longest first
  std::unordered_map<std::string_view, TokenId> id_of;  // ordinary tokens by their bytes
  BytePairMerger merger;
  std::optional<PreTokenizer> pre_tokenizer;
  std::string pre_name;
  std::optional<TokenId> bos, eos;
  bool add_bos = false;

  // A text between special tokens, or a special token.
  struct Fragment {
    std::string_view text;
    TokenId special = -1;
  };

  void LoadTokens(const GgufFile& file);
  void LoadMerges(const GgufFile& file);
  void LoadSpecials(const GgufFile& file);
  std::optional<TokenId> SpecialId(const GgufFile& file, std::string_view key) const;
  std::vector<Fragment> Partition(std::string_view text, bool parse_special) const;
  bool IsSpecialType(TokenId id) const {
    const std::int64_t type = types[static_cast<std::size_t>(id)];
    return type == kControl || type == kUnknown || type == kUserDefined;
  }
  bool Expresses(std::string_view text) const {
    return std::all_of(text.begin(), text.end(),
                       [this](char c) { return merger.HasByte(static_cast<unsigned char>(c)); });
  }
  void EncodeWord(std::string_view word, std::vector<TokenId>& out) const;
};

void Tokenizer::Impl::LoadTokens(const GgufFile& file) {
  const auto& tokens = ArrayOf<std::string_view>(file, "tokenizer.ggml.tokens");
  if (tokens.empty() || tokens.size() > kMaxVocab) {
    Fail(ErrorCode::kCorruptData, "{}: the vocabulary has {} tokens; allowed are 1 to {}", path,
         tokens.size(), kMaxVocab);
  }
  types.assign(tokens.size(), kNormal);
  if (file.Find("tokenizer.ggml.token_type") != nullptr) {
    types = ArrayOf<std::int64_t>(file, "tokenizer.ggml.token_type");
  }
  if (types.size() != tokens.size()) {
    Fail(ErrorCode::kCorruptData, "{}: {} tokens but {} token types", path, tokens.size(),
         types.size());
  }
  const AlphabetDecoder decoder;
  bytes.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool special = IsSpecialType(static_cast<TokenId>(i));
    bytes.push_back(special ? std::string(tokens[i]) : decoder.Bytes(tokens[i]));
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (IsSpecialType(id)) continue;
    if (!id_of.emplace(bytes[i], id).second) {
      Fail(ErrorCode::kCorruptData, "{}: tokens {} and {} are the same text", path, id_of[bytes[i]],
           id);
    }
    if (bytes[i].size() == 1) merger.SetByteToken(static_cast<unsigned char>(bytes[i][0]), id);
  }
}

void Tokenizer::Impl::LoadMerges(const GgufFile& file) {
  const auto& merges = ArrayOf<std::string_view>(file, "tokenizer.ggml.merges");
  const AlphabetDecoder decoder;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    // The alphabet has no space, so the first one after the first character separates.
    const std::size_t space = merges[rank].find(' ', 1);
    const auto fail = [&](std::string_view what) {
      Fail(ErrorCode::kCorruptData, "{}: merge {} ({}) {}", path, rank, gguf::Quoted(merges[rank]),
           what);
    };
    if (space == std::string_view::npos) fail("is not a pair");
    const std::string left = decoder.Bytes(merges[rank].substr(0, space));
    const std::string right = decoder.Bytes(merges[rank].substr(space + 1));
    const auto left_id = id_of.find(left);
    const auto right_id = id_of.find(right);
    const auto merged_id = id_of.find(left + right);
    if (left_id == id_of.end() || right_id == id_of.end() || merged_id == id_of.end()) {
      fail("names a token that is not in the vocabulary");
    }
    merger.AddMerge(left_id->second, right_id->second, merged_id->second,
                    static_cast<std::uint32_t>(rank));
  }
}

std::optional<TokenId> Tokenizer::Impl::SpecialId(const GgufFile& file,
                                                  std::string_view key) const {
  if (file.Find(key) == nullptr) return std::nullopt;
  const std::int64_t id = file.GetInt(key);
  if (id < 0 || static_cast<std::size_t>(id) >= bytes.size()) {
    Fail(ErrorCode::kCorruptData, "{}: {} is {}; the vocabulary has tokens 0 to {}", path, key, id,
         bytes.size() - 1);
  }
  return static_cast<TokenId>(id);
}

void Tokenizer::Impl::LoadSpecials(const GgufFile& file) {
  bos = SpecialId(file, "tokenizer.ggml.bos_token_id");
  eos = SpecialId(file, "tokenizer.ggml.eos_token_id");
  ends.assign(bytes.size(), false);
  for (const auto& id : {eos, SpecialId(file, "tokenizer.ggml.eot_token_id"),
                         SpecialId(file, "tokenizer.ggml.eom_token_id")}) {
    if (id) ends[static_cast<std::size_t>(*id)] = true;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!IsSpecialType(id) || bytes[i].empty()) continue;
    specials.push_back(id);
    if (types[i] == kControl &&
        std::find(kEndNames.begin(), kEndNames.end(), bytes[i]) != kEndNames.end()) {
      ends[i] = true;
    }
  }
  std::stable_sort(specials.begin(), specials.end(), [this](TokenId a, TokenId b) {
    return bytes[static_cast<std::size_t>(a)].size() > bytes[static_cast<std::size_t>(b)].size();
  });
  // Llama 3's tokenizer wants BOS unless the file says otherwise.
  add_bos = file.GetBoolOr("tokenizer.ggml.add_bos_token", pre_tokenizer->whole_words_first());
}

std::vector<Tokenizer::Impl::Fragment> Tokenizer::Impl::Partition(std::string_view text,
                                                                  bool parse_special) const {
  std::vector<Fragment> fragments;
  if (!text.empty()) fragments.push_back({text});
  for (const TokenId id : specials) {
    if (!parse_special && types[static_cast<std::size_t>(id)] != kUserDefined) continue;
    const std::string& name = bytes[static_cast<std::size_t>(id)];
    if (text.find(name) == std::string_view::npos) continue;
    std::vector<Fragment> next;
    for (const Fragment& fragment : fragments) {
      std::string_view rest = fragment.text;
      if (fragment.special < 0) {
        for (std::size_t at = rest.find(name); at != std::string_view::npos; at = rest.find(name)) {
          if (at > 0) next.push_back({rest.substr(0, at)});
          next.push_back({rest.substr(at, name.size()), id});
          rest.remove_prefix(at + name.size());
        }
        if (!rest.empty()) next.push_back({rest});
      } else {
        next.push_back(fragment);
      }
    }
    fragments = std::move(next);
  }
  return fragments;
}

void Tokenizer::Impl::EncodeWord(std::string_view word, std::vector<TokenId>& out) const {
  if (pre_tokenizer->whole_words_first()) {
    if (const auto found = id_of.find(word); found != id_of.end()) {
      out.push_back(found->second);
      return;
    }
  }
  if (Expresses(word)) return merger.Encode(word, out);
  std::string expressible;
  for (const char c : word) {
    if (merger.HasByte(static_cast<unsigned char>(c))) {
      expressible.push_back(c);
    } else {
      expressible += kReplacement;
    }
  }
  merger.Encode(expressible, out);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::FromGguf(const GgufFile& file) {
  const std::string_view model = file.GetString("tokenizer.ggml.model");
  if (model != "gpt2") {
    Fail(ErrorCode::kUnsupported,
         "{}: tokenizer model {} is not supported; this version reads byte-level BPE (\"gpt2\")",
         file.path(), gguf::Quoted(model));
  }
  auto impl = std::make_unique<Impl>();
  impl->path = file.path();
  // There is no safe default: with the wrong patterns a model reads other tokens than it learned.
  impl->pre_name = file.GetString("tokenizer.ggml.pre");
  impl->pre_tokenizer = PreTokenizer::FromName(impl->pre_name);
  impl->LoadTokens(file);
  impl->LoadMerges(file);
  impl->LoadSpecials(file);
  if (!impl->Expresses(kReplacement)) {
    Fail(ErrorCode::kCorruptData,
         "{}: the vocabulary lacks single-byte tokens, even those of U+FFFD; byte-level BPE needs "
         "them",
         file.path());
  }
  return Tokenizer(std::move(impl));
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  std::vector<TokenId> ids;
  // Words repeat: each short one is merged once. Views into `text` are keys, ranges of `ids` are
  // values.
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> cache;
  for (const Impl::Fragment& fragment : impl_->Partition(text, parse_special)) {
    if (fragment.special >= 0) {
      ids.push_back(fragment.special);
      continue;
    }
    for (const std::string_view word : impl_->pre_tokenizer->Split(fragment.text)) {
      if (const auto hit = cache.find(word); hit != cache.end()) {
        const auto [begin, end] = hit->second;
        for (std::size_t i = begin; i < end; ++i) ids.push_back(ids[i]);
        continue;
      }
      const std::size_t begin = ids.size();
      impl_->EncodeWord(word, ids);
      if (word.size() <= kCachedWordBytes && cache.size() < kMaxCachedWords) {
        cache.emplace(word, std::pair{begin, ids.size()});
      }
    }
  }
  return ids;
}

std::size_t Tokenizer::CountInexpressible(std::string_view text) const {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [this](char c) {
    return !impl_->merger.HasByte(static_cast<unsigned char>(c));
  }));
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= impl_->bytes.size()) {
    Fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary; allowed are 0 to {}",
         id, impl_->bytes.size() - 1);
  }
  return impl_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::Decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) text += TokenBytes(id);
  return text;
}

std::size_t Tokenizer::size() const { return impl_->bytes.size(); }

bool Tokenizer::IsControl(TokenId id) const {
  TokenBytes(id);  // checks the range
  return impl_->types[static_cast<std::size_t>(id)] == kControl;
}

bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  TokenBytes(id);
  return impl_->ends[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Tokenizer::bos() const { return impl_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->eos; }
bool Tokenizer::add_bos() const { return impl_->add_bos; }
std::string_view Tokenizer::pre_tokenizer() const { return impl_->pre_name; }

}  // namespace kvant
