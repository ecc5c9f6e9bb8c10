// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What all rows of one run share, and how a row is timed.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/micro/options.h"
#include "bench/micro/read_meter.h"
#include "bench/micro/stopwatch.h"

namespace kvant::micro {

class AttendRig;
class KernelRig;

/// One run of the program. Rows are registered first and build what they need when they run, so that a row
/// that the filter leaves out costs nothing.
class Bench {
 public:
  explicit Bench(Options o);
  ~Bench();

  const Options options;
  /// Bytes of the read buffer; to be raised before the first row runs.
  std::uint64_t read_bytes = std::uint64_t{16} << 20;

  ReadMeter& meter();
  ThreadPool& threads(std::size_t n);

  std::map<std::string, std::unique_ptr<KernelRig>> kernel_rigs;
  std::map<std::string, std::unique_ptr<AttendRig>> attend_rigs;

 private:
  std::unique_ptr<ReadMeter> meter_;
  std::map<std::size_t, std::unique_ptr<ThreadPool>> threads_;
};

/// What one iteration of a row does.
struct Work {
  double bytes = 0;   // of the cache that it reads (encode: writes)
  double tokens = 0;  // that these bytes hold; 0: they hold none
  std::size_t n_threads = 1;
  std::chrono::milliseconds read_age{0};  // how old the read bandwidth may be
};

/// Times `body` (Stopwatch) and sets the row's counters: bytes, GB/s, frac_of_read, frac_of_plain and, with
/// tokens, ns/token. What is timed follows an untimed pass over the same memory, a row as well as the
/// bandwidth it is compared with: a last-level cache of hundreds of MiB keeps part of what was read last.
template <typename Body>
void TimeLoop(Bench& bench, const Work& work, benchmark::State& state, Body&& body) {
  ThreadPool& threads = bench.threads(work.n_threads);
  const ReadMeter::Speed before = bench.meter().Sample(threads, work.read_age);
  body();
  const Stopwatch stopwatch(work.n_threads);
  for (auto _ : state) body();
  const double elapsed = stopwatch.Seconds();
  const ReadMeter::Speed after = bench.meter().Sample(threads, work.read_age);
  const double seconds = elapsed / static_cast<double>(state.iterations());
  const double gb_s = 1e-9 * work.bytes / seconds;
  state.counters["bytes"] = work.bytes;
  state.counters["GB/s"] = gb_s;
  state.counters["frac_of_read"] = gb_s / (0.5 * (before.fastest + after.fastest));
  state.counters["frac_of_plain"] = gb_s / (0.5 * (before.plain + after.plain));
  if (work.tokens > 0) state.counters["ns/token"] = 1e9 * seconds / work.tokens;
}

/// Registers read/sum/<kernel>/t<threads>.
void RegisterReadRows(Bench& bench);
/// Registers encode, decode, score and accumulate of every codec (kernel_rows.cc).
void RegisterKernelRows(Bench& bench);

/// Registers product/<type>/<kernel>/<cols>x<rows>/t<threads> (product_rows.cc).
void RegisterProductRows(Bench& bench);

/// One row of attend, for the table at the end.
struct AttendRow {
  std::string name, spec;
  std::string group;  // what two methods are compared in: kernel, shape, threads
  std::size_t context = 0;
  std::size_t n_threads = 1;
};
/// Registers attend/<spec>/<kernel>/<shape>/ctx<n>/t<threads> for what fits into memory; says on stderr
/// what does not. Raises read_bytes to the largest context (attend_rows.cc).
std::vector<AttendRow> RegisterAttendRows(Bench& bench);

}  // namespace kvant::micro
