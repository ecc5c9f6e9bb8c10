// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The values of templates. Strings, lists and dicts are shared and never change, so copies are
// cheap and no value can hold itself; namespaces, the only mutable ones, belong to the interpreter,
// not to values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kvant::jinja {

struct Statement;
struct List;
struct Dict;
struct Namespace;

/// Lists and dicts nest at most this deep, so that releasing them cannot exhaust the stack.
inline constexpr int kMaxValueDepth = 32;

/// Something that can be called: a global function or a macro of the template.
struct Function {
  enum class Kind { kRange, kNamespace, kDict, kRaiseException, kMacro };
  Kind kind;
  const Statement* macro = nullptr;  // of kMacro
};

class Value {
 public:
  Value() = default;  // undefined
  static Value None() { return Value(NoneType{}); }
  static Value Boolean(bool value) { return Value(value); }
  static Value Integer(std::int64_t value) { return Value(value); }
  static Value Float(double value) { return Value(value); }
  static Value String(std::string text);
  /// Throw Error(kResourceExhausted) where the result nests deeper than kMaxValueDepth.
  static Value Of(List list);
  static Value Of(Dict dict);
  static Value Of(Namespace* name_space) { return Value(name_space); }
  static Value Of(Function function) { return Value(function); }

  bool IsUndefined() const { return std::holds_alternative<Undefined>(data_); }
  bool IsNone() const { return std::holds_alternative<NoneType>(data_); }
  bool IsBoolean() const { return std::holds_alternative<bool>(data_); }
  bool IsInteger() const { return std::holds_alternative<std::int64_t>(data_); }
  bool IsFloat() const { return std::holds_alternative<double>(data_); }
  /// nullptr where the value is of another kind.
  const std::string* AsString() const;
  const List* AsList() const;
  const Dict* AsDict() const;
  Namespace* AsNamespace() const;
  const Function* AsFunction() const { return std::get_if<Function>(&data_); }
  /// Integers, and booleans as 0 and 1.
  std::optional<std::int64_t> AsInteger() const;
  /// Integers, booleans and floats.
  std::optional<double> AsNumber() const;

  bool Truthy() const;
  /// "a string", "an undefined value", ... for messages.
  std::string_view KindName() const;
  int depth() const;

 private:
  struct Undefined {};
  struct NoneType {};
  using Data = std::variant<Undefined, NoneType, bool, std::int64_t, double,
                            std::shared_ptr<const std::string>, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, Namespace*, Function>;
  template <typename T>
  explicit Value(T data) : data_(std::move(data)) {}

  Data data_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;  // (a, b): differs from [a, b] in comparisons only
  int depth = 0;       // set by Value::Of
};

/// Keys are strings, in the order of their first assignment.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  std::map<std::string, std::size_t, std::less<>> index;
  int depth = 0;  // set by Value::Of

  void Set(std::string key, Value value);
  const Value* Find(std::string_view key) const;  // nullptr where absent
};

struct Namespace {
  std::map<std::string, Value, std::less<>> values;
};

}  // namespace kvant::jinja
