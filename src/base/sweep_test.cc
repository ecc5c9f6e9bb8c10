// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "base/thread_pool.h"

namespace kvant {
namespace {

std::vector<std::size_t> TakeAll(Sweep& sweep, std::size_t range) {
  std::vector<std::size_t> items;
  while (const auto item = sweep.Take(range)) items.push_back(*item);
  return items;
}

TEST(Sweep, ARangeIsTakenInOrderThenTheOthersFromTheirEnds) {
  Sweep sweep(3);
  sweep.Start(9, 3);
  EXPECT_EQ(sweep.Peek(1), 3u);
  EXPECT_EQ(TakeAll(sweep, 1), (std::vector<std::size_t>{3, 4, 5, 2, 8, 1, 7, 0, 6}));
  for (std::size_t range = 0; range < 3; ++range) {
    EXPECT_EQ(sweep.Peek(range), std::nullopt);
    EXPECT_EQ(sweep.Take(range), std::nullopt);
  }
}

TEST(Sweep, PeekSaysWhatTakeReturns) {
  Sweep sweep(2);
  sweep.Start(7, 2);
  while (const auto next = sweep.Peek(0)) EXPECT_EQ(sweep.Take(0), next);
}

TEST(Sweep, FewItemsAndManyRanges) {
  Sweep sweep(8);
  for (const std::size_t n_items : {0, 1, 3}) {
    sweep.Start(n_items, 8);
    std::vector<std::size_t> all = TakeAll(sweep, 7);
    std::sort(all.begin(), all.end());
    std::vector<std::size_t> expected(n_items);
    std::iota(expected.begin(), expected.end(), 0u);
    EXPECT_EQ(all, expected);
  }
}

TEST(Sweep, ThreadsTakeEveryItemOnce) {
  constexpr std::size_t kItems = 5000;
  for (const std::size_t n_threads : {1, 2, 5}) {
    ThreadPool threads(n_threads);
    Sweep sweep(n_threads);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::atomic<int>> taken(kItems);
      sweep.Start(kItems, n_threads);
      threads.ParallelFor(n_threads, [&](std::size_t range, std::size_t) {
        while (const auto item = sweep.Take(range)) taken[*item].fetch_add(1);
      });
      for (const std::atomic<int>& times : taken) ASSERT_EQ(times.load(), 1);
    }
  }
}

}  // namespace
}  // namespace kvant
