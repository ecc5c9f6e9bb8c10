// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Statements; expressions are in evaluate.cc.

#include "llm/jinja/interpreter.h"

#include "llm/jinja/lexer.h"
#include "llm/jinja/operators.h"

namespace kvant::jinja {
namespace {

// Nested statements, expressions and macro calls together. A level takes well under a kilobyte of
// stack in an optimized build and a few kilobytes under sanitizers.
constexpr int kMaxEvaluationDepth = 300;

}  // namespace

Interpreter::Level::Level(Interpreter& interpreter) : interpreter_(interpreter) {
  interpreter_.context_.budget().Step();
  if (++interpreter_.depth_ <= kMaxEvaluationDepth) return;
  --interpreter_.depth_;
  Fail(ErrorCode::kResourceExhausted,
       "the chat template calls itself or nests more than {} levels deep; use --raw to pass the "
       "text as "
       "it stands",
       kMaxEvaluationDepth);
}

Interpreter::Interpreter(const Program& program, Budget budget) : context_(program, budget) {
  scopes_.emplace_back();
  using Kind = Function::Kind;
  Define("range", Value::Of(Function{Kind::kRange}));
  Define("namespace", Value::Of(Function{Kind::kNamespace}));
  Define("dict", Value::Of(Function{Kind::kDict}));
  Define("raise_exception", Value::Of(Function{Kind::kRaiseException}));
}

void Interpreter::Define(std::string_view name, Value value) {
  scopes_[0].variables[name] = std::move(value);
}

std::string Interpreter::Run() {
  std::string out;
  RunBody(context_.program().body, out);
  return out;
}

const Value* Interpreter::Find(std::string_view name) const {
  for (std::size_t i = scopes_.size(); i > visible_from_; --i) {
    const auto found = scopes_[i - 1].variables.find(name);
    if (found != scopes_[i - 1].variables.end()) return &found->second;
  }
  const auto found = scopes_[0].variables.find(name);
  return found == scopes_[0].variables.end() ? nullptr : &found->second;
}

const Interpreter::Loop* Interpreter::CurrentLoop() const {
  for (std::size_t i = scopes_.size(); i > visible_from_; --i) {
    if (scopes_[i - 1].loop != nullptr) return scopes_[i - 1].loop;
  }
  return nullptr;
}

Interpreter::Flow Interpreter::RunBody(const Body& body, std::string& out) {
  for (const auto& statement : body) {
    if (const Flow flow = RunStatement(*statement, out); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunStatement(const Statement& statement, std::string& out) {
  const Level level(*this);
  switch (statement.kind) {
    case StatementKind::kText:
      context_.budget().Make(statement.text.size());
      out += statement.text;
      return Flow::kNext;
    case StatementKind::kOutput:
      out += Text(context_, *statement.value, Evaluate(*statement.value));
      return Flow::kNext;
    case StatementKind::kIf:
      return RunIf(statement, out);
    case StatementKind::kFor:
      RunFor(statement, out);
      return Flow::kNext;
    case StatementKind::kSet:
      RunSet(statement);
      return Flow::kNext;
    case StatementKind::kMacro:
      scopes_.back().variables[statement.targets[0].name] =
          Value::Of(Function{Function::Kind::kMacro, &statement});
      return Flow::kNext;
    case StatementKind::kGroup:
      return RunBody(statement.branches[0].body, out);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunIf(const Statement& statement, std::string& out) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition == nullptr || Evaluate(*branch.condition).Truthy()) {
      return RunBody(branch.body, out);
    }
  }
  return Flow::kNext;
}

std::vector<Value> Interpreter::LoopItems(const Statement& statement) {
  std::vector<Value> items = Iterate(context_, *statement.value, Evaluate(*statement.value));
  if (statement.condition == nullptr) return items;
  std::vector<Value> kept;
  scopes_.emplace_back();
  for (const Value& item : items) {
    scopes_.back().variables.clear();
    Assign(statement.value.get(), statement.targets, item);
    if (Evaluate(*statement.condition).Truthy()) kept.push_back(item);
  }
  scopes_.pop_back();
  return kept;
}

void Interpreter::RunFor(const Statement& statement, std::string& out) {
  const std::vector<Value> items = LoopItems(statement);
  if (items.empty()) {
    scopes_.emplace_back();
    RunBody(statement.branches[1].body, out);
    scopes_.pop_back();
    return;
  }
  Loop loop = {&items, 0};
  scopes_.emplace_back();
  for (; loop.index < items.size(); ++loop.index) {
    context_.budget().Step();
    scopes_.back().variables.clear();  // an iteration does not see what the one before it set
    scopes_.back().loop = &loop;
    Assign(statement.value.get(), statement.targets, items[loop.index]);
    if (RunBody(statement.branches[0].body, out) == Flow::kBreak) break;
  }
  scopes_.pop_back();
}

void Interpreter::RunSet(const Statement& statement) {
  if (statement.value != nullptr) {
    return Assign(statement.value.get(), statement.targets, Evaluate(*statement.value));
  }
  std::string text;
  scopes_.emplace_back();
  RunBody(statement.branches[0].body, text);
  scopes_.pop_back();
  AssignOne(nullptr, statement.targets[0], Value::String(std::move(text)));
}

void Interpreter::Assign(const Expr* at, const std::vector<Target>& targets, const Value& value) {
  if (targets.size() == 1) return AssignOne(at, targets[0], value);
  const List* list = value.AsList();
  if (list == nullptr || list->items.size() != targets.size()) {
    context_.Refuse(
        *at, fmt::format("{} cannot be assigned to {} names", value.KindName(), targets.size()));
  }
  for (std::size_t i = 0; i < targets.size(); ++i) AssignOne(at, targets[i], list->items[i]);
}

void Interpreter::AssignOne(const Expr* at, const Target& target, const Value& value) {
  if (target.attribute.empty()) {
    scopes_.back().variables[target.name] = value;
    return;
  }
  const Value* owner = Find(target.name);
  Namespace* name_space = owner == nullptr ? nullptr : owner->AsNamespace();
  if (name_space == nullptr) {
    RefuseAt(context_.program().source, at == nullptr ? 0 : at->begin,
             fmt::format("'{}.{}' is assigned, but '{}' is no namespace", target.name,
                         target.attribute, target.name));
  }
  name_space->values[target.attribute] = value;
}

}  // namespace kvant::jinja
