// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace kvant {
namespace {

// The first outputs of the authors' reference generator (splitmix64.c, Vigna 2015) for three seeds.
TEST(SplitMix64, GivesTheKnownSequences) {
  struct Known {
    std::uint64_t seed;
    std::array<std::uint64_t, 5> outputs;
  };
  constexpr Known kKnown[] = {
      {0,
       {0xe220a8397b1dcdafu, 0x6e789e6aa1b965f4u, 0x06c45d188009454fu, 0xf88bb8a8724c81ecu,
        0x1b39896a51a8749bu}},
      {1234567,
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u,
        16408922859458223821u}},
  };
  for (const Known& known : kKnown) {
    SplitMix64 rng(known.seed);
    for (const std::uint64_t want : known.outputs) EXPECT_EQ(rng.Next(), want) << known.seed;
  }
}

TEST(SplitMix64, TheSameSeedGivesTheSameAndAnotherAnother) {
  SplitMix64 a(7), b(7), c(8);
  EXPECT_EQ(a.Next(), b.Next());
  EXPECT_NE(a.Next(), c.Next());
}

// Mean of n uniform draws: deviation 1 / sqrt(12 n); five of them are passed once in 1.7 million.
TEST(SplitMix64, UniformStaysInItsRangeAndFillsIt) {
  constexpr int kDraws = 100000;
  SplitMix64 rng(3);
  double sum = 0, low = 1, high = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.Uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
    low = std::min(low, x);
    high = std::max(high, x);
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 / std::sqrt(12.0 * kDraws));
  // P(no draw in a tail of 1e-3) = e^-100.
  EXPECT_LT(low, 1e-3);
  EXPECT_GT(high, 1 - 1e-3);
}

TEST(SplitMix64, BelowReachesEveryNumberEvenlyAndNoOther) {
  SplitMix64 rng(4);
  EXPECT_EQ(rng.Below(1), 0u);
  constexpr int kDraws = 70000;
  std::array<int, 7> count = {};
  for (int i = 0; i < kDraws; ++i) {
    const std::uint64_t x = rng.Below(7);
    ASSERT_LT(x, 7u);
    ++count[x];
  }
  // Binomial: deviation sqrt(n p (1 - p)) = 93.
  for (const int n : count) EXPECT_NEAR(n, kDraws / 7, 5 * 93);
  for (int i = 0; i < 1000; ++i) ASSERT_LT(rng.Below(UINT64_MAX), UINT64_MAX);
}

TEST(SplitMix64, NormalHasMeanZeroAndDeviationOne) {
  constexpr int kDraws = 100000;
  SplitMix64 rng(5);
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.Normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 5 / std::sqrt(1.0 * kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0, 5 * std::sqrt(2.0 / kDraws));
}

}  // namespace
}  // namespace kvant
