// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The filter tojson.

#include <cmath>

#include "llm/jinja/context.h"
#include "llm/jinja/operators.h"
#include "llm/jinja/text.h"

namespace kvant::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Context& context, const Expr& at, std::int64_t indent)
      : context_(context), at_(at), indent_(indent) {}

  // Lists and dicts nest at most kMaxValueDepth deep, so the recursion is bounded.
  void Write(const Value& value) {
    context_.budget().Step();
    if (const std::string* text = value.AsString()) return Append(JsonString(*text));
    if (const List* list = value.AsList()) {
      Open("[");
      for (const Value& item : list->items) {
        Separate();
        Write(item);
      }
      return Close("]");
    }
    if (const Dict* dict = value.AsDict()) {
      Open("{");
      for (const auto& [key, item] : dict->items) {
        Separate();
        Append(JsonString(key) + ": ");
        Write(item);
      }
      return Close("}");
    }
    Append(Scalar(value));
  }

  std::string Take() { return std::move(out_); }

 private:
  std::string Scalar(const Value& value) const {
    if (value.IsNone()) return "null";
    if (value.IsBoolean()) return value.Truthy() ? "true" : "false";
    if (value.IsInteger()) return fmt::format("{}", *value.AsInteger());
    if (value.IsFloat()) {
      const double number = *value.AsNumber();
      if (std::isnan(number)) return "NaN";
      if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
      return FloatText(number);
    }
    context_.Refuse(at_, fmt::format("tojson of {} is not supported", value.KindName()));
  }
  void Append(std::string_view text) {
    context_.budget().Make(text.size());
    out_ += text;
  }
  void BreakLine() { Append("\n" + std::string(static_cast<std::size_t>(indent_ * level_), ' ')); }
  void Open(std::string_view bracket) {
    Append(bracket);
    ++level_;
    empty_ = true;
  }
  void Separate() {
    if (!empty_) Append(indent_ < 0 ? ", " : ",");
    if (indent_ >= 0) BreakLine();
    empty_ = false;
  }
  void Close(std::string_view bracket) {
    --level_;
    if (!empty_ && indent_ >= 0) BreakLine();
    Append(bracket);
    empty_ = false;
  }

  Context& context_;
  const Expr& at_;
  std::int64_t indent_;
  std::int64_t level_ = 0;
  bool empty_ = true;  // nothing written since the last bracket opened
  std::string out_;
};

}  // namespace

std::string Json(Context& context, const Expr& at, const Value& value, std::int64_t indent) {
  JsonWriter writer(context, at, indent);
  writer.Write(value);
  return writer.Take();
}

}  // namespace kvant::jinja
