// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The filters of templates: value | name(arguments).

#include <algorithm>
#include <array>
#include <cmath>

#include "llm/jinja/context.h"
#include "llm/jinja/operators.h"
#include "llm/jinja/text.h"

namespace kvant::jinja {
namespace {

using Bound = std::vector<std::optional<Value>>;

struct FilterCall {
  Context& context;
  const Expr& at;
  std::string_view name;
  const Value& input;
  const Arguments& arguments;

  Bound BindTo(std::initializer_list<std::string_view> names, std::size_t required = 0) const {
    return Bind(context, at, arguments, names, required);
  }
  [[noreturn]] void RefuseInput() const {
    context.Refuse(at,
                   fmt::format("the filter '{}' of {} is not supported", name, input.KindName()));
  }
};

// Entry of an item by a dotted path: "function.name".
Value Lookup(const FilterCall& call, Value item, std::string_view path) {
  for (;;) {
    const std::size_t dot = path.find('.');
    item = Item(call.context, call.at, item, Value::String(std::string(path.substr(0, dot))));
    if (dot == std::string_view::npos) return item;
    path.remove_prefix(dot + 1);
  }
}

Value Trim(const FilterCall& call) {
  const Value text = Value::String(Text(call.context, call.at, call.input));
  return CallMethod(call.context, call.at, text, "strip", call.arguments);
}

Value ChangeCaseOf(const FilterCall& call) {
  call.BindTo({});
  const Case target = call.name == "upper"   ? Case::kUpper
                      : call.name == "lower" ? Case::kLower
                                             : Case::kCapitalize;
  return ChangeCase(call.context, call.at, Text(call.context, call.at, call.input), target);
}

Value Length(const FilterCall& call) {
  call.BindTo({});
  std::size_t length = 0;
  if (const std::string* text = call.input.AsString()) {
    call.context.budget().Step(1 + text->size() / 64);
    length = CountCharacters(*text);
  } else if (const List* list = call.input.AsList()) {
    length = list->items.size();
  } else if (const Dict* dict = call.input.AsDict()) {
    length = dict->items.size();
  } else if (!call.input.IsUndefined()) {
    call.RefuseInput();
  }
  return Value::Integer(static_cast<std::int64_t>(length));
}

Value JoinItems(const FilterCall& call) {
  const Bound bound = call.BindTo({"d", "attribute"});
  const std::string separator = bound[0] ? Text(call.context, call.at, *bound[0]) : "";
  std::string joined;
  bool first = true;
  for (const Value& item : Iterate(call.context, call.at, call.input)) {
    const Value value =
        bound[1] ? Lookup(call, item, NeedString(call.context, call.at, *bound[1])) : item;
    call.context.budget().Make(separator.size());
    if (!first) joined += separator;
    joined += Text(call.context, call.at, value);
    first = false;
  }
  return Value::String(std::move(joined));
}

Value Default(const FilterCall& call) {
  const Bound bound = call.BindTo({"default_value", "boolean"});
  const bool replace_false = bound[1] && bound[1]->Truthy();
  const bool replace = call.input.IsUndefined() || (replace_false && !call.input.Truthy());
  if (!replace) return call.input;
  return bound[0] ? *bound[0] : Value::String("");
}

Value ToJson(const FilterCall& call) {
  const Bound bound = call.BindTo({"ensure_ascii", "indent"});
  if (bound[0] && bound[0]->Truthy()) {
    call.context.Refuse(call.at, "tojson with ensure_ascii is not supported");
  }
  const bool indented = bound[1] && !bound[1]->IsNone();
  const std::int64_t indent = indented ? NeedInteger(call.context, call.at, *bound[1]) : -1;
  if (indented && (indent < 0 || indent > 16)) {
    call.context.Refuse(call.at, "tojson indents by 0 to 16 characters");
  }
  return Value::String(Json(call.context, call.at, call.input, indent));
}

Value FirstOrLast(const FilterCall& call) {
  call.BindTo({});
  const std::vector<Value> items = Iterate(call.context, call.at, call.input);
  if (items.empty()) return Value();
  return call.name == "first" ? items.front() : items.back();
}

Value ToList(const FilterCall& call) {
  call.BindTo({});
  List list = {Iterate(call.context, call.at, call.input), false, 0};
  return Value::Of(std::move(list));
}

Value Reverse(const FilterCall& call) {
  call.BindTo({});
  const bool is_text = call.input.AsString() != nullptr;
  List list = {Iterate(call.context, call.at, call.input), false, 0};
  std::reverse(list.items.begin(), list.items.end());
  if (!is_text) return Value::Of(std::move(list));
  std::string reversed;
  for (const Value& character : list.items) reversed += *character.AsString();
  return Value::String(std::move(reversed));
}

Value ToText(const FilterCall& call) {
  call.BindTo({});
  return Value::String(Text(call.context, call.at, call.input));
}

Value ToInteger(const FilterCall& call) {
  call.BindTo({});
  if (const auto integer = call.input.AsInteger()) return Value::Integer(*integer);
  const auto number = call.input.AsNumber();
  if (!number || !(std::fabs(*number) < 0x1p62)) call.RefuseInput();
  return Value::Integer(static_cast<std::int64_t>(*number));
}

Value Absolute(const FilterCall& call) {
  call.BindTo({});
  const auto number = call.input.AsNumber();
  if (!number) call.RefuseInput();
  return Sign(call.context, call.at, *number < 0, call.input);
}

Value ReplaceText(const FilterCall& call) {
  const Bound bound = call.BindTo({"old", "new", "count"}, 2);
  const bool limited = bound[2] && !bound[2]->IsNone();
  const std::int64_t limit = limited ? NeedInteger(call.context, call.at, *bound[2]) : -1;
  return Replace(call.context, call.at, Text(call.context, call.at, call.input),
                 NeedString(call.context, call.at, *bound[0]),
                 NeedString(call.context, call.at, *bound[1]), limit);
}

Value Items(const FilterCall& call) {
  call.BindTo({});
  if (call.input.IsUndefined()) return Value::Of(List{});
  if (call.input.AsDict() == nullptr) call.RefuseInput();
  return CallMethod(call.context, call.at, call.input, "items", {});
}

// map(attribute=..., default=...) or map("filter", arguments...)
Value Map(const FilterCall& call) {
  List mapped;
  const bool by_attribute = call.arguments.positional.empty();
  if (by_attribute) {
    const Bound bound = call.BindTo({"attribute", "default"}, 1);
    const std::string& path = NeedString(call.context, call.at, *bound[0]);
    for (const Value& item : Iterate(call.context, call.at, call.input)) {
      call.context.budget().Step();
      Value value = Lookup(call, item, path);
      if (value.IsUndefined() && bound[1]) value = *bound[1];
      mapped.items.push_back(std::move(value));
    }
    return Value::Of(std::move(mapped));
  }
  Arguments rest = call.arguments;
  const std::string filter = NeedString(call.context, call.at, rest.positional[0]);
  rest.positional.erase(rest.positional.begin());
  // A filter that maps again could nest without end through its own argument.
  if (filter == "map") call.context.Refuse(call.at, "map of map is not supported");
  for (const Value& item : Iterate(call.context, call.at, call.input)) {
    call.context.budget().Step();
    mapped.items.push_back(ApplyFilter(call.context, call.at, filter, item, rest));
  }
  return Value::Of(std::move(mapped));
}

// select, reject: by the item itself; selectattr, rejectattr: by an entry of it. Without a test the
// value counts as true or false.
Value Select(const FilterCall& call) {
  const bool by_attribute = call.name == "selectattr" || call.name == "rejectattr";
  const bool keep = call.name == "select" || call.name == "selectattr";
  std::vector<Value> rest = call.arguments.positional;
  if (!call.arguments.named.empty())
    call.context.Refuse(call.at, "named arguments are not supported");
  std::string path, test;
  if (by_attribute) {
    if (rest.empty()) call.context.Refuse(call.at, "the name of an attribute is missing");
    path = NeedString(call.context, call.at, rest[0]);
    rest.erase(rest.begin());
  }
  if (!rest.empty()) {
    test = NeedString(call.context, call.at, rest[0]);
    rest.erase(rest.begin());
  }
  List selected;
  for (const Value& item : Iterate(call.context, call.at, call.input)) {
    call.context.budget().Step();
    const Value value = by_attribute ? Lookup(call, item, path) : item;
    const bool holds =
        test.empty() ? value.Truthy() : ApplyTest(call.context, call.at, test, value, rest);
    if (holds == keep) selected.items.push_back(item);
  }
  return Value::Of(std::move(selected));
}

struct Filter {
  std::string_view name;
  Value (*run)(const FilterCall& call);
};

constexpr std::array<Filter, 24> kFilters = {{
    {"trim", Trim},          {"upper", ChangeCaseOf},
    {"lower", ChangeCaseOf}, {"capitalize", ChangeCaseOf},
    {"length", Length},      {"count", Length},
    {"join", JoinItems},     {"default", Default},
    {"d", Default},          {"tojson", ToJson},
    {"first", FirstOrLast},  {"last", FirstOrLast},
    {"list", ToList},        {"reverse", Reverse},
    {"string", ToText},      {"int", ToInteger},
    {"abs", Absolute},       {"replace", ReplaceText},
    {"items", Items},        {"map", Map},
    {"select", Select},      {"reject", Select},
    {"selectattr", Select},  {"rejectattr", Select},
}};

}  // namespace

Value ApplyFilter(Context& context, const Expr& at, std::string_view name, const Value& input,
                  const Arguments& arguments) {
  for (const Filter& filter : kFilters) {
    if (filter.name == name) return filter.run({context, at, name, input, arguments});
  }
  context.Refuse(at, fmt::format("the filter '{}' is not supported", name));
}

}  // namespace kvant::jinja
