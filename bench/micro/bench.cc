// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/micro/bench.h"

#include <utility>

#include <fmt/format.h>

#include "bench/micro/attend_rig.h"
#include "bench/micro/kernel_rig.h"

namespace kvant::micro {

Bench::Bench(Options o) : options(std::move(o)) {}
Bench::~Bench() = default;

ReadMeter& Bench::meter() {
  if (meter_ == nullptr) meter_ = std::make_unique<ReadMeter>(read_bytes);
  return *meter_;
}

ThreadPool& Bench::threads(std::size_t n) {
  std::unique_ptr<ThreadPool>& pool = threads_[n];
  if (pool == nullptr) pool = std::make_unique<ThreadPool>(n);
  return *pool;
}

void RegisterReadRows(Bench& bench) {
  for (const ReadKernel& kernel : ReadKernels()) {
    if (!IsaSupported(kernel.isa)) continue;
    for (const std::size_t n_threads : bench.options.threads) {
      const auto run = [&bench, &kernel, n_threads](benchmark::State& state) {
        ThreadPool& threads = bench.threads(n_threads);
        const ReadMeter& meter = bench.meter();
        const Work work = {.bytes = static_cast<double>(meter.bytes()), .n_threads = n_threads};
        TimeLoop(bench, work, state, [&] { meter.Pass(kernel, threads); });
      };
      benchmark::RegisterBenchmark(fmt::format("read/sum/{}/t{}", kernel.name, n_threads).c_str(),
                                   run)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace kvant::micro
