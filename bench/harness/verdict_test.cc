// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvant::bench {
namespace {

using Kind = BreakEven::Kind;
const DegenerateRule kRule = {64, 16};

TEST(Compare, ADifferenceInsideTheNoiseIsNoDifference) {
  const std::vector<double> a = {100, 100, 100, 100};
  const std::vector<double> b = {96, 101, 99, 100};  // noise: factor 100 / 96
  const std::vector<double> arm = {103, 103, 103, 103};
  const Comparison comparison = Compare(arm, a, b, true);
  EXPECT_EQ(comparison.verdict, kNoDifference);
  EXPECT_NEAR(comparison.noise.high, 100.0 / 96, 1e-12);
  EXPECT_NEAR(comparison.noise.low, 0.96, 1e-12);
  EXPECT_NEAR(comparison.ratio, 1.0326, 1e-3);
}

TEST(Compare, ADifferenceOutsideTheNoiseIsOne) {
  const std::vector<double> a = {100, 101, 100, 99};
  const std::vector<double> b = {99, 100, 101, 100};
  const std::vector<double> faster = {120, 121, 119, 122};
  const std::vector<double> slower = {80, 81, 79, 82};
  EXPECT_EQ(Compare(faster, a, b, true).verdict, "faster");
  EXPECT_EQ(Compare(slower, a, b, true).verdict, "slower");
  EXPECT_EQ(Compare(faster, a, b, false).verdict, "slower");  // milliseconds
  EXPECT_EQ(Compare(slower, a, b, false).verdict, "faster");
}

TEST(Compare, OverlappingRangesAreNoDifference) {
  // Outside the noise of paired rounds, but one of its rounds was as slow as the baseline's best.
  const std::vector<double> a = {100, 110, 100, 110};
  const std::vector<double> b = {100, 110, 100, 110};
  const std::vector<double> arm = {120, 109, 121, 122};
  EXPECT_GT(Compare(arm, a, b, true).ratio, 1.1);
  EXPECT_EQ(Compare(arm, a, b, true).verdict, kNoDifference);
}

TEST(Compare, OneRoundKnowsNoNoise) {
  const std::vector<double> base = {100};
  const std::vector<double> arm = {200};
  EXPECT_EQ(Compare(arm, base, base, true).verdict, kNoDifference);
}

TEST(Compare, TheBaselineAgainstItselfShowsNoDifference) {
  const std::vector<double> a = {100, 105, 98, 101};
  const std::vector<double> b = {90, 107, 99, 100};
  EXPECT_EQ(Compare(a, a, b, true).verdict, kNoDifference);
  EXPECT_EQ(Compare(b, a, b, true).verdict, kNoDifference);
}

std::vector<TokenId> Periodic(std::size_t n, std::size_t period) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(i % period));
  return tokens;
}

TEST(RepeatPeriod, FindsTheSmallestPeriodOfTheEnd) {
  EXPECT_EQ(RepeatPeriod(Periodic(128, 1), kRule), 1u);
  EXPECT_EQ(RepeatPeriod(Periodic(128, 2), kRule), 2u);
  EXPECT_EQ(RepeatPeriod(Periodic(128, 16), kRule), 16u);
  EXPECT_EQ(RepeatPeriod(Periodic(128, 17), kRule), std::nullopt);
  std::vector<TokenId> late;  // 64 tokens of text, then a loop of three
  for (TokenId id = 500; id < 564; ++id) late.push_back(id);
  for (const TokenId id : Periodic(64, 3)) late.push_back(id);
  EXPECT_EQ(RepeatPeriod(late, kRule), 3u);
}

TEST(RepeatPeriod, TextThatOnlyOftenRepeatsIsNotDegenerate) {
  std::vector<TokenId> tokens = Periodic(128, 2);
  tokens[100] = 7;
  EXPECT_EQ(RepeatPeriod(tokens, kRule), std::nullopt);
  EXPECT_EQ(RepeatPeriod(Periodic(63, 1), kRule), std::nullopt);  // too short to say
}

// A line with intervals of +- width around it.
FittedLine MakeLine(double intercept, double slope, double width) {
  return {
      {intercept, slope},
      {{intercept - width, intercept + width}, {slope - 1e-3 * width, slope + 1e-3 * width}, 100}};
}

BreakEven Find(const FittedLine& arm) {
  const FittedLine base = MakeLine(10, 0.01, 0.1);
  return FindBreakEven(arm, base.line, base.intervals.slope, base.intervals.intercept);
}

TEST(BreakEven, CrossingOfTheLines) {
  // 12 + 0.005 x = 10 + 0.01 x at x = 400.
  const BreakEven from = Find(MakeLine(12, 0.005, 0.1));
  EXPECT_EQ(from.kind, Kind::kFrom);
  EXPECT_NEAR(from.tokens, 400, 1e-9);
  const BreakEven up_to = Find(MakeLine(8, 0.015, 0.1));
  EXPECT_EQ(up_to.kind, Kind::kUpTo);
  EXPECT_NEAR(up_to.tokens, 400, 1e-9);
}

TEST(BreakEven, AlwaysAndNever) {
  EXPECT_EQ(Find(MakeLine(9, 0.005, 0.1)).kind, Kind::kAlways);
  EXPECT_EQ(Find(MakeLine(12, 0.02, 0.1)).kind, Kind::kNever);
}

TEST(BreakEven, WhatLiesInsideTheNoiseIsTakenAsEqual) {
  EXPECT_EQ(Find(MakeLine(10.15, 0.01005, 0.1)).kind, Kind::kNoDifference);
  EXPECT_EQ(Find(MakeLine(10.15, 0.005, 0.1)).kind, Kind::kAlways);  // same start, flatter
  EXPECT_EQ(Find(MakeLine(12, 0.01005, 0.1)).kind, Kind::kNever);    // same slope, higher
}

}  // namespace
}  // namespace kvant::bench
