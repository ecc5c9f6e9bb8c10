// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

namespace kvant::bench {
namespace {

class BalancedOrdersTest : public testing::TestWithParam<std::size_t> {};

TEST_P(BalancedOrdersTest, EveryArmStandsEverywhereAndAfterEveryOtherEquallyOften) {
  const std::size_t n_arms = GetParam();
  const auto orders = BalancedOrders(n_arms);
  EXPECT_EQ(orders.size(), n_arms == 1 ? 1u : n_arms % 2 == 0 ? n_arms : 2 * n_arms);
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> at_place, follows;
  for (const auto& order : orders) {
    EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), n_arms);
    for (std::size_t place = 0; place < order.size(); ++place) {
      ASSERT_LT(order[place], n_arms);
      ++at_place[{order[place], place}];
      if (place > 0) ++follows[{order[place - 1], order[place]}];
    }
  }
  EXPECT_EQ(at_place.size(), n_arms * n_arms);
  for (const auto& [key, count] : at_place) EXPECT_EQ(count, orders.size() / n_arms);
  EXPECT_EQ(follows.size(), n_arms * (n_arms - 1));
  for (const auto& [key, count] : follows) EXPECT_EQ(count, orders.size() / n_arms);
}

INSTANTIATE_TEST_SUITE_P(Arms, BalancedOrdersTest, testing::Range<std::size_t>(1, 12));

TEST(Schedule, RoundsAreWholeSquares) {
  EXPECT_EQ(BalancedRounds(2, 1), 2u);
  EXPECT_EQ(BalancedRounds(2, 4), 4u);
  EXPECT_EQ(BalancedRounds(2, 5), 6u);
  EXPECT_EQ(BalancedRounds(3, 4), 6u);
  EXPECT_EQ(BalancedRounds(3, 7), 12u);
  EXPECT_EQ(BalancedRounds(4, 4), 4u);
  EXPECT_EQ(BalancedRounds(1, 0), 1u);
}

Budget MakeBudget(double limit_s) {
  Budget budget;
  budget.limit_s = limit_s;
  budget.spent_s = 10;
  budget.round_s = {2, 5, 20};
  budget.memory_s = {3, 6, 21};
  budget.n_warm = 1;
  budget.n_arms = 2;
  budget.rounds = 4;
  return budget;
}

TEST(Schedule, APlanThatFitsIsNotCut) {
  // 10 + 4 * 2 + 3 + 5 * 5 + 6 + 5 * 20 + 21: the first length is warm already.
  const Plan plan = FitToBudget(MakeBudget(173));
  EXPECT_EQ(plan.rounds, 4u);
  EXPECT_EQ(plan.n_lengths, 3u);
  EXPECT_DOUBLE_EQ(plan.predicted_s, 173);
}

TEST(Schedule, RoundsGoBeforeLengths) {
  const Plan plan = FitToBudget(MakeBudget(172));
  EXPECT_EQ(plan.rounds, 2u);
  EXPECT_EQ(plan.n_lengths, 3u);
  EXPECT_LE(plan.predicted_s, 172);
  const Plan shorter = FitToBudget(MakeBudget(100));
  EXPECT_EQ(shorter.n_lengths, 2u);
  EXPECT_EQ(shorter.rounds, 4u);  // without the longest length all rounds fit again
}

TEST(Schedule, TwoLengthsAndOneSquareAreKeptWhateverTheyTake) {
  const Plan plan = FitToBudget(MakeBudget(1));
  EXPECT_EQ(plan.n_lengths, 2u);
  EXPECT_EQ(plan.rounds, 2u);
  EXPECT_GT(plan.predicted_s, 1);
}

TEST(Schedule, NoLimitCutsNothing) {
  const Plan plan = FitToBudget(MakeBudget(0));
  EXPECT_EQ(plan.rounds, 4u);
  EXPECT_EQ(plan.n_lengths, 3u);
}

}  // namespace
}  // namespace kvant::bench
