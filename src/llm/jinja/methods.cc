// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Methods of strings and dicts, as Python has them. Lists have only methods that change them, which
// the sandbox of chat templates forbids.

#include <algorithm>
#include <array>
#include <limits>

#include "llm/jinja/context.h"
#include "llm/jinja/operators.h"
#include "llm/jinja/text.h"
#include "llm/utf8.h"

namespace kvant::jinja {
namespace {

using Bound = std::vector<std::optional<Value>>;

struct StringCall {
  Context& context;
  const Expr& at;
  const Value& self;
  const std::string& text;
  std::string_view name;
  const Arguments& arguments;

  const std::string& Need(const std::optional<Value>& value) const {
    return NeedString(context, at, *value);
  }
  Value Make(std::string_view result) const {
    context.budget().Make(result.size());
    return Value::String(std::string(result));
  }
};

Value Strip(const StringCall& call) {
  const Bound bound = Bind(call.context, call.at, call.arguments, {"chars"});
  std::string_view text = call.text;
  call.context.budget().Step(1 + text.size() / 64);
  const bool by_set = bound[0] && !bound[0]->IsNone();
  const std::string set = by_set ? call.Need(bound[0]) : "";
  call.context.budget().Step(text.size() * set.size() / 256);
  if (call.name != "rstrip") text = by_set ? StripLeft(text, set) : StripLeft(text);
  if (call.name != "lstrip") text = by_set ? StripRight(text, set) : StripRight(text);
  return call.Make(text);
}

bool Affixed(std::string_view text, std::string_view affix, bool at_start) {
  if (affix.size() > text.size()) return false;
  return text.substr(at_start ? 0 : text.size() - affix.size(), affix.size()) == affix;
}

Value HasAffix(const StringCall& call) {
  const Bound bound = Bind(call.context, call.at, call.arguments, {"affix"}, 1);
  const bool at_start = call.name == "startswith";
  call.context.budget().Scan(call.text.size());
  if (const List* list = bound[0]->AsList(); list != nullptr && list->tuple) {
    const bool any = std::any_of(list->items.begin(), list->items.end(), [&](const Value& item) {
      call.context.budget().Step(1 + call.text.size() / 1024);
      return Affixed(call.text, NeedString(call.context, call.at, item), at_start);
    });
    return Value::Boolean(any);
  }
  return Value::Boolean(Affixed(call.text, call.Need(bound[0]), at_start));
}

Value RemoveAffix(const StringCall& call) {
  const Bound bound = Bind(call.context, call.at, call.arguments, {"affix"}, 1);
  const std::string& affix = call.Need(bound[0]);
  const bool at_start = call.name == "removeprefix";
  std::string_view text = call.text;
  if (Affixed(text, affix, at_start)) {
    text = at_start ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size());
  }
  return call.Make(text);
}

// The words between white space; after `limit` cuts the rest stays whole.
std::vector<std::string_view> SplitAtSpace(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> parts;
  for (text = StripLeft(text); !text.empty(); text = StripLeft(text)) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    std::size_t end = 0;
    while (end < text.size()) {
      const Utf8Sequence sequence = ReadUtf8(text.substr(end));
      if (sequence.valid && IsSpace(sequence.code_point)) break;
      end += sequence.bytes;
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      std::int64_t limit, bool from_end) {
  std::vector<std::string_view> parts;
  const auto may_cut = [&] { return limit < 0 || static_cast<std::int64_t>(parts.size()) < limit; };
  if (from_end) {
    for (std::size_t at = text.rfind(separator); may_cut() && at != std::string_view::npos;
         at = text.rfind(separator)) {
      parts.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    }
    parts.push_back(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  for (std::size_t at = text.find(separator); may_cut() && at != std::string_view::npos;
       at = text.find(separator)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

Value Split(const StringCall& call) {
  const Bound bound = Bind(call.context, call.at, call.arguments, {"sep", "maxsplit"});
  const std::int64_t limit = bound[1] ? NeedInteger(call.context, call.at, *bound[1]) : -1;
  const bool from_end = call.name == "rsplit";
  std::vector<std::string_view> parts;
  call.context.budget().Step(1 + call.text.size() / 64);
  if (bound[0] && !bound[0]->IsNone()) {
    const std::string& separator = call.Need(bound[0]);
    if (separator.empty()) call.context.Refuse(call.at, "an empty separator is not allowed");
    call.context.budget().Step(call.text.size() * std::min(separator.size(), call.text.size()) /
                               4096);
    parts = SplitAt(call.text, separator, limit, from_end);
  } else {
    if (from_end && limit >= 0)
      call.context.Refuse(call.at, "rsplit at white space is not supported");
    parts = SplitAtSpace(call.text, limit);
  }
  List list;
  for (const std::string_view part : parts) {
    call.context.budget().Make(sizeof(Value));
    list.items.push_back(call.Make(part));
  }
  return Value::Of(std::move(list));
}

Value JoinItems(const StringCall& call) {
  const Bound bound = Bind(call.context, call.at, call.arguments, {"items"}, 1);
  std::string joined;
  bool first = true;
  for (const Value& item : Iterate(call.context, call.at, *bound[0])) {
    const std::string& text = NeedString(call.context, call.at, item);
    call.context.budget().Make(text.size() + call.text.size());
    if (!first) joined += call.text;
    joined += text;
    first = false;
  }
  return Value::String(std::move(joined));
}

// find: the character index of the first occurrence or -1; count: how many do not overlap.
Value Search(const StringCall& call) {
  const Bound bound = Bind(call.context, call.at, call.arguments, {"sub"}, 1);
  const std::string& part = call.Need(bound[0]);
  const std::string_view text = call.text;
  call.context.budget().Step(1 + text.size() * std::min(part.size() + 64, text.size()) / 4096);
  if (call.name == "find") {
    const std::size_t at = text.find(part);
    if (at == std::string_view::npos) return Value::Integer(-1);
    return Value::Integer(static_cast<std::int64_t>(CountCharacters(text.substr(0, at))));
  }
  if (part.empty()) return Value::Integer(static_cast<std::int64_t>(CountCharacters(text)) + 1);
  const std::size_t parts = SplitAt(text, part, /*limit=*/-1, /*from_end=*/false).size();
  return Value::Integer(static_cast<std::int64_t>(parts) - 1);
}

Value ReplaceIn(const StringCall& call) {
  const Bound bound = Bind(call.context, call.at, call.arguments, {"old", "new", "count"}, 2);
  const std::int64_t limit = bound[2] ? NeedInteger(call.context, call.at, *bound[2]) : -1;
  return Replace(call.context, call.at, call.text, call.Need(bound[0]), call.Need(bound[1]), limit);
}

Value CaseOf(const StringCall& call) {
  Bind(call.context, call.at, call.arguments, {});
  const Case target = call.name == "upper"        ? Case::kUpper
                      : call.name == "lower"      ? Case::kLower
                      : call.name == "capitalize" ? Case::kCapitalize
                                                  : Case::kTitle;
  return ChangeCase(call.context, call.at, call.text, target);
}

struct StringMethod {
  std::string_view name;
  Value (*run)(const StringCall& call);
};

constexpr std::array<StringMethod, 17> kStringMethods = {{
    {"strip", Strip},
    {"lstrip", Strip},
    {"rstrip", Strip},
    {"startswith", HasAffix},
    {"endswith", HasAffix},
    {"removeprefix", RemoveAffix},
    {"removesuffix", RemoveAffix},
    {"split", Split},
    {"rsplit", Split},
    {"join", JoinItems},
    {"find", Search},
    {"count", Search},
    {"replace", ReplaceIn},
    {"upper", CaseOf},
    {"lower", CaseOf},
    {"capitalize", CaseOf},
    {"title", CaseOf},
}};

constexpr std::array<std::string_view, 11> kDictMethods = {
    "get", "items",   "keys",   "values",     "clear",   "copy",
    "pop", "popitem", "update", "setdefault", "fromkeys"};
constexpr std::array<std::string_view, 11> kListMethods = {"append", "clear",   "copy",   "count",
                                                           "extend", "index",   "insert", "pop",
                                                           "remove", "reverse", "sort"};

template <std::size_t N>
bool Holds(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value CallDictMethod(Context& context, const Expr& at, const Dict& dict, std::string_view name,
                     const Arguments& arguments) {
  if (name == "get") {
    const Bound bound = Bind(context, at, arguments, {"key", "default"}, 1);
    const std::string* key = bound[0]->AsString();
    const Value* entry = key == nullptr ? nullptr : dict.Find(*key);
    if (entry != nullptr) return *entry;
    return bound[1] ? *bound[1] : Value::None();
  }
  if (name != "items" && name != "keys" && name != "values") {
    context.Refuse(at, fmt::format("the method '{}' of a dict is not supported", name));
  }
  Bind(context, at, arguments, {});
  List list;
  for (const auto& [key, value] : dict.items) {
    context.budget().Step();
    context.budget().Make(4 * sizeof(Value) + key.size());
    if (name == "values") {
      list.items.push_back(value);
    } else if (name == "keys") {
      list.items.push_back(Value::String(key));
    } else {
      list.items.push_back(Value::Of(List{{Value::String(key), value}, /*tuple=*/true, 0}));
    }
  }
  return Value::Of(std::move(list));
}

}  // namespace

bool IsMethod(const Value& self, std::string_view name) {
  if (self.AsDict() != nullptr) return Holds(kDictMethods, name);
  if (self.AsList() != nullptr) return Holds(kListMethods, name);
  return self.AsString() != nullptr &&
         std::any_of(kStringMethods.begin(), kStringMethods.end(),
                     [name](const StringMethod& method) { return method.name == name; });
}

Value CallMethod(Context& context, const Expr& at, const Value& self, std::string_view name,
                 const Arguments& arguments) {
  if (self.IsUndefined()) {
    context.Refuse(at, fmt::format("the method '{}' is called on an undefined value", name));
  }
  if (const std::string* text = self.AsString()) {
    for (const StringMethod& method : kStringMethods) {
      if (method.name == name) return method.run({context, at, self, *text, name, arguments});
    }
  }
  if (const Dict* dict = self.AsDict()) return CallDictMethod(context, at, *dict, name, arguments);
  context.Refuse(at, fmt::format("the method '{}' of {} is not supported", name, self.KindName()));
}

Value Replace(Context& context, const Expr& at, std::string_view text, std::string_view from,
              std::string_view to, std::int64_t limit) {
  if (from.empty()) context.Refuse(at, "replacing an empty text is not supported");
  context.budget().Step(1 + text.size() * std::min(from.size() + 64, text.size() + 64) / 4096);
  std::string result;
  for (std::int64_t n = 0; limit < 0 || n < limit; ++n) {
    const std::size_t found = text.find(from);
    if (found == std::string_view::npos) break;
    context.budget().Make(found + to.size());
    result.append(text.substr(0, found)).append(to);
    text.remove_prefix(found + from.size());
  }
  context.budget().Make(text.size());
  return Value::String(result.append(text));
}

Value ChangeCase(Context& context, const Expr& at, const std::string& text, Case target) {
  if (!IsAscii(text)) context.Refuse(at, "changing the case of text beyond ASCII is not supported");
  context.budget().Make(text.size());
  std::string result = text;
  bool word_starts = true;
  for (char& c : result) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool lower = c >= 'a' && c <= 'z';
    const bool to_upper = target == Case::kUpper || (target != Case::kLower && word_starts);
    if (lower && to_upper) c = static_cast<char>(c - 'a' + 'A');
    if (upper && !to_upper) c = static_cast<char>(c - 'A' + 'a');
    word_starts = target == Case::kTitle && !(upper || lower);
  }
  return Value::String(std::move(result));
}

}  // namespace kvant::jinja
