// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Whether the machine was ours while it measured: a calibration loop between the runs, and what the
// system says about steal, waiting and other processes. The verdict can fail, and then the run is
// not a result. Limits and their reasons: docs/benchmark-protocol.md.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/protocol.h"

namespace kvant::bench {

/// Counters that only grow, in seconds, except where said.
struct LoadSnapshot {
  double time_s = 0;        // monotonic clock
  double own_cpu_s = 0;     // processor time of this process and its finished children
  double busy_s = 0;        // of all processors this process may use, ours included
  double steal_s = 0;       // of the same processors
  double wait_s = 0;        // our threads runnable but not running (scheduler statistics)
  bool has_wait = false;    // whether the system tells wait_s
  double load_average = 0;  // of the last minute; information only, builds linger in it
};

/// The machine, seen from the harness. Tests replace it.
class MachineProbe {
 public:
  virtual ~MachineProbe() = default;
  /// Seconds that a fixed piece of integer work takes on all threads at once (the slowest counts).
  virtual double Calibrate() = 0;
  virtual LoadSnapshot Snapshot() = 0;
  virtual std::size_t n_cpus() const = 0;     // processors this process may use
  virtual std::size_t n_threads() const = 0;  // threads that the engine uses
  /// Lets the machine alone for a moment: others are measured while we sleep.
  virtual void Rest(double seconds) = 0;
};

/// What others took from us between two snapshots, as shares of 1 (processors for others_cpus).
struct LoadShares {
  double elapsed_s = 0;
  double others_cpus = 0;  // processors kept busy by other processes
  double steal = 0;
  std::optional<double> wait;   // nothing where the system does not tell
  double oversubscription = 0;  // of our threads, the part without a processor of its own
};
LoadShares SharesBetween(const LoadSnapshot& before, const LoadSnapshot& after, std::size_t n_cpus,
                         std::size_t n_threads);

/// Calibration times of a run as a verdict: Quantile(0.9) / Quantile(0.1) - 1. Single outliers
/// below a tenth of the points do not count: medians over rounds take care of those.
double CalibrationDrift(const std::vector<double>& calibration_s);

class ContentionMonitor {
 public:
  ContentionMonitor(MachineProbe& probe, const ContentionLimits& limits);

  /// Measures the others while we rest, then calibrates. Called once, before the first run.
  void Begin();
  /// Calibrates; called between runs. Returns the time.
  double Between();
  /// Calibrates a last time and closes the window.
  void End();

  struct Verdict {
    bool passed = true;
    std::string detail;  // one line: the limit that was broken, or the measured values
  };
  Verdict Judge() const;
  /// True where the others alone would break the limit: worth a warning before minutes are spent.
  bool BusyBefore() const;
  nlohmann::json ToJson() const;

 private:
  MachineProbe& probe_;
  ContentionLimits limits_;
  LoadShares before_;  // others while we rested
  LoadShares during_;
  LoadSnapshot start_;
  double load_average_before_ = 0, load_average_after_ = 0;
  std::vector<double> calibration_s_;
};

}  // namespace kvant::bench
