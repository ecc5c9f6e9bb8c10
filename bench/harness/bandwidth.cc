// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The streaming read of environment.h.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "base/statistics.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "bench/harness/environment.h"

namespace kvant::bench {
namespace {

constexpr std::uint64_t kMinBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxBytes = std::uint64_t{512} << 20;
constexpr std::size_t kPasses = 7;
constexpr std::size_t kPieceWords = std::size_t{1} << 16;  // 512 KiB: a thread's share at a time

// Eight independent sums: one chain of additions would wait for itself, not for memory.
std::uint64_t SumWords(const std::uint64_t* words, std::size_t n) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= n; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : sums) sum += lane;
  return sum;
}

std::uint64_t BufferBytes() {
  std::uint64_t bytes = std::clamp(2 * LastLevelCacheBytes(), kMinBytes, kMaxBytes);
  if (const std::uint64_t free = AvailableMemoryBytes(); free != 0)
    bytes = std::min(bytes, free / 4);
  const std::uint64_t piece = kPieceWords * sizeof(std::uint64_t);
  return std::max(bytes / piece, std::uint64_t{1}) * piece;
}

}  // namespace

ReadBandwidth MeasureReadBandwidth(std::size_t n_threads) {
  const std::uint64_t bytes = BufferBytes();
  Buffer<std::uint64_t> buffer(bytes / sizeof(std::uint64_t), MemoryTag::kOther);
  ThreadPool pool(n_threads);
  std::vector<double> gb_s;
  std::atomic<std::uint64_t> sum{0};
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    pool.ParallelFor(buffer.size() / kPieceWords, [&](std::size_t piece, std::size_t) {
      sum += SumWords(buffer.data() + piece * kPieceWords, kPieceWords);
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    gb_s.push_back(1e-9 * static_cast<double>(bytes) / seconds.count());
  }
  KVANT_CHECK(sum.load() == 0);  // the buffer is zeroed; uses the sums, so that they are computed
  const Summary summary = Summarize(gb_s);
  return {bytes, n_threads, summary.median, summary.max};
}

}  // namespace kvant::bench
