// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/jinja/context.h"

#include <algorithm>

#include "llm/jinja/lexer.h"

namespace kvant::jinja {
namespace {

constexpr std::size_t kMaxExcerptBytes = 60;

}  // namespace

void Context::Refuse(const Expr& at, std::string_view what) const {
  std::string excerpt = program_->source.substr(at.begin, at.end - at.begin);
  if (excerpt.size() > kMaxExcerptBytes) excerpt = excerpt.substr(0, kMaxExcerptBytes) + "...";
  std::replace(excerpt.begin(), excerpt.end(), '\n', ' ');
  RefuseAt(program_->source, at.begin, fmt::format("{}, in: {}", what, excerpt));
}

std::vector<std::optional<Value>> Bind(const Context& context, const Expr& at,
                                       const Arguments& arguments,
                                       std::initializer_list<std::string_view> names,
                                       std::size_t required) {
  if (arguments.positional.size() > names.size()) {
    context.Refuse(at, fmt::format("{} arguments are too many; allowed are {}",
                                   arguments.positional.size(), names.size()));
  }
  std::vector<std::optional<Value>> bound(arguments.positional.begin(), arguments.positional.end());
  bound.resize(names.size());
  for (const auto& [name, value] : arguments.named) {
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      context.Refuse(at, fmt::format("the argument '{}' is not supported", name));
    }
    auto& slot = bound[static_cast<std::size_t>(found - names.begin())];
    if (slot.has_value()) context.Refuse(at, fmt::format("the argument '{}' is given twice", name));
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!bound[i].has_value()) {
      context.Refuse(at, fmt::format("the argument '{}' is missing", *(names.begin() + i)));
    }
  }
  return bound;
}

const std::string& NeedString(const Context& context, const Expr& at, const Value& value) {
  const std::string* text = value.AsString();
  if (text == nullptr)
    context.Refuse(at, fmt::format("{} stands where a string must", value.KindName()));
  return *text;
}

std::int64_t NeedInteger(const Context& context, const Expr& at, const Value& value) {
  const auto integer = value.AsInteger();
  if (!integer)
    context.Refuse(at, fmt::format("{} stands where an integer must", value.KindName()));
  return *integer;
}

}  // namespace kvant::jinja
