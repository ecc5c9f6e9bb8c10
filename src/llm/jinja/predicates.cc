// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tests of templates: value is name(arguments).

#include <array>

#include "llm/jinja/context.h"
#include "llm/jinja/operators.h"
#include "llm/jinja/text.h"

namespace kvant::jinja {
namespace {

bool IsSequence(const Value& v) {
  return v.AsString() != nullptr || v.AsList() != nullptr || v.AsDict() != nullptr ||
         v.IsUndefined();
}

struct KindTest {
  std::string_view name;
  bool (*holds)(const Value& value);
};

constexpr std::array<KindTest, 14> kKindTests = {{
    {"defined", [](const Value& v) { return !v.IsUndefined(); }},
    {"undefined", [](const Value& v) { return v.IsUndefined(); }},
    {"none", [](const Value& v) { return v.IsNone(); }},
    {"string", [](const Value& v) { return v.AsString() != nullptr; }},
    {"mapping", [](const Value& v) { return v.AsDict() != nullptr; }},
    {"sequence", IsSequence},
    {"iterable", IsSequence},
    {"number", [](const Value& v) { return v.AsNumber().has_value(); }},
    {"integer", [](const Value& v) { return v.IsInteger(); }},
    {"float", [](const Value& v) { return v.IsFloat(); }},
    {"boolean", [](const Value& v) { return v.IsBoolean(); }},
    {"true", [](const Value& v) { return v.IsBoolean() && v.Truthy(); }},
    {"false", [](const Value& v) { return v.IsBoolean() && !v.Truthy(); }},
    {"callable", [](const Value& v) { return v.AsFunction() != nullptr; }},
}};

struct Comparison {
  std::string_view name, op;
};

constexpr std::array<Comparison, 17> kComparisons = {{
    {"eq", "=="},
    {"equalto", "=="},
    {"==", "=="},
    {"ne", "!="},
    {"!=", "!="},
    {"lt", "<"},
    {"lessthan", "<"},
    {"<", "<"},
    {"le", "<="},
    {"<=", "<="},
    {"gt", ">"},
    {"greaterthan", ">"},
    {">", ">"},
    {"ge", ">="},
    {">=", ">="},
    {"in", "in"},
    {"sameas", "=="},
}};

bool IsRemainder(Context& context, const Expr& at, const Value& input, const Value& divisor,
                 std::int64_t remainder) {
  const Value rest = Arithmetic(context, at, "%", input, divisor);
  return rest.AsInteger() == remainder;
}

}  // namespace

bool ApplyTest(Context& context, const Expr& at, std::string_view name, const Value& input,
               const std::vector<Value>& arguments) {
  const auto need = [&](std::size_t count) {
    if (arguments.size() == count) return;
    context.Refuse(
        at, fmt::format("the test '{}' takes {} arguments, not {}", name, count, arguments.size()));
  };
  for (const KindTest& test : kKindTests) {
    if (test.name != name) continue;
    need(0);
    return test.holds(input);
  }
  for (const Comparison& comparison : kComparisons) {
    if (comparison.name != name) continue;
    need(1);
    // Identity equals equality for these kinds alone.
    if (name == "sameas") {
      const Value& other = arguments[0];
      if (!other.IsNone() && !other.IsBoolean()) {
        context.Refuse(at, "the test 'sameas' is supported for none, true and false alone");
      }
      return input.IsBoolean() == other.IsBoolean() && Equal(context, input, other);
    }
    return Compare(context, at, comparison.op, input, arguments[0]);
  }
  if (name == "odd" || name == "even") {
    need(0);
    return IsRemainder(context, at, input, Value::Integer(2), name == "odd" ? 1 : 0);
  }
  if (name == "divisibleby") {
    need(1);
    return IsRemainder(context, at, input, arguments[0], 0);
  }
  context.Refuse(at, fmt::format("the test '{}' is not supported", name));
}

}  // namespace kvant::jinja
