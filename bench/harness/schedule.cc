// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace kvant::bench {
namespace {

double PredictSeconds(const Budget& budget, std::size_t rounds, std::size_t n_lengths) {
  double seconds = budget.spent_s;
  for (std::size_t i = 0; i < n_lengths; ++i) {
    const std::size_t warmups = i < budget.n_warm ? 0 : budget.warmup_rounds;
    seconds += static_cast<double>(rounds + warmups) * budget.round_s[i] + budget.memory_s[i];
  }
  return seconds;
}

}  // namespace

std::vector<std::vector<std::size_t>> BalancedOrders(std::size_t n_arms) {
  KVANT_CHECK(n_arms > 0);
  if (n_arms == 1) return {{0}};
  // First row 0, 1, n-1, 2, n-2, ...: neighbours differ by every number once.
  std::vector<std::size_t> first;
  for (std::size_t i = 0; i < n_arms; ++i) {
    first.push_back(i % 2 == 1 ? (i + 1) / 2 : (n_arms - i / 2) % n_arms);
  }
  std::vector<std::vector<std::size_t>> orders;
  for (std::size_t shift = 0; shift < n_arms; ++shift) {
    std::vector<std::size_t> row;
    for (const std::size_t arm : first) row.push_back((arm + shift) % n_arms);
    orders.push_back(row);
  }
  if (n_arms % 2 == 1) {  // an odd square is balanced only together with its mirror
    for (std::size_t i = 0; i < n_arms; ++i) {
      orders.emplace_back(orders[i].rbegin(), orders[i].rend());
    }
  }
  return orders;
}

std::size_t BalancedRounds(std::size_t n_arms, std::size_t wanted) {
  const std::size_t square = BalancedOrders(n_arms).size();
  return (std::max<std::size_t>(wanted, 1) + square - 1) / square * square;
}

Plan FitToBudget(const Budget& budget) {
  const std::size_t square = BalancedOrders(budget.n_arms).size();
  Plan plan = {BalancedRounds(budget.n_arms, budget.rounds), budget.round_s.size(), 0};
  plan.predicted_s = PredictSeconds(budget, plan.rounds, plan.n_lengths);
  if (budget.limit_s <= 0) return plan;
  // A line needs two lengths, so they are the last to go; one length is kept whatever it takes.
  const std::size_t min_lengths = std::min<std::size_t>(2, budget.round_s.size());
  while (plan.predicted_s > budget.limit_s) {
    if (plan.rounds > square) {
      plan.rounds -= square;
    } else if (plan.n_lengths > min_lengths) {
      --plan.n_lengths;
      plan.rounds = BalancedRounds(budget.n_arms, budget.rounds);
    } else {
      break;
    }
    plan.predicted_s = PredictSeconds(budget, plan.rounds, plan.n_lengths);
  }
  return plan;
}

}  // namespace kvant::bench
