// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Runs a parsed template. One interpreter serves one rendering.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llm/jinja/context.h"

namespace kvant::jinja {

class Interpreter {
 public:
  /// The program must outlive the interpreter.
  Interpreter(const Program& program, Budget budget);

  /// Defines a variable of the top level. `name` must outlive the interpreter.
  void Define(std::string_view name, Value value);
  /// The text of the template. Throws Error: kUnsupported for what is outside the subset or wrong
  /// in the template, kInvalidArgument where the template calls raise_exception, kResourceExhausted
  /// past the budget.
  std::string Run();

 private:
  enum class Flow { kNext, kBreak, kContinue };

  struct Loop {
    const std::vector<Value>* items;
    std::size_t index;
  };
  struct Scope {
    std::unordered_map<std::string_view, Value> variables;
    const Loop* loop = nullptr;
  };
  // Bounds the stack that nested evaluation takes, for its life time.
  class Level {
   public:
    explicit Level(Interpreter& interpreter);
    ~Level() { --interpreter_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Interpreter& interpreter_;
  };

  // Statements.
  Flow RunBody(const Body& body, std::string& out);
  Flow RunStatement(const Statement& statement, std::string& out);
  Flow RunIf(const Statement& statement, std::string& out);
  void RunFor(const Statement& statement, std::string& out);
  std::vector<Value> LoopItems(const Statement& statement);
  void RunSet(const Statement& statement);
  void Assign(const Expr* at, const std::vector<Target>& targets, const Value& value);
  void AssignOne(const Expr* at, const Target& target, const Value& value);

  // Expressions.
  Value Evaluate(const Expr& expr);
  Value EvaluateName(const Expr& expr);
  Value EvaluateList(const Expr& expr);
  Value EvaluateDict(const Expr& expr);
  Value EvaluateUnary(const Expr& expr);
  Value EvaluateBinary(const Expr& expr);
  Value EvaluateConcat(const Expr& expr);
  Value EvaluateCompare(const Expr& expr);
  Value EvaluateConditional(const Expr& expr);
  Value EvaluateAttribute(const Expr& expr);
  Value EvaluateSlice(const Expr& expr);
  Value EvaluateFilter(const Expr& expr);
  Value EvaluateTest(const Expr& expr);
  Value EvaluateCall(const Expr& expr);
  Arguments EvaluateArguments(const Expr& expr);
  Value LoopAttribute(const Expr& at, const Loop& loop, std::string_view name);
  Value Call(const Expr& at, const Function& function, const Arguments& arguments);
  Value CallMacro(const Expr& at, const Statement& macro, const Arguments& arguments);
  Value Range(const Expr& at, const Arguments& arguments);

  const Value* Find(std::string_view name) const;
  const Loop* CurrentLoop() const;

  Context context_;
  std::vector<Scope> scopes_;         // the top level first
  std::size_t visible_from_ = 1;      // of the scopes above the top level, those that a macro sees
  std::deque<Namespace> namespaces_;  // all that the template made
  int depth_ = 0;
};

}  // namespace kvant::jinja
