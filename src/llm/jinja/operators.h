// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Operators on values, with the results that Python gives. What Python refuses, or what its
// integers could hold and 64 bits cannot, is an Error(kUnsupported).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "llm/jinja/context.h"

namespace kvant::jinja {

/// left op right for + - * / // %.
Value Arithmetic(Context& context, const Expr& at, std::string_view op, const Value& left,
                 const Value& right);
/// -value or +value.
Value Sign(const Context& context, const Expr& at, bool negative, const Value& value);
bool Equal(Context& context, const Value& left, const Value& right);
/// left op right for == != < <= > >= in, not in.
bool Compare(Context& context, const Expr& at, std::string_view op, const Value& left,
             const Value& right);

/// base[index]; undefined where there is none.
Value Item(Context& context, const Expr& at, const Value& base, const Value& index);
/// base.name: entries of dicts and namespaces; undefined where there is none.
Value Attribute(const Context& context, const Expr& at, const Value& base, std::string_view name);
/// base[start:stop:step]; none where a part is left out.
Value Slice(Context& context, const Expr& at, const Value& base, const Value& start,
            const Value& stop, const Value& step);

/// The items of a list, keys of a dict, characters of a string, nothing of an undefined value.
std::vector<Value> Iterate(Context& context, const Expr& at, const Value& value);
/// The text that {{ value }} prints. Lists, dicts and functions are refused.
std::string Text(Context& context, const Expr& at, const Value& value);

}  // namespace kvant::jinja
