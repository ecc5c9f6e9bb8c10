// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Each statistic against values worked out by hand, and against what its name rules out.

#include "base/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "kvant/error.h"

namespace kvant {
namespace {

TEST(Statistics, OrderStatisticsOfAnUnsortedSample) {
  const std::vector<double> odd = {5, 1, 9};
  const std::vector<double> even = {8, 1, 2, 3};
  EXPECT_EQ(Median(odd), 5);
  EXPECT_EQ(Median(even), 2.5);
  EXPECT_EQ(Minimum(even), 1);
  EXPECT_EQ(Maximum(even), 8);
  EXPECT_EQ(Mean(even), 3.5);
  const Summary summary = Summarize(even);
  EXPECT_EQ(summary.median, 2.5);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.max, 8);
  EXPECT_EQ(summary.n, 4u);
}

TEST(Statistics, TheMedianIsNotTheMean) {
  const std::vector<double> one_outlier = {1, 1, 1, 1000};
  EXPECT_EQ(Median(one_outlier), 1);
  EXPECT_EQ(Mean(one_outlier), 250.75);
}

TEST(Statistics, QuantileInterpolatesBetweenOrderStatistics) {
  const std::vector<double> sample = {40, 10, 30, 20, 50};
  EXPECT_EQ(Quantile(sample, 0.0), 10);
  EXPECT_EQ(Quantile(sample, 0.25), 20);
  EXPECT_DOUBLE_EQ(Quantile(sample, 0.1), 14);
  EXPECT_DOUBLE_EQ(Quantile(sample, 0.95), 48);
  EXPECT_EQ(Quantile(sample, 1.0), 50);
  const std::vector<double> single = {7};
  EXPECT_EQ(Quantile(single, 0.9), 7);
}

TEST(Statistics, RepeatingASampleDoesNotChangeItsValues) {
  // A metric divided by the wrong power of n drifts with n; none of these may.
  const std::vector<double> once = {1, 2, 6};
  const std::vector<double> thrice = {1, 2, 6, 1, 2, 6, 1, 2, 6};
  EXPECT_DOUBLE_EQ(Mean(once), Mean(thrice));
  EXPECT_DOUBLE_EQ(Median(once), Median(thrice));
  EXPECT_DOUBLE_EQ(Maximum(once), Maximum(thrice));
}

TEST(Statistics, EmptyAndNonFiniteSamplesAreRefused) {
  const std::vector<double> empty;
  const std::vector<double> with_nan = {1, std::numeric_limits<double>::quiet_NaN()};
  const std::vector<double> with_infinity = {1, std::numeric_limits<double>::infinity()};
  EXPECT_THROW(Median(empty), Error);
  EXPECT_THROW(Minimum(with_nan), Error);
  EXPECT_THROW(Mean(with_infinity), Error);
  const std::vector<double> fine = {1, 2};
  EXPECT_THROW(Quantile(fine, 1.01), Error);
  EXPECT_THROW(Quantile(fine, -0.01), Error);
}

TEST(Statistics, LeastSquaresOfExactAndScatteredPoints) {
  const std::vector<Point> exact = {{100, 7}, {200, 9}, {400, 13}};
  const Line line = FitLine(exact);
  EXPECT_DOUBLE_EQ(line.slope, 0.02);
  EXPECT_DOUBLE_EQ(line.intercept, 5);
  EXPECT_DOUBLE_EQ(line.At(1000), 25);
  // By hand: mean x 1, mean y 2; sum xy 3, sum xx 2.
  const std::vector<Point> scattered = {{0, 1}, {1, 1}, {2, 4}};
  EXPECT_DOUBLE_EQ(FitLine(scattered).slope, 1.5);
  EXPECT_DOUBLE_EQ(FitLine(scattered).intercept, 0.5);
}

TEST(Statistics, SmallSlopesSurviveLargeContexts) {
  std::vector<Point> points;
  for (double x = 131072; x < 131072 + 128; ++x) points.push_back({x, 0.01 + 3e-8 * x});
  EXPECT_NEAR(FitLine(points).slope, 3e-8, 1e-13);
}

TEST(Statistics, ALineNeedsTwoPositions) {
  const std::vector<Point> none;
  const std::vector<Point> one_position = {{5, 1}, {5, 2}};
  EXPECT_THROW(FitLine(none), Error);
  EXPECT_THROW(FitLine(one_position), Error);
}

std::vector<std::vector<Point>> NoisyRepeats(double slope, std::size_t n_repeats, double noise,
                                             std::uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<std::vector<Point>> repeats;
  for (std::size_t i = 0; i < n_repeats; ++i) {
    std::vector<Point> repeat;
    for (const double x : {200.0, 1000.0, 4000.0}) {
      repeat.push_back({x, 10 + slope * x + noise * rng.Normal()});
    }
    repeats.push_back(repeat);
  }
  return repeats;
}

TEST(Statistics, BootstrapIntervalsCoverTheTrueSlope) {
  // 90 % intervals of 20 repeats: the percentile bootstrap covers a little less than it says. Out
  // of 200 data sets, 150 covered is more than ten standard deviations below 90 %.
  std::size_t n_covered = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto repeats = NoisyRepeats(0.003, 20, 0.5, seed);
    const LineIntervals intervals = BootstrapLine(repeats, 300, 0.9, seed);
    EXPECT_LE(intervals.slope.low, intervals.slope.high);
    if (intervals.slope.Contains(0.003)) ++n_covered;
  }
  EXPECT_GE(n_covered, 150u);
  EXPECT_LT(n_covered, 200u);  // an interval that always covers would be too wide
}

TEST(Statistics, BootstrapIsReproducibleAndDependsOnTheSeed) {
  const auto repeats = NoisyRepeats(0.003, 5, 0.5, 1);
  const LineIntervals a = BootstrapLine(repeats, 200, 0.95, 42);
  const LineIntervals b = BootstrapLine(repeats, 200, 0.95, 42);
  const LineIntervals c = BootstrapLine(repeats, 200, 0.95, 43);
  EXPECT_EQ(a.slope.low, b.slope.low);
  EXPECT_EQ(a.intercept.high, b.intercept.high);
  EXPECT_NE(a.slope.low, c.slope.low);
  EXPECT_EQ(a.n_resamples, 200u);
}

TEST(Statistics, BootstrapDrawsWholeRepeats) {
  // Two repeats that each lie exactly on a line: every resample mixes whole repeats, so the slope
  // is one of three values; drawing single points would give others.
  const std::vector<std::vector<Point>> repeats = {{{0, 0}, {1, 1}}, {{0, 0}, {1, 3}}};
  const LineIntervals wide = BootstrapLine(repeats, 1000, 0.99, 7);
  EXPECT_DOUBLE_EQ(wide.slope.low, 1);
  EXPECT_DOUBLE_EQ(wide.slope.high, 3);
  EXPECT_NEAR(wide.intercept.low, 0, 1e-12);
  EXPECT_NEAR(wide.intercept.high, 0, 1e-12);
}

TEST(Statistics, BootstrapOfOneRepeatClaimsNoSpread) {
  const std::vector<std::vector<Point>> one = {{{0, 1}, {2, 5}}};
  const LineIntervals intervals = BootstrapLine(one, 100, 0.95, 1);
  EXPECT_EQ(intervals.n_resamples, 0u);
  EXPECT_EQ(intervals.slope.low, 2);
  EXPECT_EQ(intervals.slope.high, 2);
}

TEST(Statistics, BootstrapRefusesBadInput) {
  const std::vector<std::vector<Point>> none;
  const std::vector<std::vector<Point>> flat = {{{1, 1}, {1, 2}}};
  const std::vector<std::vector<Point>> fine = {{{0, 1}, {2, 5}}};
  EXPECT_THROW(BootstrapLine(none, 10, 0.9, 1), Error);
  EXPECT_THROW(BootstrapLine(flat, 10, 0.9, 1), Error);
  EXPECT_THROW(BootstrapLine(fine, 0, 0.9, 1), Error);
  EXPECT_THROW(BootstrapLine(fine, 10, 1.0, 1), Error);
}

}  // namespace
}  // namespace kvant
