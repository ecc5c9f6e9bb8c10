// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The rules that turn samples into words: is an arm faster, is output collapsed, from which context
// on does a method pay. All are pure functions, so that each rule has a test.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/statistics.h"
#include "bench/harness/protocol.h"
#include "llm/tokenizer.h"

namespace kvant::bench {

inline constexpr std::string_view kNoDifference = "no difference seen";

struct Comparison {
  double ratio = 1;      // arm over baseline: median over rounds of arm / sqrt(a * b)
  Interval noise{1, 1};  // A/A: every ratio b / a of one round, and its inverse, lies inside
  std::string verdict;   // "faster", "slower" or kNoDifference
};

/// Compares an arm with the two baseline arms, round by round (each span [n_rounds], positive). A
/// difference is called one only if the ratio lies outside the A/A interval, the arm's range
/// overlaps neither baseline range, and there are at least two rounds. With one round the noise is
/// unknown.
Comparison Compare(std::span<const double> arm, std::span<const double> base_a,
                   std::span<const double> base_b, bool higher_is_better);

/// The smallest period p <= rule.max_period with which the last rule.window tokens repeat; nothing
/// where they do not, or where there are fewer tokens.
std::optional<std::size_t> RepeatPeriod(std::span<const TokenId> tokens,
                                        const DegenerateRule& rule);

struct FittedLine {
  Line line;  // y: seconds per step, x: tokens in the cache
  LineIntervals intervals;
};

struct BreakEven {
  enum class Kind { kNoDifference, kAlways, kNever, kFrom, kUpTo };
  Kind kind = Kind::kNoDifference;
  double tokens = 0;  // kFrom: faster from here on; kUpTo: faster below here only
};

/// Where the line of an arm lies below the baseline's. Slopes (or intercepts) whose intervals
/// overlap the A/A interval are taken as equal.
BreakEven FindBreakEven(const FittedLine& arm, const Line& baseline, const Interval& baseline_slope,
                        const Interval& baseline_intercept);

}  // namespace kvant::bench
