// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Single checks of a result, for the lists that each protocol mode makes of them (checks.cc,
// published_checks.cc). Internal to the harness.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/harness/result.h"

namespace kvant::bench {

/// {name, verdict, detail}; verdict is "pass", "fail" or "info".
nlohmann::json Check(const char* name, const char* verdict, std::string detail);
/// "fail" with the problems, or "pass" with `fine` where there are none.
nlohmann::json PassOrFail(const char* name, const std::vector<std::string>& problems,
                          std::string fine);
/// Index of the first token that differs; the shorter length where there is none up to there.
std::size_t FirstDifference(const std::vector<TokenId>& a, const std::vector<TokenId>& b);

/// All arguments must outlive it.
class CheckBuilder {
 public:
  CheckBuilder(const BenchConfig& config, const Measurements& measurements,
               const ResultParts& parts)
      : config_(config), measurements_(measurements), parts_(parts) {}

  nlohmann::json Contention() const;
  /// Debug and sanitizer builds measure their instrumentation.
  nlohmann::json BuildKind() const;
  /// Every run has all decode steps.
  nlohmann::json Steps() const;
  nlohmann::json Rounds() const;
  /// Every repeat of an arm gives the same tokens.
  nlohmann::json Repeats() const;
  /// Both baseline arms give the same tokens.
  nlohmann::json Twins() const;
  /// One path for each arm.
  nlohmann::json Kernels() const;
  /// A method that is configured but not applied must not pass as a fast one.
  nlohmann::json Packed() const;
  nlohmann::json Memory() const;
  /// Output that repeats itself is flagged. `collapse_fails`: an arm that prints one token over and
  /// over while the baseline does not, fails.
  nlohmann::json Degenerate(bool collapse_fails) const;
  nlohmann::json Storage() const;
  /// That prefill was measured once; for information.
  nlohmann::json Prefill() const;
  /// Where each arm first differs from the baseline; for information.
  nlohmann::json FirstDifferent() const;

 private:
  const std::string& Name(std::size_t arm) const { return config_.arms[arm].name; }

  const BenchConfig& config_;
  const Measurements& measurements_;
  const ResultParts& parts_;
};

}  // namespace kvant::bench
