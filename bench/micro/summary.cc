// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/micro/summary.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/statistics.h"

namespace kvant::micro {
namespace {

constexpr std::string_view kBaseline = "fp16";
constexpr std::size_t kSlopeFrom = 2048;  // below, a step is not all reading

// Times of one method in one group, by context.
using Times = std::map<std::size_t, std::vector<double>>;

std::size_t Repetitions(const Times& times) {
  std::size_t n = times.empty() ? 0 : times.begin()->second.size();
  for (const auto& [context, samples] : times) n = std::min(n, samples.size());
  return n;
}

// Milliseconds for each cached token; nothing with fewer than two long contexts. `pick` gives the time.
template <typename Pick>
std::optional<Line> SlopeLine(const Times& times, Pick pick) {
  std::vector<Point> points;
  for (const auto& [context, samples] : times) {
    if (context >= kSlopeFrom) points.push_back({static_cast<double>(context), pick(samples)});
  }
  if (points.size() < 2) return std::nullopt;
  return FitLine(points);
}

double MedianOf(const std::vector<double>& samples) { return Median(samples); }

std::string Range(const std::vector<double>& ratios) {
  if (ratios.size() < 2) return "";
  return fmt::format(" [{:.3f}, {:.3f}]", Minimum(ratios), Maximum(ratios));
}

std::string TimeLines(const Times& times, const Times& baseline) {
  std::string text;
  for (const auto& [context, samples] : times) {
    const auto other = baseline.find(context);
    if (other == baseline.end()) continue;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(samples.size(), other->second.size()); ++i) {
      ratios.push_back(samples[i] / other->second[i]);
    }
    const double ms = Median(samples), baseline_ms = Median(other->second);
    text += fmt::format("    ctx {:>7}  {:10.3f} ms  {} {:10.3f} ms  ratio {:.3f}{}\n", context, ms,
                        kBaseline, baseline_ms, ms / baseline_ms, Range(ratios));
  }
  return text;
}

std::string SlopeLines(const Times& times, const Times& baseline) {
  const std::optional<Line> line = SlopeLine(times, MedianOf);
  const std::optional<Line> baseline_line = SlopeLine(baseline, MedianOf);
  if (!line || !baseline_line) return "";
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(Repetitions(times), Repetitions(baseline)); ++i) {
    const auto pick = [i](const std::vector<double>& samples) { return samples[i]; };
    ratios.push_back(SlopeLine(times, pick)->slope / SlopeLine(baseline, pick)->slope);
  }
  return fmt::format("    slope        {:10.4f} us/token  {} {:.4f} us/token  ratio {:.3f}{}\n",
                     1e3 * line->slope, kBaseline, 1e3 * baseline_line->slope,
                     line->slope / baseline_line->slope, Range(ratios));
}

}  // namespace

SummaryReporter::SummaryReporter(bool all_samples)
    : ConsoleReporter(isatty(STDOUT_FILENO) != 0 ? OO_ColorTabular : OO_Tabular),
      all_samples_(all_samples) {}

void SummaryReporter::ReportRuns(const std::vector<Run>& runs) {
  std::vector<Run> shown;
  for (const Run& run : runs) {
    failed_ = failed_ || run.error_occurred;
    std::vector<double>& wall = wall_[run.run_name.function_name];
    const bool sample = run.run_type == Run::RT_Iteration;
    const bool median = run.aggregate_name == "median";
    // With --benchmark_report_aggregates_only the median is all there is.
    if (!run.error_occurred && (sample || (median && wall.empty()))) {
      const double ms = 1e3 / benchmark::GetTimeUnitMultiplier(run.time_unit);
      wall.push_back(ms * run.GetAdjustedRealTime());
      cpu_[run.run_name.function_name].push_back(ms * run.GetAdjustedCPUTime());
    }
    const bool single = sample && run.repetitions <= 1;
    if (all_samples_ || single || run.error_occurred || median || run.aggregate_name == "cv") {
      shown.push_back(run);
    }
  }
  if (!shown.empty()) ConsoleReporter::ReportRuns(shown);
}

const std::vector<double>& SummaryReporter::Samples(const AttendRow& row) const {
  static const std::vector<double> kNone;
  const auto& samples = row.n_threads == 1 ? cpu_ : wall_;
  const auto found = samples.find(row.name);
  return found == samples.end() ? kNone : found->second;
}

std::string RatioTable(const std::vector<AttendRow>& rows, const SummaryReporter& reporter) {
  std::map<std::string, std::map<std::string, Times>> groups;  // by group, by method
  for (const AttendRow& row : rows) {
    const std::vector<double>& samples = reporter.Samples(row);
    if (!samples.empty()) groups[row.group][row.spec][row.context] = samples;
  }
  std::string text;
  for (const auto& [group, methods] : groups) {
    const auto baseline = methods.find(std::string(kBaseline));
    if (baseline == methods.end()) continue;
    for (const auto& [spec, times] : methods) {
      if (spec == kBaseline) continue;
      text += fmt::format("  {}  {}\n", group, spec) + TimeLines(times, baseline->second) +
              SlopeLines(times, baseline->second);
    }
  }
  if (text.empty()) return "";
  return fmt::format("\nAttention of one decode step, all layers, against {} (medians [range over "
                     "repetitions]):\n{}",
                     kBaseline, text);
}

}  // namespace kvant::micro
