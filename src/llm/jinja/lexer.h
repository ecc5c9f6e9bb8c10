// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Cuts a template into text and the tokens between {{ }}, {% %}. White space control follows Jinja
// 2 with trim_blocks and lstrip_blocks on, as chat templates are run: the line break after a block
// tag and the spaces before one that starts its line are dropped; "-" strips all white space, "+"
// strips none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvant::jinja {

enum class TokenKind {
  kText,         // template text, white space control applied
  kBlockBegin,   // {%
  kBlockEnd,     // %}
  kOutputBegin,  // {{
  kOutputEnd,    // }}
  kName,
  kString,  // text is the unescaped value
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  std::size_t begin, end;  // bytes of the source

  bool Is(TokenKind other, std::string_view other_text) const {
    return kind == other && text == other_text;
  }
};

/// Line breaks as "\n", and the last one dropped: what positions of tokens refer to.
std::string NormalizeSource(std::string_view source);

/// The tokens of a normalized source; the last one is kEnd. Throws Error(kUnsupported) with the
/// line.
std::vector<Token> Tokenize(std::string_view source);

/// Throws Error(kUnsupported): "chat template, line N: ...; use --raw ..." for a place of the
/// source.
[[noreturn]] void RefuseAt(std::string_view source, std::size_t offset, std::string_view what);

}  // namespace kvant::jinja
