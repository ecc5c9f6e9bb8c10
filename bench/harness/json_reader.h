// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Reads the JSON objects of a protocol file key by key. Internal to the harness.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace kvant::bench {

/// Reads the keys of one object and refuses what it was not asked for: a misspelt limit must not
/// silently become no limit. Every member throws Error(kInvalidArgument) with the place and the
/// key.
class ObjectReader {
 public:
  ObjectReader(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) {
      Fail(ErrorCode::kInvalidArgument, "{} must be a JSON object, not {}", where_,
           object.type_name());
    }
  }

  /// Whether the optional key is there. Read it with another member.
  bool Has(const std::string& key) {
    if (object_.contains(key)) return true;
    allowed_.push_back(key);
    return false;
  }
  const nlohmann::json& At(const std::string& key) {
    allowed_.push_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) {
      Fail(ErrorCode::kInvalidArgument, "{} lacks the key \"{}\"; add it", where_, key);
    }
    return *found;
  }

  std::string Text(const std::string& key) {
    const nlohmann::json& value = At(key);
    if (!value.is_string()) Bad(key, value, "a text");
    return value.get<std::string>();
  }
  bool Bool(const std::string& key) {
    const nlohmann::json& value = At(key);
    if (!value.is_boolean()) Bad(key, value, "true or false");
    return value.get<bool>();
  }
  std::size_t Count(const std::string& key, std::size_t low, std::size_t high) {
    const nlohmann::json& value = At(key);
    if (!value.is_number_integer() || value.get<long long>() < static_cast<long long>(low) ||
        value.get<long long>() > static_cast<long long>(high)) {
      Bad(key, value, fmt::format("a whole number from {} to {}", low, high));
    }
    return value.get<std::size_t>();
  }
  double Number(const std::string& key, double low, double high) {
    const nlohmann::json& value = At(key);
    if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
      Bad(key, value, fmt::format("a number from {} to {}", low, high));
    }
    return value.get<double>();
  }
  std::vector<std::size_t> Lengths(const std::string& key) {
    const nlohmann::json& value = At(key);
    std::vector<std::size_t> lengths;
    const bool is_list = value.is_array() && !value.empty();
    const bool all_counts =
        is_list && std::all_of(value.begin(), value.end(), [](const nlohmann::json& item) {
          return item.is_number_integer() && item.get<long long>() >= 1 &&
                 item.get<long long>() <= (1 << 24);
        });
    if (!all_counts) Bad(key, value, "a list of prompt lengths in tokens");
    lengths = value.get<std::vector<std::size_t>>();
    if (std::adjacent_find(lengths.begin(), lengths.end(), std::greater_equal<>()) !=
        lengths.end()) {
      Bad(key, value, "an ascending list without repeats");
    }
    return lengths;
  }
  std::vector<std::string> Texts(const std::string& key) {
    const nlohmann::json& value = At(key);
    const bool fine = value.is_array() && !value.empty() &&
                      std::all_of(value.begin(), value.end(),
                                  [](const nlohmann::json& item) { return item.is_string(); });
    if (!fine) Bad(key, value, "a list of texts");
    return value.get<std::vector<std::string>>();
  }

  /// A non-empty list whose items the caller reads with readers of their own.
  const nlohmann::json& List(const std::string& key) {
    const nlohmann::json& value = At(key);
    if (!value.is_array() || value.empty()) Bad(key, value, "a list that is not empty");
    return value;
  }

  /// To be called last: throws for a key that no member asked for.
  void RefuseOthers() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(allowed_.begin(), allowed_.end(), key) != allowed_.end()) continue;
      Fail(ErrorCode::kInvalidArgument, "{} has the unknown key \"{}\"; allowed are {}", where_,
           key, fmt::join(allowed_, ", "));
    }
  }

 private:
  [[noreturn]] void Bad(const std::string& key, const nlohmann::json& value,
                        const std::string& wanted) {
    Fail(ErrorCode::kInvalidArgument, "{} has \"{}\": {}; it must be {}", where_, key, value.dump(),
         wanted);
  }

  const nlohmann::json& object_;
  std::string where_;
  std::vector<std::string> allowed_;
};

}  // namespace kvant::bench
