// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The syntax tree of a template. Its depth is bounded by the parser, so recursion over it is safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llm/jinja/value.h"

namespace kvant::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
  kLiteral,      // literal
  kName,         // name
  kList,         // args
  kTuple,        // args
  kDict,         // args: key, value, key, value, ...
  kUnary,        // name: "not", "-", "+"; args[0]
  kBinary,       // name: "and", "or" or an arithmetic operator; args[0], args[1]
  kConcat,       // args, joined as text: a ~ b ~ c
  kCompare,      // args[0] ops[0] args[1] ops[1] args[2] ...
  kConditional,  // args[0] if args[1] else args[2] (may be null)
  kAttribute,    // args[0].name
  kItem,         // args[0][args[1]]
  kSlice,        // args[0][args[1] : args[2] : args[3]], each of the three may be null
  kCall,         // args[0](args[1...], named)
  kFilter,       // args[0] | name(args[1...], named)
  kTest,         // args[0] is name(args[1...]); negated by `negated`
};

struct Expr {
  ExprKind kind;
  std::size_t begin = 0, end = 0;  // bytes of the source
  int depth = 1;
  std::string name;
  Value literal;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<std::string> ops;
  bool negated = false;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind {
  kText,    // text
  kOutput,  // value
  kIf,      // branches; the last one has no condition where there is an else
  kFor,     // targets in value, if condition (may be null); branches[0] the loop, [1] its else
  kSet,     // targets = value, or targets[0] = branches[0] as text where value is null
  kMacro,   // targets[0](parameters): branches[0]
  kGroup,   // branches[0] alone
  kBreak,
  kContinue,
};

struct Target {
  std::string name;
  std::string attribute;  // of a namespace; empty: a plain variable
};

struct Branch {
  ExprPtr condition;  // null: always
  Body body;
};

struct Statement {
  StatementKind kind;
  std::size_t begin = 0;  // byte of the source
  std::string text;
  std::vector<Target> targets;
  ExprPtr value;
  ExprPtr condition;
  std::vector<Branch> branches;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // default value or null
};

struct Program {
  std::string source;  // normalized
  Body body;
};

}  // namespace kvant::jinja
