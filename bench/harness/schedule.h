// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// In which order arms run, how many rounds that takes, and what fits into a time limit. Pure
// arithmetic.
#pragma once

#include <cstddef>
#include <vector>

namespace kvant::bench {

/// Balanced Latin square (Williams 1949): rows of arm numbers. Over all rows every arm stands
/// equally often at every place, and equally often directly before every other arm, so that neither
/// drift of the machine nor what the arm before left in the caches favours one. n rows for an even
/// n, 2n for an odd one, one row for a single arm.
std::vector<std::vector<std::size_t>> BalancedOrders(std::size_t n_arms);

/// The smallest number of rounds >= `wanted` (and >= 1) that is whole squares.
std::size_t BalancedRounds(std::size_t n_arms, std::size_t wanted);

struct Budget {
  double limit_s = 0;            // of the whole run
  double spent_s = 0;            // until now
  std::vector<double> round_s;   // [n_lengths] one round of all arms: measured or predicted
  std::vector<double> memory_s;  // [n_lengths] the memory processes of all arms
  std::size_t n_warm = 0;        // lengths whose warm-up round is done
  std::size_t n_arms = 0;
  std::size_t warmup_rounds = 1;
  std::size_t rounds = 0;  // wanted
};

struct Plan {
  std::size_t rounds = 0;
  std::size_t n_lengths = 0;  // the shortest ones stay
  double predicted_s = 0;     // of the whole run
};

/// Fewer rounds first (down to one square), then fewer lengths (down to two where there are two),
/// until the prediction keeps the limit or nothing is left to cut.
Plan FitToBudget(const Budget& budget);

}  // namespace kvant::bench
