// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What every operation of a rendering shares: the source for messages, the budget, and the form of
// arguments. Filters, tests and methods are functions of a Context and values; none of them sees
// variables.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/jinja/ast.h"
#include "llm/jinja/budget.h"
#include "llm/jinja/value.h"

namespace kvant::jinja {

class Context {
 public:
  /// The program must outlive the context.
  Context(const Program& program, Budget budget) : program_(&program), budget_(budget) {}

  const Program& program() const { return *program_; }
  Budget& budget() { return budget_; }
  /// Throws Error(kUnsupported) with the line, `what`, and the source of the expression.
  [[noreturn]] void Refuse(const Expr& at, std::string_view what) const;

 private:
  const Program* program_;
  Budget budget_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// The arguments in the order of `names`; those not given are empty. Refuses unknown, double and
/// too many ones, and fewer than `required`.
std::vector<std::optional<Value>> Bind(const Context& context, const Expr& at,
                                       const Arguments& arguments,
                                       std::initializer_list<std::string_view> names,
                                       std::size_t required = 0);

/// The string of an argument; refuses other kinds.
const std::string& NeedString(const Context& context, const Expr& at, const Value& value);
std::int64_t NeedInteger(const Context& context, const Expr& at, const Value& value);

/// expr | name(...). `at` is the whole expression, for messages; so below.
Value ApplyFilter(Context& context, const Expr& at, std::string_view name, const Value& input,
                  const Arguments& arguments);
/// expr is name(...)
bool ApplyTest(Context& context, const Expr& at, std::string_view name, const Value& input,
               const std::vector<Value>& arguments);
/// self.name(...) of strings and dicts.
Value CallMethod(Context& context, const Expr& at, const Value& self, std::string_view name,
                 const Arguments& arguments);
/// Is self.name a method, so that naming it without a call is refused?
bool IsMethod(const Value& self, std::string_view name);
/// Every occurrence of `from`, at most `limit` (negative: all).
Value Replace(Context& context, const Expr& at, std::string_view text, std::string_view from,
              std::string_view to, std::int64_t limit);
/// ASCII letters; refuses other text rather than changing a part of it.
enum class Case { kUpper, kLower, kCapitalize, kTitle };
Value ChangeCase(Context& context, const Expr& at, const std::string& text, Case target);
/// json.dumps(value, ensure_ascii=False, indent=indent); indent < 0: on one line.
std::string Json(Context& context, const Expr& at, const Value& value, std::int64_t indent);

}  // namespace kvant::jinja
