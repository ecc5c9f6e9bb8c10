// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Memory of processes: reading this one's, and running an arm in one of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "bench/harness/memory_report.h"
#include "bench/harness/prompt.h"

namespace kvant::bench {

/// "VmHWM" or "RssAnon" of a /proc/PID/status text, bytes; 0 where the line is absent.
std::uint64_t ParseStatusBytes(const std::string& status, const std::string& key);
/// The same of this process, now.
std::uint64_t ReadStatusBytes(const std::string& key);

/// Samples RssAnon every millisecond while it lives.
class RssAnonSampler {
 public:
  RssAnonSampler();
  ~RssAnonSampler();
  RssAnonSampler(const RssAnonSampler&) = delete;
  RssAnonSampler& operator=(const RssAnonSampler&) = delete;
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  std::size_t n_samples() const { return n_samples_; }

 private:
  void Loop();
  std::atomic<std::uint64_t> peak_bytes_{0};
  std::atomic<std::size_t> n_samples_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Loads the model, runs one prompt of `length` tokens and at most `decode_steps` steps in this
/// process, and reports its peaks. Nothing else may have run in it.
MemoryReport MeasureMemoryHere(const EngineOptions& options, const RunStyle& style,
                               std::size_t length, std::size_t decode_steps);

/// Runs argv (argv[0] is a path) to its end and gives back what it printed on stdout. Throws Error:
/// kCheckFailed with the last line of its stderr when it failed, kCancelled (after ending it) when
/// `cancel` became true.
std::string CaptureProcess(const std::vector<std::string>& argv, const std::atomic<bool>* cancel);

}  // namespace kvant::bench
