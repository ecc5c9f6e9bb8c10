// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Expressions of the interpreter.

#include "llm/jinja/interpreter.h"
#include "llm/jinja/operators.h"

namespace kvant::jinja {

Value Interpreter::Evaluate(const Expr& expr) {
  const Level level(*this);
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.literal;
    case ExprKind::kName:
      return EvaluateName(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvaluateList(expr);
    case ExprKind::kDict:
      return EvaluateDict(expr);
    case ExprKind::kUnary:
      return EvaluateUnary(expr);
    case ExprKind::kBinary:
      return EvaluateBinary(expr);
    case ExprKind::kConcat:
      return EvaluateConcat(expr);
    case ExprKind::kCompare:
      return EvaluateCompare(expr);
    case ExprKind::kConditional:
      return EvaluateConditional(expr);
    case ExprKind::kAttribute:
      return EvaluateAttribute(expr);
    case ExprKind::kItem: {
      const Value base = Evaluate(*expr.args[0]);
      return Item(context_, expr, base, Evaluate(*expr.args[1]));
    }
    case ExprKind::kSlice:
      return EvaluateSlice(expr);
    case ExprKind::kCall:
      return EvaluateCall(expr);
    case ExprKind::kFilter:
      return EvaluateFilter(expr);
    case ExprKind::kTest:
      return EvaluateTest(expr);
  }
  return Value();
}

Value Interpreter::EvaluateName(const Expr& expr) {
  if (expr.name == "loop" && CurrentLoop() != nullptr) {
    context_.Refuse(expr, "'loop' as a value is not supported; its attributes are");
  }
  const Value* value = Find(expr.name);
  return value == nullptr ? Value() : *value;
}

Value Interpreter::EvaluateList(const Expr& expr) {
  List list = {{}, expr.kind == ExprKind::kTuple, 0};
  context_.budget().Make(sizeof(Value) * expr.args.size());
  for (const ExprPtr& item : expr.args) list.items.push_back(Evaluate(*item));
  return Value::Of(std::move(list));
}

Value Interpreter::EvaluateDict(const Expr& expr) {
  Dict dict;
  for (std::size_t i = 0; i < expr.args.size(); i += 2) {
    const Value key = Evaluate(*expr.args[i]);
    const std::string* name = key.AsString();
    if (name == nullptr) context_.Refuse(expr, "a key that is no string is not supported");
    context_.budget().Make(name->size() + 4 * sizeof(Value));
    dict.Set(*name, Evaluate(*expr.args[i + 1]));
  }
  return Value::Of(std::move(dict));
}

Value Interpreter::EvaluateUnary(const Expr& expr) {
  const Value value = Evaluate(*expr.args[0]);
  if (expr.name == "not") return Value::Boolean(!value.Truthy());
  return Sign(context_, expr, expr.name == "-", value);
}

Value Interpreter::EvaluateBinary(const Expr& expr) {
  const Value left = Evaluate(*expr.args[0]);
  // "and" and "or" give the deciding operand itself, as in Python.
  if (expr.name == "and") return left.Truthy() ? Evaluate(*expr.args[1]) : left;
  if (expr.name == "or") return left.Truthy() ? left : Evaluate(*expr.args[1]);
  return Arithmetic(context_, expr, expr.name, left, Evaluate(*expr.args[1]));
}

Value Interpreter::EvaluateConcat(const Expr& expr) {
  std::string text;
  for (const ExprPtr& part : expr.args) text += Text(context_, *part, Evaluate(*part));
  return Value::String(std::move(text));
}

Value Interpreter::EvaluateCompare(const Expr& expr) {
  Value left = Evaluate(*expr.args[0]);
  for (std::size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = Evaluate(*expr.args[i + 1]);
    if (!Compare(context_, expr, expr.ops[i], left, right)) return Value::Boolean(false);
    left = std::move(right);
  }
  return Value::Boolean(true);
}

Value Interpreter::EvaluateConditional(const Expr& expr) {
  if (Evaluate(*expr.args[1]).Truthy()) return Evaluate(*expr.args[0]);
  return expr.args[2] == nullptr ? Value() : Evaluate(*expr.args[2]);
}

Value Interpreter::EvaluateAttribute(const Expr& expr) {
  const Expr& base = *expr.args[0];
  if (base.kind == ExprKind::kName && base.name == "loop") {
    if (const Loop* loop = CurrentLoop()) return LoopAttribute(expr, *loop, expr.name);
  }
  return Attribute(context_, expr, Evaluate(base), expr.name);
}

Value Interpreter::LoopAttribute(const Expr& at, const Loop& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items->size());
  if (name == "index") return Value::Integer(index + 1);
  if (name == "index0") return Value::Integer(index);
  if (name == "revindex") return Value::Integer(length - index);
  if (name == "revindex0") return Value::Integer(length - index - 1);
  if (name == "first") return Value::Boolean(index == 0);
  if (name == "last") return Value::Boolean(index + 1 == length);
  if (name == "length") return Value::Integer(length);
  if (name == "previtem") return index == 0 ? Value() : (*loop.items)[loop.index - 1];
  if (name == "nextitem") return index + 1 == length ? Value() : (*loop.items)[loop.index + 1];
  context_.Refuse(at, fmt::format("'loop.{}' is not supported", name));
}

Value Interpreter::EvaluateSlice(const Expr& expr) {
  const Value base = Evaluate(*expr.args[0]);
  const auto bound = [&](std::size_t i) {
    return expr.args[i] == nullptr ? Value::None() : Evaluate(*expr.args[i]);
  };
  const Value start = bound(1);
  const Value stop = bound(2);
  return Slice(context_, expr, base, start, stop, bound(3));
}

Value Interpreter::EvaluateFilter(const Expr& expr) {
  const Value input = Evaluate(*expr.args[0]);
  return ApplyFilter(context_, expr, expr.name, input, EvaluateArguments(expr));
}

Value Interpreter::EvaluateTest(const Expr& expr) {
  const Value input = Evaluate(*expr.args[0]);
  const Arguments arguments = EvaluateArguments(expr);
  return Value::Boolean(ApplyTest(context_, expr, expr.name, input, arguments.positional) !=
                        expr.negated);
}

Arguments Interpreter::EvaluateArguments(const Expr& expr) {
  Arguments arguments;
  for (std::size_t i = 1; i < expr.args.size(); ++i) {
    arguments.positional.push_back(Evaluate(*expr.args[i]));
  }
  for (const auto& [name, value] : expr.named) arguments.named.emplace_back(name, Evaluate(*value));
  return arguments;
}

Value Interpreter::EvaluateCall(const Expr& expr) {
  const Expr& callee = *expr.args[0];
  if (callee.kind == ExprKind::kAttribute) {
    const Expr& owner = *callee.args[0];
    const Loop* loop =
        owner.kind == ExprKind::kName && owner.name == "loop" ? CurrentLoop() : nullptr;
    if (loop != nullptr) {
      const Arguments arguments = EvaluateArguments(expr);
      if (callee.name != "cycle" || arguments.positional.empty()) {
        context_.Refuse(expr, "of the functions of 'loop', only cycle is supported");
      }
      return arguments.positional[loop->index % arguments.positional.size()];
    }
    const Value self = Evaluate(owner);
    if (self.AsNamespace() == nullptr) {
      return CallMethod(context_, expr, self, callee.name, EvaluateArguments(expr));
    }
  }
  const Value value = Evaluate(callee);
  const Function* function = value.AsFunction();
  if (function == nullptr) {
    context_.Refuse(expr, fmt::format("{} cannot be called", value.KindName()));
  }
  return Call(expr, *function, EvaluateArguments(expr));
}

Value Interpreter::Call(const Expr& at, const Function& function, const Arguments& arguments) {
  switch (function.kind) {
    case Function::Kind::kRange:
      return Range(at, arguments);
    case Function::Kind::kMacro:
      return CallMacro(at, *function.macro, arguments);
    case Function::Kind::kRaiseException: {
      const auto bound = Bind(context_, at, arguments, {"message"}, 1);
      Fail(ErrorCode::kInvalidArgument, "the model's chat template refuses these messages: {}",
           Text(context_, at, *bound[0]));
    }
    case Function::Kind::kNamespace:
    case Function::Kind::kDict:
      break;
  }
  Dict dict;
  if (arguments.positional.size() > 1) context_.Refuse(at, "more than one argument without a name");
  if (!arguments.positional.empty()) {
    const Dict* base = arguments.positional[0].AsDict();
    if (base == nullptr) context_.Refuse(at, "an argument that is no dict is not supported");
    dict = *base;
  }
  for (const auto& [name, value] : arguments.named) dict.Set(name, value);
  for (const auto& [name, value] : dict.items)
    context_.budget().Make(name.size() + 4 * sizeof(Value));
  if (function.kind == Function::Kind::kDict) return Value::Of(std::move(dict));
  context_.budget().Make(sizeof(Namespace));
  namespaces_.emplace_back();
  for (auto& [name, value] : dict.items) namespaces_.back().values[name] = std::move(value);
  return Value::Of(&namespaces_.back());
}

Value Interpreter::CallMacro(const Expr& at, const Statement& macro, const Arguments& arguments) {
  if (arguments.positional.size() > macro.parameters.size()) {
    context_.Refuse(at, fmt::format("the macro '{}' takes {} arguments", macro.targets[0].name,
                                    macro.parameters.size()));
  }
  Scope scope;
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    scope.variables[macro.parameters[i].first] = arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    bool known = false;
    for (const auto& [parameter, fallback] : macro.parameters) {
      if (parameter == name) known = scope.variables.try_emplace(parameter, value).second;
    }
    if (!known) {
      context_.Refuse(at, fmt::format("the macro '{}' takes no further argument '{}'",
                                      macro.targets[0].name, name));
    }
  }
  // The macro sees the top level and its own parameters, not the variables of its caller.
  const std::size_t outer = std::exchange(visible_from_, scopes_.size());
  scopes_.push_back(std::move(scope));
  for (const auto& [parameter, fallback] : macro.parameters) {
    if (scopes_.back().variables.count(parameter) != 0) continue;
    Value value = fallback == nullptr ? Value() : Evaluate(*fallback);
    scopes_.back().variables[parameter] = std::move(value);
  }
  std::string text;
  RunBody(macro.branches[0].body, text);
  scopes_.pop_back();
  visible_from_ = outer;
  return Value::String(std::move(text));
}

Value Interpreter::Range(const Expr& at, const Arguments& arguments) {
  const auto bound = Bind(context_, at, arguments, {"start", "stop", "step"}, 1);
  std::int64_t start = 0;
  std::int64_t stop = NeedInteger(context_, at, *bound[0]);
  if (bound[1]) {
    start = stop;
    stop = NeedInteger(context_, at, *bound[1]);
  }
  const std::int64_t step = bound[2] ? NeedInteger(context_, at, *bound[2]) : 1;
  if (step == 0) context_.Refuse(at, "a range step of 0 is not allowed");
  List list;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    context_.budget().Step();
    context_.budget().Make(sizeof(Value));
    list.items.push_back(Value::Integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::Of(std::move(list));
}

}  // namespace kvant::jinja
