// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/jinja/value.h"

#include <algorithm>

#include "base/error.h"

namespace kvant::jinja {
namespace {

int CheckedDepth(int deepest_item) {
  if (deepest_item + 1 > kMaxValueDepth) {
    Fail(ErrorCode::kResourceExhausted,
         "the chat template nests lists or dicts more than {} deep; use --raw to pass the text as "
         "it "
         "stands",
         kMaxValueDepth);
  }
  return deepest_item + 1;
}

}  // namespace

Value Value::String(std::string text) {
  return Value(std::make_shared<const std::string>(std::move(text)));
}

Value Value::Of(List list) {
  int deepest = 0;
  for (const Value& item : list.items) deepest = std::max(deepest, item.depth());
  list.depth = CheckedDepth(deepest);
  return Value(std::make_shared<const List>(std::move(list)));
}

Value Value::Of(Dict dict) {
  int deepest = 0;
  for (const auto& [key, value] : dict.items) deepest = std::max(deepest, value.depth());
  dict.depth = CheckedDepth(deepest);
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

const std::string* Value::AsString() const {
  const auto* text = std::get_if<std::shared_ptr<const std::string>>(&data_);
  return text == nullptr ? nullptr : text->get();
}

const List* Value::AsList() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&data_);
  return list == nullptr ? nullptr : list->get();
}

const Dict* Value::AsDict() const {
  const auto* dict = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return dict == nullptr ? nullptr : dict->get();
}

Namespace* Value::AsNamespace() const {
  const auto* name_space = std::get_if<Namespace*>(&data_);
  return name_space == nullptr ? nullptr : *name_space;
}

std::optional<std::int64_t> Value::AsInteger() const {
  if (const auto* integer = std::get_if<std::int64_t>(&data_)) return *integer;
  if (const auto* boolean = std::get_if<bool>(&data_)) return *boolean ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::AsNumber() const {
  if (const auto* number = std::get_if<double>(&data_)) return *number;
  if (const auto integer = AsInteger()) return static_cast<double>(*integer);
  return std::nullopt;
}

bool Value::Truthy() const {
  if (IsUndefined() || IsNone()) return false;
  if (const auto number = AsNumber()) return *number != 0;
  if (const auto* text = AsString()) return !text->empty();
  if (const auto* list = AsList()) return !list->items.empty();
  if (const auto* dict = AsDict()) return !dict->items.empty();
  return true;
}

std::string_view Value::KindName() const {
  if (IsUndefined()) return "an undefined value";
  if (IsNone()) return "none";
  if (IsBoolean()) return "a boolean";
  if (IsInteger()) return "an integer";
  if (IsFloat()) return "a float";
  if (AsString() != nullptr) return "a string";
  if (AsList() != nullptr) return AsList()->tuple ? "a tuple" : "a list";
  if (AsDict() != nullptr) return "a dict";
  return AsNamespace() != nullptr ? "a namespace" : "a function";
}

int Value::depth() const {
  if (const auto* list = AsList()) return list->depth;
  if (const auto* dict = AsDict()) return dict->depth;
  return 0;
}

void Dict::Set(std::string key, Value value) {
  const auto [found, inserted] = index.emplace(key, items.size());
  if (inserted) {
    items.emplace_back(std::move(key), std::move(value));
  } else {
    items[found->second].second = std::move(value);
  }
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = index.find(key);
  return found == index.end() ? nullptr : &items[found->second].second;
}

}  // namespace kvant::jinja
