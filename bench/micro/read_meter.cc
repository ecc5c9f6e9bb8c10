// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/micro/read_meter.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/error.h"
#include "base/statistics.h"
#include "bench/micro/stopwatch.h"

namespace kvant::micro {
namespace {

constexpr std::size_t kPieceWords = std::size_t{1} << 16;  // 512 KiB: a thread's share at a time
constexpr std::size_t kRacePasses = 5;

std::size_t Words(std::uint64_t bytes) {
  return std::max<std::uint64_t>(bytes / (kPieceWords * sizeof(std::uint64_t)), 1) * kPieceWords;
}

}  // namespace

ReadMeter::ReadMeter(std::uint64_t bytes) : buffer_(Words(bytes), MemoryTag::kOther) {}

double ReadMeter::Pass(const ReadKernel& kernel, ThreadPool& threads) const {
  std::atomic<std::uint64_t> sum{0};
  const Stopwatch stopwatch(threads.n_threads());
  threads.ParallelFor(buffer_.size() / kPieceWords, [&](std::size_t piece, std::size_t) {
    sum.fetch_add(kernel.sum(buffer_.data() + piece * kPieceWords, kPieceWords),
                  std::memory_order_relaxed);
  });
  const double seconds = stopwatch.Seconds();
  benchmark::DoNotOptimize(sum.load());
  return 1e-9 * static_cast<double>(buffer_.bytes()) / seconds;
}

const ReadKernel& ReadMeter::Fastest(ThreadPool& threads) {
  Latest& latest = latest_[threads.n_threads()];
  if (latest.fastest != nullptr) return *latest.fastest;
  std::map<const ReadKernel*, std::vector<double>> passes;
  for (std::size_t pass = 0; pass < kRacePasses; ++pass) {
    for (const ReadKernel& kernel : ReadKernels()) {
      if (IsaSupported(kernel.isa)) passes[&kernel].push_back(Pass(kernel, threads));
    }
  }
  for (const auto& [kernel, gb_s] : passes) {
    if (Median(gb_s) <= latest.speed.fastest) continue;
    latest.speed.fastest = Median(gb_s);
    latest.fastest = kernel;
  }
  latest.speed.plain = Median(passes[&PlainReadKernel()]);
  latest.when = std::chrono::steady_clock::now();
  return *latest.fastest;
}

ReadMeter::Speed ReadMeter::Sample(ThreadPool& threads, std::chrono::milliseconds max_age) {
  const ReadKernel& kernel = Fastest(threads);
  Latest& latest = latest_[threads.n_threads()];
  if (std::chrono::steady_clock::now() - latest.when > max_age) {
    Pass(kernel, threads);  // what was read before is in the last-level cache; from here on this buffer is
    latest.speed.fastest = Pass(kernel, threads);
    latest.speed.plain =
        &kernel == &PlainReadKernel() ? latest.speed.fastest : Pass(PlainReadKernel(), threads);
    latest.when = std::chrono::steady_clock::now();
  }
  return latest.speed;
}

std::size_t ReadMeter::Fill(const std::string& name, std::span<const std::byte> content) {
  const std::size_t n_copies = buffer_.bytes() / content.size();
  if (n_copies == 0) {
    Fail(ErrorCode::kInvalidArgument,
         "a run of {} bytes does not fit into the read buffer of {}; choose a larger --ctx or --shape",
         content.size(), buffer_.bytes());
  }
  if (content_ == name) return n_copies;
  std::byte* to = reinterpret_cast<std::byte*>(buffer_.data());
  for (std::size_t copy = 0; copy < n_copies; ++copy) {
    std::memcpy(to + copy * content.size(), content.data(), content.size());
  }
  content_ = name;
  return n_copies;
}

}  // namespace kvant::micro
