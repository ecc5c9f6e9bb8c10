// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace kvant::jinja {
namespace {

constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};
// Tests that take one argument, also without parentheses: "x is divisibleby 3".
constexpr std::array<std::string_view, 12> kTestsWithArgument = {
    "divisibleby", "eq", "equalto",     "ne", "lt", "lessthan",
    "le",          "gt", "greaterthan", "ge", "in", "sameas"};

template <std::size_t N>
bool Contains(const std::array<std::string_view, N>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

ExprPtr ExpressionParser::New(ExprKind kind, std::size_t begin) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->begin = begin;
  expr->end = std::max(begin, stream_.LastEnd());
  return expr;
}

void ExpressionParser::Deepen(Expr& parent, const Expr* child) {
  if (child != nullptr) parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxDepth) stream_.Refuse("the expression is nested too deep");
  parent.end = std::max(parent.end, stream_.LastEnd());
}

void ExpressionParser::Adopt(Expr& parent, ExprPtr child) {
  Deepen(parent, child.get());
  parent.args.push_back(std::move(child));
}

void ExpressionParser::AdoptNamed(Expr& parent, std::string name, ExprPtr child) {
  Deepen(parent, child.get());
  parent.named.emplace_back(std::move(name), std::move(child));
}

ExprPtr ExpressionParser::Binary(std::string op, ExprPtr left, ExprPtr right) {
  ExprPtr expr = New(ExprKind::kBinary, left->begin);
  expr->name = std::move(op);
  Adopt(*expr, std::move(left));
  Adopt(*expr, std::move(right));
  return expr;
}

ExprPtr ExpressionParser::Parse(bool with_tuples) {
  ExprPtr first = ParseConditional();
  if (!with_tuples || !stream_.IsOperator(",")) return first;
  ExprPtr tuple = New(ExprKind::kTuple, first->begin);
  Adopt(*tuple, std::move(first));
  while (stream_.SkipOperator(",")) {
    const TokenKind kind = stream_.Peek().kind;
    if (kind == TokenKind::kBlockEnd || kind == TokenKind::kOutputEnd) break;
    Adopt(*tuple, ParseConditional());
  }
  return tuple;
}

ExprPtr ExpressionParser::ParseConditional() {
  const TokenStream::Level level(stream_);
  ExprPtr result = ParseOr();
  while (stream_.SkipName("if")) {
    ExprPtr condition = ParseOr();
    ExprPtr expr = New(ExprKind::kConditional, result->begin);
    Adopt(*expr, std::move(result));
    Adopt(*expr, std::move(condition));
    Adopt(*expr, stream_.SkipName("else") ? ParseConditional() : nullptr);
    result = std::move(expr);
  }
  return result;
}

ExprPtr ExpressionParser::ParseOr() {
  ExprPtr left = ParseAnd();
  while (stream_.SkipName("or")) left = Binary("or", std::move(left), ParseAnd());
  return left;
}

ExprPtr ExpressionParser::ParseAnd() {
  ExprPtr left = ParseNot();
  while (stream_.SkipName("and")) left = Binary("and", std::move(left), ParseNot());
  return left;
}

ExprPtr ExpressionParser::ParseNot() {
  if (!stream_.IsName("not")) return ParseCompare();
  const TokenStream::Level level(stream_);
  ExprPtr expr = New(ExprKind::kUnary, stream_.Next().begin);
  expr->name = "not";
  Adopt(*expr, ParseNot());
  return expr;
}

ExprPtr ExpressionParser::ParseCompare() {
  ExprPtr first = ParseSum();
  ExprPtr compare;
  for (;;) {
    std::string op;
    if (stream_.Peek().kind == TokenKind::kOperator &&
        Contains(kComparisons, stream_.Peek().text)) {
      op = stream_.Next().text;
    } else if (stream_.SkipName("in")) {
      op = "in";
    } else if (stream_.IsName("not") && stream_.Peek(1).Is(TokenKind::kName, "in")) {
      stream_.Next();
      stream_.Next();
      op = "not in";
    } else {
      return compare != nullptr ? std::move(compare) : std::move(first);
    }
    if (compare == nullptr) {
      compare = New(ExprKind::kCompare, first->begin);
      Adopt(*compare, std::move(first));
    }
    compare->ops.push_back(std::move(op));
    Adopt(*compare, ParseSum());
  }
}

ExprPtr ExpressionParser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (stream_.IsOperator("+") || stream_.IsOperator("-")) {
    std::string op = stream_.Next().text;
    left = Binary(std::move(op), std::move(left), ParseConcat());
  }
  return left;
}

ExprPtr ExpressionParser::ParseConcat() {
  ExprPtr first = ParseProduct();
  if (!stream_.IsOperator("~")) return first;
  ExprPtr concat = New(ExprKind::kConcat, first->begin);
  Adopt(*concat, std::move(first));
  while (stream_.SkipOperator("~")) Adopt(*concat, ParseProduct());
  return concat;
}

ExprPtr ExpressionParser::ParseProduct() {
  ExprPtr left = ParseUnary();
  while (stream_.IsOperator("*") || stream_.IsOperator("/") || stream_.IsOperator("//") ||
         stream_.IsOperator("%")) {
    std::string op = stream_.Next().text;
    left = Binary(std::move(op), std::move(left), ParseUnary());
  }
  if (stream_.IsOperator("**")) stream_.Refuse("the operator '**' is not supported");
  return left;
}

ExprPtr ExpressionParser::ParseUnary(bool with_filters) {
  const TokenStream::Level level(stream_);
  ExprPtr expr;
  if (stream_.IsOperator("-") || stream_.IsOperator("+")) {
    const Token& sign = stream_.Next();
    expr = New(ExprKind::kUnary, sign.begin);
    expr->name = sign.text;
    Adopt(*expr, ParseUnary(/*with_filters=*/false));
  } else {
    expr = ParsePrimary();
  }
  expr = ParsePostfix(std::move(expr));
  return with_filters ? ParseFiltersAndTests(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::ParsePrimary() {
  const Token& token = stream_.Peek();
  if (token.kind == TokenKind::kString) return ParseString();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return ParseNumber();
  if (stream_.IsOperator("[")) return ParseListOrTuple(ExprKind::kList, "]");
  if (stream_.IsOperator("(")) return ParseListOrTuple(ExprKind::kTuple, ")");
  if (stream_.IsOperator("{")) return ParseDict();
  if (token.kind != TokenKind::kName) stream_.Unexpected("an expression");
  stream_.Next();
  const std::string& name = token.text;
  const bool is_true = name == "true" || name == "True";
  const bool is_false = name == "false" || name == "False";
  const bool is_none = name == "none" || name == "None";
  ExprPtr expr =
      New(is_true || is_false || is_none ? ExprKind::kLiteral : ExprKind::kName, token.begin);
  expr->name = name;
  if (is_true || is_false) expr->literal = Value::Boolean(is_true);
  if (is_none) expr->literal = Value::None();
  return expr;
}

ExprPtr ExpressionParser::ParseString() {
  const std::size_t begin = stream_.Peek().begin;
  std::string text;
  while (stream_.Peek().kind == TokenKind::kString) text += stream_.Next().text;
  ExprPtr expr = New(ExprKind::kLiteral, begin);
  expr->literal = Value::String(std::move(text));
  return expr;
}

ExprPtr ExpressionParser::ParseNumber() {
  const Token& token = stream_.Peek();
  const char* const end = token.text.data() + token.text.size();
  Value value;
  std::from_chars_result result = {};
  if (token.kind == TokenKind::kFloat) {
    double number = 0;
    result = std::from_chars(token.text.data(), end, number);
    value = Value::Float(number);
  } else {
    std::int64_t number = 0;
    result = std::from_chars(token.text.data(), end, number);
    value = Value::Integer(number);
  }
  if (result.ec != std::errc() || result.ptr != end) stream_.Refuse("the number is out of range");
  stream_.Next();
  ExprPtr expr = New(ExprKind::kLiteral, token.begin);
  expr->literal = std::move(value);
  return expr;
}

ExprPtr ExpressionParser::ParseListOrTuple(ExprKind kind, std::string_view closer) {
  ExprPtr list = New(kind, stream_.Next().begin);
  bool comma = false;
  while (!stream_.IsOperator(closer)) {
    Adopt(*list, ParseConditional());
    if (stream_.IsOperator(closer)) break;
    stream_.ExpectOperator(",");
    comma = true;
  }
  stream_.ExpectOperator(closer);
  // Parentheses around a single expression only group.
  if (kind == ExprKind::kTuple && list->args.size() == 1 && !comma) return std::move(list->args[0]);
  list->end = stream_.LastEnd();
  return list;
}

ExprPtr ExpressionParser::ParseDict() {
  ExprPtr dict = New(ExprKind::kDict, stream_.Next().begin);
  while (!stream_.IsOperator("}")) {
    Adopt(*dict, ParseConditional());
    stream_.ExpectOperator(":");
    Adopt(*dict, ParseConditional());
    if (!stream_.IsOperator("}")) stream_.ExpectOperator(",");
  }
  stream_.Next();
  dict->end = stream_.LastEnd();
  return dict;
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr base) {
  for (;;) {
    if (stream_.SkipOperator(".")) {
      const Token& token = stream_.Peek();
      if (token.kind == TokenKind::kInteger) {
        ExprPtr item = New(ExprKind::kItem, base->begin);
        Adopt(*item, std::move(base));
        Adopt(*item, ParseNumber());
        base = std::move(item);
      } else {
        std::string name = stream_.ExpectName("a name after '.'");
        ExprPtr attribute = New(ExprKind::kAttribute, base->begin);
        attribute->name = std::move(name);
        Adopt(*attribute, std::move(base));
        base = std::move(attribute);
      }
    } else if (stream_.IsOperator("[")) {
      base = ParseSubscript(std::move(base));
    } else if (stream_.IsOperator("(")) {
      ExprPtr call = New(ExprKind::kCall, base->begin);
      Adopt(*call, std::move(base));
      ParseArguments(*call);
      base = std::move(call);
    } else {
      return base;
    }
  }
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr base) {
  const std::size_t begin = base->begin;
  stream_.ExpectOperator("[");
  ExprPtr parts[3];
  std::size_t n = 0;
  bool slice = false;
  if (!stream_.IsOperator(":")) parts[0] = ParseConditional();
  while (stream_.SkipOperator(":")) {
    slice = true;
    if (++n == 3) stream_.Unexpected("]");
    if (!stream_.IsOperator(":") && !stream_.IsOperator("]")) parts[n] = ParseConditional();
  }
  if (stream_.IsOperator(",")) stream_.Refuse("a subscript with commas is not supported");
  stream_.ExpectOperator("]");
  ExprPtr expr = New(slice ? ExprKind::kSlice : ExprKind::kItem, begin);
  Adopt(*expr, std::move(base));
  for (std::size_t i = 0; i < (slice ? 3u : 1u); ++i) Adopt(*expr, std::move(parts[i]));
  return expr;
}

void ExpressionParser::ParseArguments(Expr& call) {
  stream_.ExpectOperator("(");
  while (!stream_.IsOperator(")")) {
    if (stream_.IsOperator("*") || stream_.IsOperator("**")) {
      stream_.Refuse("unpacking arguments with '*' is not supported");
    }
    if (stream_.Peek().kind == TokenKind::kName && stream_.Peek(1).Is(TokenKind::kOperator, "=")) {
      std::string name = stream_.Next().text;
      stream_.Next();
      AdoptNamed(call, std::move(name), ParseConditional());
    } else {
      if (!call.named.empty()) stream_.Refuse("a positional argument follows a named one");
      Adopt(call, ParseConditional());
    }
    if (!stream_.IsOperator(")")) stream_.ExpectOperator(",");
  }
  stream_.Next();
  call.end = stream_.LastEnd();
}

ExprPtr ExpressionParser::ParseFiltersAndTests(ExprPtr base) {
  for (;;) {
    if (stream_.SkipOperator("|")) {
      std::string name = stream_.ExpectName("the name of a filter");
      ExprPtr filter = New(ExprKind::kFilter, base->begin);
      filter->name = std::move(name);
      Adopt(*filter, std::move(base));
      if (stream_.IsOperator("(")) ParseArguments(*filter);
      base = std::move(filter);
    } else if (stream_.SkipName("is")) {
      base = ParseTest(std::move(base));
    } else if (stream_.IsOperator("(")) {
      ExprPtr call = New(ExprKind::kCall, base->begin);
      Adopt(*call, std::move(base));
      ParseArguments(*call);
      base = std::move(call);
    } else {
      return base;
    }
  }
}

ExprPtr ExpressionParser::ParseTest(ExprPtr base) {
  const bool negated = stream_.SkipName("not");
  std::string name = stream_.ExpectName("the name of a test");
  ExprPtr test = New(ExprKind::kTest, base->begin);
  test->name = std::move(name);
  test->negated = negated;
  Adopt(*test, std::move(base));
  if (stream_.IsOperator("(")) {
    ParseArguments(*test);
    if (!test->named.empty()) stream_.Refuse("named arguments of tests are not supported");
  } else if (Contains(kTestsWithArgument, test->name)) {
    Adopt(*test, ParsePostfix(ParsePrimary()));
  }
  return test;
}

}  // namespace kvant::jinja
