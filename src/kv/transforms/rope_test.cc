// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Turns by blocks of tokens against cosines and sines of the whole angle.
#include "kv/transforms/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvant {
namespace {

RopeGeometry Geometry(std::size_t n_pair, bool adjacent, double base) {
  RopeGeometry rope;
  rope.adjacent_pairs = adjacent;
  for (std::size_t i = 0; i < n_pair; ++i) {
    rope.frequency.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(n_pair)));
  }
  return rope;
}

TEST(RopeGeometry, PairsCoverTheTurningChannelsOnce) {
  for (const bool adjacent : {true, false}) {
    for (const std::size_t n_pair : {0, 1, 5, 32}) {
      const RopeGeometry rope = Geometry(n_pair, adjacent, 10000);
      std::vector<int> seen(2 * n_pair, 0);
      for (std::size_t pair = 0; pair < n_pair; ++pair) {
        ASSERT_LT(rope.first(pair), rope.second(pair));
        ASSERT_LT(rope.second(pair), 2 * n_pair);
        EXPECT_EQ(rope.second(pair) - rope.first(pair), adjacent ? 1 : n_pair);
        ++seen[rope.first(pair)];
        ++seen[rope.second(pair)];
      }
      for (const int n : seen) EXPECT_EQ(n, 1);
    }
  }
}

TEST(RopePhases, TablesAreRoundedCosinesAndSines) {
  for (const double base : {10000.0, 1e6}) {
    const RopeGeometry rope = Geometry(32, true, base);
    const RopePhases phases(rope);
    for (std::size_t pair = 0; pair < rope.n_pair(); ++pair) {
      const double frequency = rope.frequency[pair];
      for (std::size_t i = 0; i < RopePhases::kLow; ++i) {
        const double angle = 64.0 * static_cast<double>(i) * frequency;
        ASSERT_NEAR(phases.low_cos(i)[pair], std::cos(angle), 0x1p-24);
        ASSERT_NEAR(phases.low_sin(i)[pair], std::sin(angle), 0x1p-24);
      }
      for (std::size_t i = 0; i < RopePhases::kHigh; ++i) {
        const double angle = 4096.0 * static_cast<double>(i) * frequency;
        ASSERT_NEAR(phases.high_cos(i)[pair], std::cos(angle), 0x1p-24);
        ASSERT_NEAR(phases.high_sin(i)[pair], std::sin(angle), 0x1p-24);
      }
      for (std::size_t token = 0; token < kBlockTokens; ++token) {
        ASSERT_NEAR(phases.token_cos(token)[pair], std::cos(double(token) * frequency), 1e-14);
        ASSERT_NEAR(phases.token_sin(token)[pair], std::sin(double(token) * frequency), 1e-14);
      }
    }
  }
}

// Block b is 64 * high + low: the product of the two turns is the turn of the position, to the last block.
TEST(RopePhases, TheProductOfTwoTurnsIsThatOfTheBlock) {
  const RopeGeometry rope = Geometry(8, false, 10000);
  const RopePhases phases(rope);
  constexpr std::size_t kBlocks = RopePhases::kMaxTokens / kBlockTokens;
  static_assert(kBlocks == RopePhases::kLow * RopePhases::kHigh);
  for (std::size_t block = 0; block < kBlocks; block += block < 200 ? 1 : 37) {
    for (std::size_t pair = 0; pair < rope.n_pair(); ++pair) {
      const std::size_t low = block % RopePhases::kLow, high = block / RopePhases::kLow;
      const double lc = double(phases.low_cos(low)[pair]), ls = double(phases.low_sin(low)[pair]);
      const double hc = double(phases.high_cos(high)[pair]), hs = double(phases.high_sin(high)[pair]);
      const double angle = 64.0 * static_cast<double>(block) * rope.frequency[pair];
      // Four rounded factors of at most 1; the angle, up to 2^20, is exact to 2^-32.
      ASSERT_NEAR(hc * lc - hs * ls, std::cos(angle), 4 * 0x1p-24) << "block " << block;
      ASSERT_NEAR(hc * ls + hs * lc, std::sin(angle), 4 * 0x1p-24) << "block " << block;
    }
  }
}

}  // namespace
}  // namespace kvant
