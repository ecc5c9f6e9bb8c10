// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Runs a protocol: warm-up round, interleaved rounds in balanced order, memory processes,
// contention check. Gives raw measurements; result.h makes the JSON of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/harness/arm_runner.h"
#include "bench/harness/contention.h"
#include "bench/harness/memory_report.h"
#include "bench/harness/protocol.h"

namespace kvant::bench {

struct BenchConfig {
  Protocol protocol;                 // limits and steps; its arms, lengths, rounds are not read
  std::vector<Arm> arms;             // baseline first and second
  std::vector<std::size_t> lengths;  // ascending
  std::size_t rounds = 0;            // raised to whole squares where `balanced`
  bool balanced = true;              // false: exactly `rounds`, the order still rotates
  bool fit_to_budget = false;        // cut rounds, lengths to protocol.time_limit_s; if balanced
  std::uint64_t seed = 42;           // of the bootstrap
};

/// One measured run; warm-up runs are not kept.
struct TimedRun {
  std::size_t round = 0, place = 0;  // place within the round's order
  std::size_t arm = 0, length = 0;   // index into arms; prompt tokens
  double calibration_s = 0;          // of the loop right after it
  RunSample sample;
};

struct MemoryRow {
  std::size_t arm = 0, length = 0;
  MemoryReport report;
};

struct Measurements {
  std::vector<TimedRun> runs;
  std::vector<MemoryRow> memory;
  std::vector<std::string> memory_errors;
  std::vector<std::size_t> lengths;  // those that were measured
  std::size_t rounds = 0;
  std::string cut;  // what the time limit took away, one sentence; empty: nothing
  double elapsed_s = 0;
};

/// Where a long run tells how far it is. Calls come from the thread that runs the protocol.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  /// `work` in seconds, predicted: done so far and in all.
  virtual void Update(double done_s, double total_s, const std::string& doing) = 0;
  virtual void Note(const std::string& sentence) = 0;
};

struct BenchHooks {
  ArmRunner* runner = nullptr;
  ContentionMonitor* contention = nullptr;
  ProgressSink* progress = nullptr;
  /// Runs one arm at one length in a process of its own. Throws Error when it fails.
  std::function<MemoryReport(const Arm&, std::size_t length)> memory;
  std::function<double()> now_s;  // monotonic clock
  const std::atomic<bool>* cancel = nullptr;
};

/// Throws what the runner throws, and Error(kCancelled).
Measurements RunProtocol(const BenchConfig& config, const BenchHooks& hooks);

}  // namespace kvant::bench
