// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "llm/jinja/expression_parser.h"
#include "llm/jinja/text.h"
#include "llm/jinja/token_stream.h"

namespace kvant::jinja {
namespace {

constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

class Parser {
 public:
  explicit Parser(std::string_view source) : stream_(source), expressions_(stream_) {}

  Body Run() {
    Body body = ParseBody({});
    if (stream_.Peek().kind != TokenKind::kEnd) stream_.Unexpected("the end of the template");
    return body;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  Body ParseBody(Names enders);
  std::unique_ptr<Statement> ParseTag();
  std::unique_ptr<Statement> ParseIf(std::size_t begin);
  std::unique_ptr<Statement> ParseFor(std::size_t begin);
  std::unique_ptr<Statement> ParseSet(std::size_t begin);
  std::unique_ptr<Statement> ParseMacro(std::size_t begin);
  void ParseTargets(Statement& statement, bool with_attributes);
  /// The tag that ended a body; false where it is not this one.
  bool SkipTag(std::string_view name);
  void EndBlock() { stream_.Expect(TokenKind::kBlockEnd, "%}"); }
  static std::unique_ptr<Statement> New(StatementKind kind, std::size_t begin) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->begin = begin;
    return statement;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int loops_ = 0;        // open ones
  bool nested_ = false;  // inside a loop, branch or macro?
};

Body Parser::ParseBody(Names enders) {
  const TokenStream::Level level(stream_);
  Body body;
  for (;;) {
    const Token& token = stream_.Peek();
    if (token.kind == TokenKind::kEnd) {
      if (enders.size() == 0) return body;
      stream_.Refuse(fmt::format("the template ends before {{% {} %}}", *(enders.end() - 1)));
    }
    if (token.kind == TokenKind::kText) {
      body.push_back(New(StatementKind::kText, token.begin));
      body.back()->text = token.text;
      stream_.Next();
    } else if (token.kind == TokenKind::kOutputBegin) {
      stream_.Next();
      body.push_back(New(StatementKind::kOutput, token.begin));
      body.back()->value = expressions_.Parse();
      stream_.Expect(TokenKind::kOutputEnd, "}}");
    } else {
      const Token& name = stream_.Peek(1);
      if (std::find(enders.begin(), enders.end(), name.text) != enders.end()) return body;
      stream_.Next();
      body.push_back(ParseTag());
    }
  }
}

bool Parser::SkipTag(std::string_view name) {
  if (!stream_.Peek(1).Is(TokenKind::kName, name)) return false;
  stream_.Next();
  stream_.Next();
  return true;
}

std::unique_ptr<Statement> Parser::ParseTag() {
  const std::size_t begin = stream_.Peek().begin;
  const std::string name = stream_.Peek().text;
  if (stream_.SkipName("if")) return ParseIf(begin);
  if (stream_.SkipName("for")) return ParseFor(begin);
  if (stream_.SkipName("set")) return ParseSet(begin);
  if (stream_.SkipName("macro")) return ParseMacro(begin);
  const bool is_break = stream_.IsName("break");
  if (is_break || stream_.IsName("continue")) {
    if (loops_ == 0) stream_.Refuse(fmt::format("'{}' outside a loop", name));
    stream_.Next();
    EndBlock();
    return New(is_break ? StatementKind::kBreak : StatementKind::kContinue, begin);
  }
  if (stream_.SkipName("generation")) {  // marks the answer for training; prints its body
    EndBlock();
    auto group = New(StatementKind::kGroup, begin);
    group->branches.push_back({nullptr, ParseBody({"endgeneration"})});
    SkipTag("endgeneration");
    EndBlock();
    return group;
  }
  stream_.Refuse(fmt::format("the tag {} is not supported", JsonString(name)));
}

std::unique_ptr<Statement> Parser::ParseIf(std::size_t begin) {
  auto statement = New(StatementKind::kIf, begin);
  const bool was_nested = std::exchange(nested_, true);
  for (;;) {
    ExprPtr condition = expressions_.Parse();
    EndBlock();
    statement->branches.push_back({std::move(condition), ParseBody({"elif", "else", "endif"})});
    if (SkipTag("elif")) continue;
    if (SkipTag("else")) {
      EndBlock();
      statement->branches.push_back({nullptr, ParseBody({"endif"})});
    }
    SkipTag("endif");
    EndBlock();
    nested_ = was_nested;
    return statement;
  }
}

void Parser::ParseTargets(Statement& statement, bool with_attributes) {
  const bool parenthesis = stream_.SkipOperator("(");
  do {
    Target target = {stream_.ExpectName("the name of a variable"), ""};
    if (with_attributes && stream_.SkipOperator(".")) {
      target.attribute = stream_.ExpectName("a name after '.'");
    } else if (target.name == "loop" || target.name == "true" || target.name == "false" ||
               target.name == "none") {
      stream_.Refuse(fmt::format("'{}' cannot be assigned", target.name));
    }
    statement.targets.push_back(std::move(target));
  } while (stream_.SkipOperator(",") && !stream_.IsOperator("=") && !stream_.IsName("in"));
  if (parenthesis) stream_.ExpectOperator(")");
}

std::unique_ptr<Statement> Parser::ParseFor(std::size_t begin) {
  auto statement = New(StatementKind::kFor, begin);
  ParseTargets(*statement, /*with_attributes=*/false);
  if (!stream_.SkipName("in")) stream_.Unexpected("in");
  statement->value = expressions_.ParseOr();
  if (stream_.SkipName("if")) statement->condition = expressions_.Parse(/*with_tuples=*/false);
  if (stream_.IsName("recursive")) stream_.Refuse("recursive loops are not supported");
  EndBlock();
  const bool was_nested = std::exchange(nested_, true);
  ++loops_;
  statement->branches.push_back({nullptr, ParseBody({"else", "endfor"})});
  --loops_;
  statement->branches.push_back({});
  if (SkipTag("else")) {
    EndBlock();
    statement->branches[1].body = ParseBody({"endfor"});
  }
  SkipTag("endfor");
  EndBlock();
  nested_ = was_nested;
  return statement;
}

std::unique_ptr<Statement> Parser::ParseSet(std::size_t begin) {
  auto statement = New(StatementKind::kSet, begin);
  ParseTargets(*statement, /*with_attributes=*/true);
  if (stream_.SkipOperator("=")) {
    statement->value = expressions_.Parse();
    EndBlock();
    return statement;
  }
  if (stream_.IsOperator("|") || statement->targets.size() != 1) stream_.Unexpected("=");
  EndBlock();
  const bool was_nested = std::exchange(nested_, true);
  const int outer_loops = std::exchange(loops_, 0);
  statement->branches.push_back({nullptr, ParseBody({"endset"})});
  loops_ = outer_loops;
  nested_ = was_nested;
  SkipTag("endset");
  EndBlock();
  return statement;
}

std::unique_ptr<Statement> Parser::ParseMacro(std::size_t begin) {
  // A macro sees the variables of the template's top level alone, which is right only there.
  if (nested_) stream_.Refuse("a macro inside a loop, branch or macro is not supported");
  auto statement = New(StatementKind::kMacro, begin);
  statement->targets.push_back({stream_.ExpectName("the name of the macro"), ""});
  stream_.ExpectOperator("(");
  while (!stream_.IsOperator(")")) {
    std::string name = stream_.ExpectName("the name of a parameter");
    ExprPtr value = stream_.SkipOperator("=") ? expressions_.Parse(/*with_tuples=*/false) : nullptr;
    statement->parameters.emplace_back(std::move(name), std::move(value));
    if (!stream_.IsOperator(")")) stream_.ExpectOperator(",");
  }
  stream_.Next();
  EndBlock();
  nested_ = true;
  statement->branches.push_back({nullptr, ParseBody({"endmacro"})});
  nested_ = false;
  SkipTag("endmacro");
  EndBlock();
  return statement;
}

}  // namespace

void TokenStream::Unexpected(std::string_view wanted) const {
  const Token& token = Peek();
  if (token.kind == TokenKind::kEnd)
    Refuse(fmt::format("expected {}, but the template ends", wanted));
  const std::size_t bytes = std::min<std::size_t>(token.end - token.begin, 40);
  Refuse(
      fmt::format("expected {}, not {}", wanted, JsonString(source_.substr(token.begin, bytes))));
}

Program Parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    Fail(ErrorCode::kUnsupported,
         "the chat template has {} bytes; allowed are {}; use --raw to pass the text as it stands",
         source.size(), kMaxSourceBytes);
  }
  Program program = {NormalizeSource(source), {}};
  program.body = Parser(program.source).Run();
  return program;
}

}  // namespace kvant::jinja
