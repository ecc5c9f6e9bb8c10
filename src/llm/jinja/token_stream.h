// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tokens of a template as a parser reads them, with the bounds on nesting. Internal to the
// parser.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/jinja/lexer.h"

namespace kvant::jinja {

/// Parser recursion and depth of the tree. The templates of published models stay below 30.
inline constexpr int kMaxDepth = 100;

class TokenStream {
 public:
  explicit TokenStream(std::string_view source) : source_(source), tokens_(Tokenize(source)) {}

  const Token& Peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  /// The current token; moves on. The end token stays.
  const Token& Next() {
    const Token& token = Peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool IsOperator(std::string_view text) const { return Peek().Is(TokenKind::kOperator, text); }
  bool IsName(std::string_view text) const { return Peek().Is(TokenKind::kName, text); }
  bool SkipOperator(std::string_view text) { return Skip(IsOperator(text)); }
  bool SkipName(std::string_view text) { return Skip(IsName(text)); }
  void Expect(TokenKind kind, std::string_view what) {
    if (Peek().kind != kind) Unexpected(what);
    Next();
  }
  void ExpectOperator(std::string_view text) {
    if (!SkipOperator(text)) Unexpected(text);
  }
  std::string ExpectName(std::string_view what) {
    if (Peek().kind != TokenKind::kName) Unexpected(what);
    return Next().text;
  }
  /// End of the last token that Next gave.
  std::size_t LastEnd() const { return at_ == 0 ? 0 : tokens_[at_ - 1].end; }

  [[noreturn]] void Refuse(std::string_view what) const { RefuseAt(source_, Peek().begin, what); }
  [[noreturn]] void Unexpected(std::string_view wanted) const;

  /// Counts a level of recursion for its life time.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) {
      if (++stream.depth_ > kMaxDepth) stream.Refuse("the template is nested too deep");
    }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenStream& stream_;
  };

 private:
  bool Skip(bool matches) {
    if (matches) Next();
    return matches;
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace kvant::jinja
