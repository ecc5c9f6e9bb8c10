// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// MachineProbe of Linux: /proc/stat, /proc/self/task/*/schedstat, getrusage and a loop of integer
// work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/harness/contention.h"

namespace kvant::bench {

class LinuxProbe : public MachineProbe {
 public:
  /// n_threads as the engine uses them.
  explicit LinuxProbe(std::size_t n_threads);
  double Calibrate() override;
  LoadSnapshot Snapshot() override;
  std::size_t n_cpus() const override { return cpus_.size(); }
  std::size_t n_threads() const override { return n_threads_; }
  void Rest(double seconds) override;

 private:
  std::size_t n_threads_;
  std::vector<int> cpus_;  // processors this process may use
};

/// Busy and steal time of the given processors from the text of /proc/stat, in clock ticks. Busy is
/// user + nice + system + irq + softirq (guest time is part of user already).
struct CpuTicks {
  std::uint64_t busy = 0, steal = 0;
};
CpuTicks ParseProcStat(const std::string& text, const std::vector<int>& cpus);

/// `n` rounds of a dependent multiply-and-shift chain: the same integer work on every machine.
std::uint64_t IntegerWork(std::uint64_t n, std::uint64_t seed);

}  // namespace kvant::bench
