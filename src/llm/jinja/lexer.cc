// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "llm/jinja/text.h"
#include "llm/utf8.h"

namespace kvant::jinja {
namespace {

// Longer ones first, so that "//" is not read as "/" twice.
constexpr std::array<std::string_view, 28> kOperators = {
    "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">",
    "=",  "(",  ")",  "[",  "]",  "{",  "}", ",", ".", ":", "|", ";", "!", "&"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }
bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) LexTextAndTag();
    Push(TokenKind::kEnd, "", source_.size());
    return std::move(tokens_);
  }

 private:
  void LexTextAndTag();
  void LexComment();
  void LexExpressions(std::string_view closer, TokenKind end_kind);
  void LexToken();
  void LexString();
  void LexNumber();
  void AppendEscape(std::string& out);
  std::uint32_t HexEscape(std::size_t digits);
  void AfterTag(bool strip, bool is_block);
  bool Ahead(std::string_view text) const { return source_.substr(at_, text.size()) == text; }
  void Push(TokenKind kind, std::string text, std::size_t begin) {
    tokens_.push_back({kind, std::move(text), begin, at_});
  }

  std::string_view source_;
  std::size_t at_ = 0;
  std::vector<Token> tokens_;
  std::string brackets_;          // open ones inside a tag
  bool line_starts_ = true;       // does the text begin a line?
  bool strip_following_ = false;  // did the last tag end in "-"?
};

// The next "{{", "{%" or "{#".
std::size_t FindTag(std::string_view source, std::size_t from) {
  for (std::size_t at = source.find('{', from); at != std::string_view::npos;
       at = source.find('{', at + 1)) {
    const char next = at + 1 < source.size() ? source[at + 1] : '\0';
    if (next == '{' || next == '%' || next == '#') return at;
  }
  return std::string_view::npos;
}

void Lexer::LexTextAndTag() {
  const std::size_t begin = at_;
  const std::size_t tag = FindTag(source_, at_);
  std::string_view text = source_.substr(at_, tag == std::string_view::npos ? tag : tag - at_);
  if (strip_following_) text = StripLeft(text);
  if (tag == std::string_view::npos) {
    at_ = source_.size();
    if (!text.empty()) Push(TokenKind::kText, std::string(text), begin);
    return;
  }
  const char type = source_[tag + 1];
  const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
  if (sign == '-') {
    text = StripRight(text);
  } else if (sign != '+' && type != '{') {
    const std::size_t line = text.rfind('\n') + 1;  // 0 where there is none
    const bool whole_line = line > 0 || (line_starts_ && !strip_following_);
    if (whole_line && StripLeft(text.substr(line)).empty()) text = text.substr(0, line);
  }
  at_ = tag;
  if (!text.empty()) Push(TokenKind::kText, std::string(text), begin);
  at_ = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
  if (type == '#') {
    LexComment();
  } else if (type == '{') {
    Push(TokenKind::kOutputBegin, "{{", tag);
    LexExpressions("}}", TokenKind::kOutputEnd);
  } else {
    Push(TokenKind::kBlockBegin, "{%", tag);
    LexExpressions("%}", TokenKind::kBlockEnd);
  }
}

void Lexer::LexComment() {
  const std::size_t begin = at_;
  const std::size_t end = source_.find("#}", at_);
  if (end == std::string_view::npos) RefuseAt(source_, begin, "the comment has no end");
  at_ = end + 2;
  const char sign = end > begin ? source_[end - 1] : '\0';
  AfterTag(sign == '-', sign != '+');
}

void Lexer::AfterTag(bool strip, bool drops_line_break) {
  strip_following_ = strip;
  line_starts_ = false;
  if (!strip && drops_line_break && Ahead("\n")) {
    ++at_;
    line_starts_ = true;
  }
}

void Lexer::LexExpressions(std::string_view closer, TokenKind end_kind) {
  const std::size_t begin = at_;
  brackets_.clear();
  for (;;) {
    while (at_ < source_.size() && IsAsciiSpace(source_[at_])) ++at_;
    if (at_ >= source_.size()) RefuseAt(source_, begin, "the tag has no end");
    if (brackets_.empty()) {
      const bool block = end_kind == TokenKind::kBlockEnd;
      const char sign = source_[at_];
      const bool has_sign = sign == '-' || (block && sign == '+');
      if (source_.substr(at_ + (has_sign ? 1 : 0), 2) == closer) {
        const std::size_t end_begin = at_;
        at_ += has_sign ? 3 : 2;
        Push(end_kind, std::string(closer), end_begin);
        AfterTag(sign == '-', block && sign != '+');
        return;
      }
    }
    LexToken();
  }
}

void Lexer::LexToken() {
  const std::size_t begin = at_;
  const char c = source_[at_];
  if (c == '\'' || c == '"') return LexString();
  if (IsDigit(c)) return LexNumber();
  if (IsNameStart(c)) {
    while (at_ < source_.size() && IsNamePart(source_[at_])) ++at_;
    return Push(TokenKind::kName, std::string(source_.substr(begin, at_ - begin)), begin);
  }
  const auto* found = std::find_if(kOperators.begin(), kOperators.end(),
                                   [this](std::string_view text) { return Ahead(text); });
  if (found == kOperators.end()) {
    RefuseAt(source_, begin,
             fmt::format("the character {} is not known here",
                         JsonString(source_.substr(begin, ReadUtf8(source_.substr(begin)).bytes))));
  }
  if (c == '(' || c == '[' || c == '{') brackets_.push_back(c);
  if (c == ')' || c == ']' || c == '}') {
    const char open = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (brackets_.empty() || brackets_.back() != open) {
      RefuseAt(source_, begin, fmt::format("'{}' closes nothing", c));
    }
    brackets_.pop_back();
  }
  at_ += found->size();
  Push(TokenKind::kOperator, std::string(*found), begin);
}

void Lexer::LexNumber() {
  const std::size_t begin = at_;
  const auto digits = [this] {
    while (at_ < source_.size() && IsDigit(source_[at_])) ++at_;
  };
  const auto digit_at = [this](std::size_t at) {
    return at < source_.size() && IsDigit(source_[at]);
  };
  digits();
  bool is_float = false;
  const bool after_dot = !tokens_.empty() && tokens_.back().Is(TokenKind::kOperator, ".");
  if (!after_dot && Ahead(".") && digit_at(at_ + 1)) {
    ++at_;
    digits();
    is_float = true;
  }
  if (!after_dot && (Ahead("e") || Ahead("E"))) {
    const std::size_t sign = at_ + 1;
    const bool has_sign = sign < source_.size() && (source_[sign] == '+' || source_[sign] == '-');
    if (digit_at(sign + (has_sign ? 1 : 0))) {
      at_ = sign + 1;
      digits();
      is_float = true;
    }
  }
  if (at_ < source_.size() && IsNamePart(source_[at_])) {
    RefuseAt(source_, begin, "a number of this form is not supported");
  }
  Push(is_float ? TokenKind::kFloat : TokenKind::kInteger,
       std::string(source_.substr(begin, at_ - begin)), begin);
}

void Lexer::LexString() {
  const std::size_t begin = at_;
  const char quote = source_[at_++];
  std::string text;
  for (;;) {
    if (at_ >= source_.size()) RefuseAt(source_, begin, "the string has no end");
    const char c = source_[at_++];
    if (c == quote) break;
    if (c == '\\') {
      AppendEscape(text);
    } else {
      text.push_back(c);
    }
  }
  Push(TokenKind::kString, std::move(text), begin);
}

// The escapes of Python's strings; an unknown one stands for itself, backslash included.
void Lexer::AppendEscape(std::string& out) {
  if (at_ >= source_.size()) RefuseAt(source_, at_, "the string has no end");
  const std::size_t begin = at_ - 1;
  const char c = source_[at_++];
  switch (c) {
    case '\n':
      return;
    case '\\':
    case '\'':
    case '"':
      return out.push_back(c);
    case 'a':
      return out.push_back('\a');
    case 'b':
      return out.push_back('\b');
    case 'f':
      return out.push_back('\f');
    case 'n':
      return out.push_back('\n');
    case 'r':
      return out.push_back('\r');
    case 't':
      return out.push_back('\t');
    case 'v':
      return out.push_back('\v');
    case 'N':
      RefuseAt(source_, begin, "the escape \\N is not supported");
    default:
      break;
  }
  std::uint32_t code_point = 0;
  if (c == 'x' || c == 'u' || c == 'U') {
    code_point = HexEscape(c == 'x' ? 2 : c == 'u' ? 4 : 8);
  } else if (c >= '0' && c <= '7') {
    code_point = static_cast<std::uint32_t>(c - '0');
    for (int i = 0; i < 2 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7';
         ++i) {
      code_point = code_point * 8 + static_cast<std::uint32_t>(source_[at_++] - '0');
    }
  } else {
    out.push_back('\\');
    out.push_back(c);
    return;
  }
  if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000)) {
    RefuseAt(source_, begin, "an escape names no character");
  }
  AppendUtf8(code_point, out);
}

std::uint32_t Lexer::HexEscape(std::size_t digits) {
  const std::size_t begin = at_;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < digits; ++i, ++at_) {
    const char c = at_ < source_.size() ? source_[at_] : '\0';
    const char lower = static_cast<char>(c | 0x20);
    const bool letter = lower >= 'a' && lower <= 'f';
    if (!IsDigit(c) && !letter)
      RefuseAt(source_, begin, "an escape has too few hexadecimal digits");
    value = value * 16 + static_cast<std::uint32_t>(letter ? lower - 'a' + 10 : c - '0');
  }
  return value;
}

}  // namespace

std::string NormalizeSource(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

void RefuseAt(std::string_view source, std::size_t offset, std::string_view what) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  Fail(ErrorCode::kUnsupported,
       "chat template, line {}: {}; use --raw to pass the text as it stands",
       std::count(before.begin(), before.end(), '\n') + 1, what);
}

}  // namespace kvant::jinja
