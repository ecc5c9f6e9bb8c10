// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Order statistics, straight lines and bootstrap intervals for measurements. Not a numerics
// library: samples are few, plain loops over doubles are enough, and every name means what it says
// (tests check each against a value worked out by hand).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvant {

// All functions of one sample throw Error(kInvalidArgument) where it is empty or holds a value that
// is not finite: an absent measurement is not zero.

double Mean(std::span<const double> sample);
double Minimum(std::span<const double> sample);
double Maximum(std::span<const double> sample);
/// Middle value of the sorted sample; the mean of the two middle ones for an even count.
double Median(std::span<const double> sample);
/// Quantile q in [0, 1] with linear interpolation between order statistics: position q * (n - 1)
/// (Hyndman and Fan 1996, type 7). Quantile(s, 0.5) == Median(s).
double Quantile(std::span<const double> sample, double q);

struct Summary {
  double median = 0, min = 0, max = 0;
  std::size_t n = 0;
};
Summary Summarize(std::span<const double> sample);

struct Point {
  double x = 0, y = 0;
};

/// y = intercept + slope * x.
struct Line {
  double intercept = 0, slope = 0;
  double At(double x) const { return intercept + slope * x; }
};

/// Ordinary least squares. Throws Error(kInvalidArgument) with fewer than two different x.
Line FitLine(std::span<const Point> points);

struct Interval {
  double low = 0, high = 0;
  bool Contains(double value) const { return low <= value && value <= high; }
};

struct LineIntervals {
  Interval intercept, slope;
  std::size_t n_resamples = 0;  // 0: a single repeat, both intervals are that line alone
};

/// Percentile bootstrap of FitLine (Efron 1979): whole repeats are drawn with replacement, as many
/// as there are, because the points of one repeat are not independent. Each repeat must allow a
/// line of its own. `confidence` in (0, 1). The same seed gives the same intervals. Throws
/// Error(kInvalidArgument) for no repeats or a repeat without two different x.
LineIntervals BootstrapLine(std::span<const std::vector<Point>> repeats, std::size_t n_resamples,
                            double confidence, std::uint64_t seed);

}  // namespace kvant
