// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "llm/gguf_parse.h"
#include "llm/utf8.h"

namespace kvant {
namespace {

// White space as the models' tokenizers define it (Unicode's White_Space). PCRE2's \s is not used,
// because it has U+180E too, which lost that property in Unicode 6.3.
#define KVANT_SPACES \
  R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
// White space at the end of the text, or all but the last one before something else.
#define KVANT_TRAILING_SPACES "[" KVANT_SPACES "]+(?![^" KVANT_SPACES "])"

// The patterns that the models were trained with, as their tokenizer files state them. What is left
// over by the last alternative of GPT-2's (a single space before a word) is a gap, hence a word of
// its own.
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" KVANT_SPACES
                                   R"(\p{L}\p{N}]+|)" KVANT_TRAILING_SPACES;
constexpr std::string_view kDigit = R"(\p{N})";
// Llama 3's and Qwen 2's differ in how many digits make a word.
#define KVANT_LLAMA3(numbers)                                                                      \
  R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|)" numbers \
  R"(| ?[^)" KVANT_SPACES R"(\p{L}\p{N}]+[\r\n]*|[)" KVANT_SPACES                                  \
  R"(]*[\r\n]+|)" KVANT_TRAILING_SPACES "|[" KVANT_SPACES "]+"
constexpr std::string_view kLlama3 = KVANT_LLAMA3(R"(\p{N}{1,3})");
constexpr std::string_view kQwen2 = KVANT_LLAMA3(R"(\p{N})");
#undef KVANT_LLAMA3
#undef KVANT_TRAILING_SPACES
#undef KVANT_SPACES

struct Definition {
  std::string_view name;
  std::vector<std::string_view> patterns;  // applied one after the other to the pieces so far
  bool whole_words_first = false;
};

const std::vector<Definition>& Definitions() {
  static const std::vector<Definition> definitions = {
      {"smollm", {kDigit, kGpt2}},
      {"starcoder", {kDigit, kGpt2}},
      {"refact", {kDigit, kGpt2}},
      {"gpt2", {kGpt2}},
      {"gpt-2", {kGpt2}},
      {"llama-bpe", {kLlama3}, true},
      {"llama3", {kLlama3}, true},
      {"llama-v3", {kLlama3}, true},
      {"falcon3", {kLlama3}, true},
      {"qwen2", {kQwen2}},
      {"deepseek-r1-qwen", {kQwen2}},
  };
  return definitions;
}

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using Code = std::unique_ptr<pcre2_code, CodeFree>;

Code Compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  KVANT_CHECK(code != nullptr);
  // Without a JIT on this platform the interpreter runs: slower, same matches.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

struct Span {
  std::size_t begin, end;
};

// Text with invalid bytes replaced, and where each of its bytes came from.
struct Shadow {
  std::string text;
  std::vector<std::size_t> origin;  // [text.size() + 1]; empty: the text was valid
};

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Sequence sequence = ReadUtf8(text);
    if (!sequence.valid) return false;
    text.remove_prefix(sequence.bytes);
  }
  return true;
}

Shadow MakeShadow(std::string_view text) {
  Shadow shadow;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Sequence sequence = ReadUtf8(text.substr(at));
    const std::size_t before = shadow.text.size();
    if (sequence.valid) {
      shadow.text += text.substr(at, sequence.bytes);
      for (std::size_t i = 0; i < sequence.bytes; ++i) shadow.origin.push_back(at + i);
    } else {
      AppendUtf8(0xfffd, shadow.text);
      // A match begins and ends at character borders, so only the first byte's origin is ever used.
      shadow.origin.resize(shadow.origin.size() + shadow.text.size() - before, at);
    }
    at += sequence.bytes;
  }
  shadow.origin.push_back(text.size());
  return shadow;
}

void SplitPiece(const pcre2_code* code, pcre2_match_data* data, std::string_view text, Span piece,
                std::vector<Span>& out) {
  // The piece is a subject of its own: look-ahead must not see past its end.
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() + piece.begin);
  const std::size_t size = piece.end - piece.begin;
  std::size_t at = 0;
  while (at < size) {
    const int count =
        pcre2_match(code, subject, size, at, PCRE2_NO_UTF_CHECK, data, /*mcontext=*/nullptr);
    if (count == PCRE2_ERROR_NOMATCH) break;
    KVANT_CHECK(count > 0);
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data);
    if (match[1] <= match[0]) break;  // none of the patterns can match nothing
    if (match[0] > at) out.push_back({piece.begin + at, piece.begin + match[0]});
    out.push_back({piece.begin + match[0], piece.begin + match[1]});
    at = match[1];
  }
  if (at < size) out.push_back({piece.begin + at, piece.end});
}

}  // namespace

struct PreTokenizer::Impl {
  std::vector<Code> codes;
  bool whole_words_first = false;
};

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

PreTokenizer PreTokenizer::FromName(std::string_view name) {
  std::string names;
  for (const Definition& definition : Definitions()) {
    if (definition.name != name) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", definition.name);
      continue;
    }
    auto impl = std::make_unique<Impl>();
    for (const std::string_view pattern : definition.patterns) {
      impl->codes.push_back(Compile(pattern));
    }
    impl->whole_words_first = definition.whole_words_first;
    return PreTokenizer(std::move(impl));
  }
  Fail(ErrorCode::kUnsupported, "pre-tokenizer {} (tokenizer.ggml.pre) is not known; known are: {}",
       gguf::Quoted(name), names);
}

bool PreTokenizer::whole_words_first() const { return impl_->whole_words_first; }

std::vector<std::string_view> PreTokenizer::Split(std::string_view text) const {
  Shadow shadow;
  std::string_view subject = text;
  if (!IsValidUtf8(text)) {
    shadow = MakeShadow(text);
    subject = shadow.text;
  }
  std::vector<Span> pieces;
  if (!subject.empty()) pieces.push_back({0, subject.size()});
  const std::unique_ptr<pcre2_match_data, MatchFree> data(pcre2_match_data_create(1, nullptr));
  KVANT_CHECK(data != nullptr);
  for (const Code& code : impl_->codes) {
    std::vector<Span> next;
    next.reserve(pieces.size());
    for (const Span& piece : pieces) SplitPiece(code.get(), data.get(), subject, piece, next);
    pieces = std::move(next);
  }
  std::vector<std::string_view> words;
  words.reserve(pieces.size());
  for (const Span& piece : pieces) {
    const std::size_t begin = shadow.origin.empty() ? piece.begin : shadow.origin[piece.begin];
    const std::size_t end = shadow.origin.empty() ? piece.end : shadow.origin[piece.end];
    words.push_back(text.substr(begin, end - begin));
  }
  return words;
}

}  // namespace kvant
