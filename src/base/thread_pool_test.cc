// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"

namespace kvant {
namespace {

#ifdef NDEBUG
constexpr int kShortJobs = 20000;
#else
constexpr int kShortJobs = 3000;
#endif

class ThreadPoolTest : public testing::TestWithParam<std::size_t> {};

TEST_P(ThreadPoolTest, EveryItemRunsOnceOnAThreadOfThePool) {
  ThreadPool threads(GetParam());
  ASSERT_EQ(threads.n_threads(), GetParam());
  for (const std::size_t n_items : {0, 1, 2, 3, 7, 64, 1000, 4099}) {
    std::vector<int> runs(n_items, 0);  // plain: two runs of one item would be a race
    threads.ParallelFor(n_items, [&](std::size_t item, std::size_t thread) {
      ASSERT_LT(item, n_items);
      EXPECT_LT(thread, GetParam());
      ++runs[item];
    });
    for (std::size_t item = 0; item < n_items; ++item) {
      ASSERT_EQ(runs[item], 1) << "item " << item << " of " << n_items;
    }
  }
}

TEST_P(ThreadPoolTest, OneThreadNumberIsNeverUsedTwiceAtATime) {
  ThreadPool threads(GetParam());
  std::vector<std::unique_ptr<std::atomic<int>>> busy;
  for (std::size_t i = 0; i < GetParam(); ++i)
    busy.push_back(std::make_unique<std::atomic<int>>(0));
  std::atomic<int> clashes = 0;
  threads.ParallelFor(2000, [&](std::size_t, std::size_t thread) {
    if (busy[thread]->fetch_add(1) != 0) ++clashes;
    busy[thread]->fetch_sub(1);
  });
  EXPECT_EQ(clashes, 0);
}

// The join publishes: what items wrote without atomics is read after it.
TEST_P(ThreadPoolTest, ManyShortJobsSeeTheResultsOfTheOnesBefore) {
  ThreadPool threads(GetParam());
  std::vector<std::uint64_t> values(5, 1);
  for (int job = 0; job < kShortJobs; ++job) {
    const std::uint64_t sum = std::accumulate(values.begin(), values.end(), std::uint64_t{0});
    threads.ParallelFor(values.size(), [&](std::size_t item, std::size_t) {
      values[item] = (sum + item) % 1000003;
    });
    for (std::size_t item = 0; item < values.size(); ++item) {
      ASSERT_EQ(values[item], (sum + item) % 1000003) << "job " << job;
    }
  }
}

TEST_P(ThreadPoolTest, AnExceptionComesOutAfterTheJoinAndThePoolStaysUsable) {
  ThreadPool threads(GetParam());
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> done = 0;
    try {
      threads.ParallelFor(100, [&](std::size_t item, std::size_t) {
        ++done;
        if (item % 10 == 3) throw std::runtime_error("item " + std::to_string(item));
      });
      ADD_FAILURE() << "the exception was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, 5), "item ");
    }
    EXPECT_EQ(done, 100) << "the others ran all the same";
    std::atomic<int> after = 0;
    threads.ParallelFor(10, [&](std::size_t, std::size_t) { ++after; });
    EXPECT_EQ(after, 10);
  }
}

TEST_P(ThreadPoolTest, AnExceptionOfTheOnlyItemComesOutToo) {
  ThreadPool threads(GetParam());
  EXPECT_THROW(threads.ParallelFor(1, [](std::size_t, std::size_t) { throw 5; }), int);
  EXPECT_NO_THROW(threads.ParallelFor(1, [](std::size_t, std::size_t) {}));
}

TEST_P(ThreadPoolTest, ResultsDoNotDependOnTheNumberOfThreads) {
  const auto compute = [](std::size_t n_threads) {
    ThreadPool threads(n_threads);
    std::vector<double> out(999);
    threads.ParallelFor(out.size(), [&](std::size_t item, std::size_t) {
      double x = static_cast<double>(item);
      for (int i = 0; i < 20; ++i) x = x * 1.1 + 0.3;
      out[item] = x;
    });
    return out;
  };
  EXPECT_EQ(compute(GetParam()), compute(1));
}

TEST_P(ThreadPoolTest, ABodyIsNeitherCopiedNorConst) {
  ThreadPool threads(GetParam());
  struct Body {
    Body() = default;
    Body(const Body&) = delete;
    std::atomic<int> calls = 0;
    void operator()(std::size_t, std::size_t) { ++calls; }
  } body;
  threads.ParallelFor(9, body);
  EXPECT_EQ(body.calls, 9);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 4, 9));

TEST(ThreadPool, PoolsThatNeverWorkEndAtOnce) {
  for (int i = 0; i < 50; ++i) const ThreadPool threads(4);
}

TEST(ThreadPool, NumbersOfThreadsOutsideTheRangeAreRefused) {
  for (const std::size_t n : {std::size_t{0}, std::size_t{257}, SIZE_MAX}) {
    try {
      const ThreadPool threads(n);
      ADD_FAILURE() << n;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("1 to 256"), std::string::npos) << error.what();
    }
  }
}

TEST(ThreadPool, TheDefaultIsAllowed) {
  EXPECT_GE(DefaultThreadCount(), 1u);
  EXPECT_LE(DefaultThreadCount(), 256u);
}

}  // namespace
}  // namespace kvant
