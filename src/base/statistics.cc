// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace kvant {
namespace {

void CheckSample(std::span<const double> sample) {
  if (sample.empty()) {
    Fail(ErrorCode::kInvalidArgument,
         "a statistic was asked of an empty sample; give at least one "
         "value");
  }
  for (const double value : sample) {
    if (!std::isfinite(value)) {
      Fail(ErrorCode::kInvalidArgument,
           "a statistic was asked of a sample that holds {}; only finite "
           "values are allowed",
           value);
    }
  }
}

bool HasTwoDifferentX(std::span<const Point> points) {
  return std::any_of(points.begin(), points.end(),
                     [&](const Point& point) { return point.x != points.front().x; });
}

}  // namespace

double Mean(std::span<const double> sample) {
  CheckSample(sample);
  return std::accumulate(sample.begin(), sample.end(), 0.0) / static_cast<double>(sample.size());
}

double Minimum(std::span<const double> sample) {
  CheckSample(sample);
  return *std::min_element(sample.begin(), sample.end());
}

double Maximum(std::span<const double> sample) {
  CheckSample(sample);
  return *std::max_element(sample.begin(), sample.end());
}

double Median(std::span<const double> sample) { return Quantile(sample, 0.5); }

double Quantile(std::span<const double> sample, double q) {
  CheckSample(sample);
  if (!(q >= 0.0 && q <= 1.0)) {
    Fail(ErrorCode::kInvalidArgument, "quantile {} was asked for; it must lie in [0, 1]", q);
  }
  std::vector<double> sorted(sample.begin(), sample.end());
  std::sort(sorted.begin(), sorted.end());
  const double position = q * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double fraction = position - static_cast<double>(below);
  return sorted[below] + fraction * (sorted[above] - sorted[below]);
}

Summary Summarize(std::span<const double> sample) {
  return {Median(sample), Minimum(sample), Maximum(sample), sample.size()};
}

Line FitLine(std::span<const Point> points) {
  if (points.empty() || !HasTwoDifferentX(points)) {
    Fail(ErrorCode::kInvalidArgument,
         "a line was asked of {} points without two different x; measure "
         "at two positions or more",
         points.size());
  }
  double mean_x = 0, mean_y = 0;
  for (const Point& point : points) {
    mean_x += point.x;
    mean_y += point.y;
  }
  mean_x /= static_cast<double>(points.size());
  mean_y /= static_cast<double>(points.size());
  // Deviations from the mean: contexts of 1e5 tokens squared would cost digits of the plain sums.
  double sum_xx = 0, sum_xy = 0;
  for (const Point& point : points) {
    sum_xx += (point.x - mean_x) * (point.x - mean_x);
    sum_xy += (point.x - mean_x) * (point.y - mean_y);
  }
  const double slope = sum_xy / sum_xx;
  return {mean_y - slope * mean_x, slope};
}

LineIntervals BootstrapLine(std::span<const std::vector<Point>> repeats, std::size_t n_resamples,
                            double confidence, std::uint64_t seed) {
  if (repeats.empty() || n_resamples == 0 || !(confidence > 0.0 && confidence < 1.0)) {
    Fail(ErrorCode::kInvalidArgument,
         "a bootstrap of {} repeats, {} resamples, confidence {} was asked "
         "for; it needs one repeat, one resample and a confidence in (0, 1)",
         repeats.size(), n_resamples, confidence);
  }
  for (const std::vector<Point>& repeat : repeats)
    FitLine(repeat);  // throws where one allows no line
  if (repeats.size() == 1) {
    const Line line = FitLine(repeats.front());
    return {{line.intercept, line.intercept}, {line.slope, line.slope}, 0};
  }
  SplitMix64 rng(seed);
  std::vector<double> intercepts, slopes;
  std::vector<Point> drawn;
  for (std::size_t resample = 0; resample < n_resamples; ++resample) {
    drawn.clear();
    for (std::size_t i = 0; i < repeats.size(); ++i) {
      const std::vector<Point>& repeat = repeats[rng.Below(repeats.size())];
      drawn.insert(drawn.end(), repeat.begin(), repeat.end());
    }
    const Line line = FitLine(drawn);
    intercepts.push_back(line.intercept);
    slopes.push_back(line.slope);
  }
  const double tail = (1.0 - confidence) / 2.0;
  return {{Quantile(intercepts, tail), Quantile(intercepts, 1.0 - tail)},
          {Quantile(slopes, tail), Quantile(slopes, 1.0 - tail)},
          n_resamples};
}

}  // namespace kvant
