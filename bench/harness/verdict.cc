// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/verdict.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace kvant::bench {
namespace {

bool RangesOverlap(std::span<const double> a, std::span<const double> b) {
  return Minimum(a) <= Maximum(b) && Minimum(b) <= Maximum(a);
}

bool Overlap(const Interval& a, const Interval& b) { return a.low <= b.high && b.low <= a.high; }

}  // namespace

Comparison Compare(std::span<const double> arm, std::span<const double> base_a,
                   std::span<const double> base_b, bool higher_is_better) {
  KVANT_CHECK(!arm.empty() && arm.size() == base_a.size() && arm.size() == base_b.size());
  std::vector<double> ratios;
  double noise = 0;
  for (std::size_t round = 0; round < arm.size(); ++round) {
    KVANT_CHECK(arm[round] > 0 && base_a[round] > 0 && base_b[round] > 0);
    ratios.push_back(arm[round] / std::sqrt(base_a[round] * base_b[round]));
    noise = std::max(noise, std::fabs(std::log(base_b[round] / base_a[round])));
  }
  Comparison comparison;
  comparison.ratio = Median(ratios);
  comparison.noise = {std::exp(-noise), std::exp(noise)};
  const bool seen = arm.size() >= 2 && !comparison.noise.Contains(comparison.ratio) &&
                    !RangesOverlap(arm, base_a) && !RangesOverlap(arm, base_b);
  const bool higher = comparison.ratio > 1;
  comparison.verdict =
      !seen ? std::string(kNoDifference) : (higher == higher_is_better ? "faster" : "slower");
  return comparison;
}

std::optional<std::size_t> RepeatPeriod(std::span<const TokenId> tokens,
                                        const DegenerateRule& rule) {
  if (tokens.size() < rule.window || rule.window == 0) return std::nullopt;
  const std::span<const TokenId> last = tokens.last(rule.window);
  for (std::size_t period = 1; period <= rule.max_period && period < last.size(); ++period) {
    if (std::equal(last.begin() + static_cast<std::ptrdiff_t>(period), last.end(), last.begin())) {
      return period;
    }
  }
  return std::nullopt;
}

BreakEven FindBreakEven(const FittedLine& arm, const Line& baseline, const Interval& baseline_slope,
                        const Interval& baseline_intercept) {
  using Kind = BreakEven::Kind;
  const auto sign = [](const Interval& value, const Interval& noise, double difference) {
    if (Overlap(value, noise)) return 0;
    return difference < 0 ? -1 : 1;
  };
  const double slope = arm.line.slope - baseline.slope;
  const double intercept = arm.line.intercept - baseline.intercept;
  const int steeper = sign(arm.intervals.slope, baseline_slope, slope);
  const int higher = sign(arm.intervals.intercept, baseline_intercept, intercept);
  if (steeper == 0 && higher == 0) return {Kind::kNoDifference, 0};
  if (steeper <= 0 && higher <= 0) return {Kind::kAlways, 0};
  if (steeper >= 0 && higher >= 0) return {Kind::kNever, 0};
  return {steeper < 0 ? Kind::kFrom : Kind::kUpTo, -intercept / slope};
}

}  // namespace kvant::bench
