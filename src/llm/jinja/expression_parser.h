// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Expressions, by recursive descent in Jinja's order of precedence. Internal to the parser.
#pragma once

#include "llm/jinja/ast.h"
#include "llm/jinja/token_stream.h"

namespace kvant::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  /// An expression; with tuples, commas at the top level make one ("1, 2").
  ExprPtr Parse(bool with_tuples = true);
  /// An expression without a conditional: what stands between "in" and "if" of a loop.
  ExprPtr ParseOr();

 private:
  ExprPtr ParseConditional();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParseUnary(bool with_filters = true);
  ExprPtr ParsePrimary();
  ExprPtr ParseString();
  ExprPtr ParseNumber();
  ExprPtr ParseListOrTuple(ExprKind kind, std::string_view closer);
  ExprPtr ParseDict();
  ExprPtr ParsePostfix(ExprPtr base);
  ExprPtr ParseFiltersAndTests(ExprPtr base);
  ExprPtr ParseSubscript(ExprPtr base);
  ExprPtr ParseTest(ExprPtr base);
  void ParseArguments(Expr& call);

  ExprPtr New(ExprKind kind, std::size_t begin) const;
  ExprPtr Binary(std::string op, ExprPtr left, ExprPtr right);
  /// Adds a child and keeps depth and end.
  void Adopt(Expr& parent, ExprPtr child);
  void AdoptNamed(Expr& parent, std::string name, ExprPtr child);
  void Deepen(Expr& parent, const Expr* child);

  TokenStream& stream_;
};

}  // namespace kvant::jinja
