// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "llm/jinja/text.h"
#include "llm/utf8.h"

namespace kvant::jinja {
namespace {

std::string Mismatch(std::string_view op, const Value& left, const Value& right) {
  return fmt::format("'{}' between {} and {} is not allowed", op, left.KindName(),
                     right.KindName());
}

Value IntegerArithmetic(const Context& context, const Expr& at, std::string_view op, std::int64_t a,
                        std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(a, b, &result);
  if (op == "-") overflow = __builtin_sub_overflow(a, b, &result);
  if (op == "*") overflow = __builtin_mul_overflow(a, b, &result);
  if (op == "/" || op == "//" || op == "%") {
    if (b == 0) context.Refuse(at, "division by zero");
    if (op == "/") return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    overflow = a == std::numeric_limits<std::int64_t>::min() && b == -1;
    if (!overflow) {  // Python rounds towards minus infinity
      const bool adjust = a % b != 0 && (a < 0) != (b < 0);
      result = op == "%" ? a % b + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
    }
  }
  if (overflow) context.Refuse(at, "the result does not fit 64 bits");
  return Value::Integer(result);
}

Value FloatArithmetic(const Context& context, const Expr& at, std::string_view op, double a,
                      double b) {
  if (op == "+") return Value::Float(a + b);
  if (op == "-") return Value::Float(a - b);
  if (op == "*") return Value::Float(a * b);
  if (b == 0) context.Refuse(at, "division by zero");
  if (op == "/") return Value::Float(a / b);
  context.Refuse(at, fmt::format("'{}' on floats is not supported", op));
}

Value RepeatText(Context& context, const Expr& at, const std::string& text, std::int64_t times) {
  const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(times, 0));
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(n, static_cast<std::uint64_t>(text.size()), &bytes)) {
    context.Refuse(at, "the text is too long");
  }
  context.budget().Make(bytes);
  std::string repeated;
  for (std::uint64_t i = 0; i < n && !text.empty(); ++i) repeated += text;
  return Value::String(std::move(repeated));
}

Value Joined(Context& context, const Expr& at, const List& left, const List& right) {
  if (left.tuple != right.tuple)
    context.Refuse(at, "'+' between a list and a tuple is not allowed");
  context.budget().Make(sizeof(Value) * (left.items.size() + right.items.size()));
  List list = {left.items, left.tuple, 0};
  list.items.insert(list.items.end(), right.items.begin(), right.items.end());
  return Value::Of(std::move(list));
}

bool Contains(Context& context, const Expr& at, const Value& item, const Value& container) {
  if (const std::string* text = container.AsString()) {
    const std::string& part = NeedString(context, at, item);
    // The search compares up to |part| bytes at every place.
    context.budget().Step(text->size() *
                          std::min<std::uint64_t>(part.size() + 1, text->size() + 1) / 4096);
    return text->find(part) != std::string::npos;
  }
  if (const Dict* dict = container.AsDict()) {
    const std::string* key = item.AsString();
    return key != nullptr && dict->Find(*key) != nullptr;
  }
  if (container.IsUndefined()) return false;
  const List* list = container.AsList();
  if (list == nullptr) context.Refuse(at, Mismatch("in", item, container));
  return std::any_of(list->items.begin(), list->items.end(),
                     [&](const Value& other) { return Equal(context, item, other); });
}

bool Ordered(std::string_view op, int order) {
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

std::optional<std::size_t> Place(std::int64_t index, std::size_t size) {
  const auto n = static_cast<std::int64_t>(size);
  if (index < 0) index += n;
  if (index < 0 || index >= n) return std::nullopt;
  return static_cast<std::size_t>(index);
}

// The indices that Python's slice(start, stop, step) selects from `size` items.
std::vector<std::size_t> SliceIndices(Context& context, const Expr& at, const Value& start,
                                      const Value& stop, const Value& step, std::size_t size) {
  const std::int64_t by = step.IsNone() ? 1 : NeedInteger(context, at, step);
  if (by == 0) context.Refuse(at, "a slice step of 0 is not allowed");
  const auto n = static_cast<std::int64_t>(size);
  const auto clamp = [&](const Value& bound, std::int64_t fallback) {
    if (bound.IsNone()) return fallback;
    std::int64_t index = NeedInteger(context, at, bound);
    if (index < 0) index = index < -n ? -1 : index + n;
    const std::int64_t low = by > 0 ? 0 : -1;
    return std::clamp(index, low, by > 0 ? n : n - 1);
  };
  const std::int64_t first = clamp(start, by > 0 ? 0 : n - 1);
  const std::int64_t last = clamp(stop, by > 0 ? n : -1);
  std::vector<std::size_t> indices;
  for (std::int64_t i = first; by > 0 ? i < last : i > last;) {
    indices.push_back(static_cast<std::size_t>(i));
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return indices;
}

}  // namespace

Value Arithmetic(Context& context, const Expr& at, std::string_view op, const Value& left,
                 const Value& right) {
  const auto a = left.AsInteger();
  const auto b = right.AsInteger();
  if (a && b) return IntegerArithmetic(context, at, op, *a, *b);
  if (left.AsNumber() && right.AsNumber()) {
    return FloatArithmetic(context, at, op, *left.AsNumber(), *right.AsNumber());
  }
  const std::string* text = left.AsString();
  if (op == "+" && text != nullptr && right.AsString() != nullptr) {
    context.budget().Make(text->size() + right.AsString()->size());
    return Value::String(*text + *right.AsString());
  }
  if (op == "+" && left.AsList() != nullptr && right.AsList() != nullptr) {
    return Joined(context, at, *left.AsList(), *right.AsList());
  }
  if (op == "*" && text != nullptr && b) return RepeatText(context, at, *text, *b);
  if (op == "*" && right.AsString() != nullptr && a)
    return RepeatText(context, at, *right.AsString(), *a);
  context.Refuse(at, Mismatch(op, left, right));
}

Value Sign(const Context& context, const Expr& at, bool negative, const Value& value) {
  if (const auto integer = value.AsInteger()) {
    return IntegerArithmetic(context, at, negative ? "-" : "+", 0, *integer);
  }
  const auto number = value.AsNumber();
  if (!number) context.Refuse(at, fmt::format("a sign before {} is not allowed", value.KindName()));
  return Value::Float(negative ? -*number : *number);
}

bool Equal(Context& context, const Value& left, const Value& right) {
  context.budget().Step();
  if (left.AsNumber() && right.AsNumber()) {
    if (left.AsInteger() && right.AsInteger()) return *left.AsInteger() == *right.AsInteger();
    return *left.AsNumber() == *right.AsNumber();
  }
  if (left.AsString() != nullptr && right.AsString() != nullptr) {
    context.budget().Scan(std::min(left.AsString()->size(), right.AsString()->size()));
    return *left.AsString() == *right.AsString();
  }
  if (const List* a = left.AsList(), *b = right.AsList(); a != nullptr && b != nullptr) {
    if (a->tuple != b->tuple || a->items.size() != b->items.size()) return false;
    return std::equal(a->items.begin(), a->items.end(), b->items.begin(),
                      [&](const Value& x, const Value& y) { return Equal(context, x, y); });
  }
  if (const Dict* a = left.AsDict(), *b = right.AsDict(); a != nullptr && b != nullptr) {
    if (a->items.size() != b->items.size()) return false;
    return std::all_of(a->items.begin(), a->items.end(), [&](const auto& item) {
      const Value* other = b->Find(item.first);
      return other != nullptr && Equal(context, item.second, *other);
    });
  }
  if (left.AsNamespace() != nullptr) return left.AsNamespace() == right.AsNamespace();
  return (left.IsNone() && right.IsNone()) || (left.IsUndefined() && right.IsUndefined());
}

bool Compare(Context& context, const Expr& at, std::string_view op, const Value& left,
             const Value& right) {
  if (op == "==") return Equal(context, left, right);
  if (op == "!=") return !Equal(context, left, right);
  if (op == "in") return Contains(context, at, left, right);
  if (op == "not in") return !Contains(context, at, left, right);
  if (left.AsInteger() && right.AsInteger()) {
    const std::int64_t a = *left.AsInteger();
    const std::int64_t b = *right.AsInteger();
    return Ordered(op, a < b ? -1 : a > b ? 1 : 0);
  }
  if (left.AsNumber() && right.AsNumber()) {
    const double a = *left.AsNumber();
    const double b = *right.AsNumber();
    if (std::isnan(a) || std::isnan(b)) return false;
    return Ordered(op, a < b ? -1 : a > b ? 1 : 0);
  }
  if (left.AsString() != nullptr && right.AsString() != nullptr) {
    context.budget().Scan(std::min(left.AsString()->size(), right.AsString()->size()));
    return Ordered(op, left.AsString()->compare(*right.AsString()));
  }
  context.Refuse(at, Mismatch(op, left, right));
}

Value Item(Context& context, const Expr& at, const Value& base, const Value& index) {
  if (base.IsUndefined()) context.Refuse(at, "the value before '[' is undefined");
  if (const std::string* name = index.AsString()) {
    if (const Dict* dict = base.AsDict()) {  // an entry comes before a method
      if (const Value* entry = dict->Find(*name)) return *entry;
    }
    return Attribute(context, at, base, *name);
  }
  const auto number = index.AsInteger();
  if (!number) return Value();
  if (const List* list = base.AsList()) {
    const auto place = Place(*number, list->items.size());
    return place ? list->items[*place] : Value();
  }
  if (const std::string* text = base.AsString()) {
    context.budget().Step(1 + text->size() / 64);
    const std::vector<std::size_t> offsets = CharacterOffsets(*text);
    const auto place = Place(*number, offsets.size() - 1);
    if (!place) return Value();
    return Value::String(text->substr(offsets[*place], offsets[*place + 1] - offsets[*place]));
  }
  return Value();
}

Value Attribute(const Context& context, const Expr& at, const Value& base, std::string_view name) {
  if (base.IsUndefined()) {
    context.Refuse(at, fmt::format("'{}' is read of an undefined value", name));
  }
  if (const Namespace* name_space = base.AsNamespace()) {
    const auto found = name_space->values.find(name);
    return found == name_space->values.end() ? Value() : found->second;
  }
  if (IsMethod(base, name)) context.Refuse(at, "a method that is not called is not supported");
  const Dict* dict = base.AsDict();
  const Value* entry = dict == nullptr ? nullptr : dict->Find(name);
  return entry == nullptr ? Value() : *entry;
}

Value Slice(Context& context, const Expr& at, const Value& base, const Value& start,
            const Value& stop, const Value& step) {
  if (const List* list = base.AsList()) {
    context.budget().Step(list->items.size());
    List part = {{}, list->tuple, 0};
    for (const std::size_t i : SliceIndices(context, at, start, stop, step, list->items.size())) {
      context.budget().Make(sizeof(Value));
      part.items.push_back(list->items[i]);
    }
    return Value::Of(std::move(part));
  }
  if (const std::string* text = base.AsString()) {
    context.budget().Step(1 + text->size() / 64);
    context.budget().Make(text->size());
    const std::vector<std::size_t> offsets = CharacterOffsets(*text);
    std::string part;
    for (const std::size_t i : SliceIndices(context, at, start, stop, step, offsets.size() - 1)) {
      part.append(*text, offsets[i], offsets[i + 1] - offsets[i]);
    }
    return Value::String(std::move(part));
  }
  context.Refuse(at, fmt::format("a slice of {} is not allowed", base.KindName()));
}

std::vector<Value> Iterate(Context& context, const Expr& at, const Value& value) {
  std::vector<Value> items;
  if (const List* list = value.AsList()) {
    context.budget().Make(sizeof(Value) * list->items.size());
    context.budget().Step(list->items.size());
    items = list->items;
  } else if (const Dict* dict = value.AsDict()) {
    for (const auto& [key, entry] : dict->items) {
      context.budget().Step();
      context.budget().Make(sizeof(Value) + key.size());
      items.push_back(Value::String(key));
    }
  } else if (const std::string* text = value.AsString()) {
    for (std::string_view rest = *text; !rest.empty();) {
      const std::size_t bytes = ReadUtf8(rest).bytes;
      context.budget().Step();
      context.budget().Make(sizeof(Value) + bytes);
      items.push_back(Value::String(std::string(rest.substr(0, bytes))));
      rest.remove_prefix(bytes);
    }
  } else if (!value.IsUndefined()) {
    context.Refuse(at, fmt::format("{} has no items", value.KindName()));
  }
  return items;
}

std::string Text(Context& context, const Expr& at, const Value& value) {
  if (const std::string* text = value.AsString()) {
    context.budget().Make(text->size());
    return *text;
  }
  if (value.IsUndefined()) return "";
  if (value.IsNone()) return "None";
  if (value.IsBoolean()) return value.Truthy() ? "True" : "False";
  if (value.IsInteger()) return fmt::format("{}", *value.AsInteger());
  if (value.IsFloat()) return FloatText(*value.AsNumber());
  context.Refuse(
      at, fmt::format("{} printed as text is not supported; tojson or join can", value.KindName()));
}

}  // namespace kvant::jinja
