// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// fits[] of a result: step time = intercept + slope x context, with intervals and break-even.
//
// A point is the median step of one run at the middle of its contexts: step times have a heavy
// upper tail (timer ticks, other guests), which a least-squares line through every step would
// follow.

#include <algorithm>

#include "base/statistics.h"
#include "bench/harness/result.h"
#include "bench/harness/verdict.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

Point PointOf(const TimedRun& run) {
  // Step i reads length + 1 + i cached tokens.
  const double n_steps = static_cast<double>(run.sample.step_s.size());
  return {static_cast<double>(run.length) + (n_steps + 1) / 2, Median(run.sample.step_s)};
}

// One list of points for each round: the unit that the bootstrap draws.
std::vector<std::vector<Point>> RepeatsOf(const Measurements& measurements,
                                          const std::vector<std::size_t>& arms) {
  std::vector<std::vector<Point>> repeats(measurements.rounds);
  for (const TimedRun& run : measurements.runs) {
    if (std::find(arms.begin(), arms.end(), run.arm) == arms.end()) continue;
    repeats[run.round].push_back(PointOf(run));
  }
  return repeats;
}

FittedLine FitRepeats(const BenchConfig& config, const std::vector<std::vector<Point>>& repeats) {
  std::vector<Point> all;
  for (const std::vector<Point>& repeat : repeats)
    all.insert(all.end(), repeat.begin(), repeat.end());
  return {FitLine(all), BootstrapLine(repeats, config.protocol.bootstrap_resamples,
                                      config.protocol.bootstrap_confidence, config.seed)};
}

Interval Union(const Interval& a, const Interval& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

void AddBreakEven(const BreakEven& answer, const Measurements& measurements, json& fit) {
  using Kind = BreakEven::Kind;
  const double longest = static_cast<double>(measurements.lengths.back());
  std::string note;
  switch (answer.kind) {
    case Kind::kNoDifference:
      note = kNoDifference;
      break;
    case Kind::kAlways:
      fit["break_even_tokens"] = "always";
      break;
    case Kind::kNever:
      fit["break_even_tokens"] = "never";
      break;
    case Kind::kFrom:
      fit["break_even_tokens"] = std::max(answer.tokens, 0.0);
      if (answer.tokens > longest) note = "extrapolated";
      break;
    case Kind::kUpTo:
      fit["break_even_tokens"] = "never";
      note = "faster only below " + std::to_string(static_cast<long>(answer.tokens)) + " tokens";
      break;
  }
  fit["break_even_note"] = note;
}

}  // namespace

json BuildFits(const BenchConfig& config, const Measurements& measurements) {
  json fits = json::array();
  // A line from one length, or a decode number from few steps, would be a claim without ground.
  if (measurements.lengths.size() < 2 || config.protocol.decode_steps < kMinDecodeSteps)
    return fits;
  std::vector<FittedLine> lines;
  for (std::size_t arm = 0; arm < config.arms.size(); ++arm) {
    lines.push_back(FitRepeats(config, RepeatsOf(measurements, {arm})));
  }
  const FittedLine baseline = FitRepeats(config, RepeatsOf(measurements, {0, 1}));
  const Interval slope = Union(lines[0].intervals.slope, lines[1].intervals.slope);
  const Interval intercept = Union(lines[0].intervals.intercept, lines[1].intervals.intercept);
  for (std::size_t arm = 0; arm < config.arms.size(); ++arm) {
    const FittedLine& line = lines[arm];
    const LineIntervals& intervals = line.intervals;
    json fit = {
        {"arm", config.arms[arm].name},
        {"spec", RunsOf(measurements, arm, measurements.lengths[0])[0]->sample.kv.spec},
        {"slope_ns_per_token", 1e9 * line.line.slope},
        {"slope_ci", {1e9 * intervals.slope.low, 1e9 * intervals.slope.high}},
        {"intercept_ms", 1e3 * line.line.intercept},
        {"intercept_ci", {1e3 * intervals.intercept.low, 1e3 * intervals.intercept.high}},
        {"slope_ratio",
         baseline.line.slope == 0 ? json(nullptr) : json(line.line.slope / baseline.line.slope)},
        {"break_even_tokens", nullptr},
        {"break_even_note", "baseline"},
        {"confidence", config.protocol.bootstrap_confidence},
        {"n_repeats", measurements.rounds},
        {"n_resamples", intervals.n_resamples},
        {"lengths", measurements.lengths}};
    if (!config.arms[arm].is_baseline) {
      AddBreakEven(FindBreakEven(line, baseline.line, slope, intercept), measurements, fit);
    }
    fits.push_back(fit);
  }
  return fits;
}

}  // namespace kvant::bench
