// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What rows[] and memory[] of both protocol modes have in common (rows.cc). Internal to the
// harness.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/harness/result.h"

namespace kvant::bench {

/// A number that each run gives.
struct Phase {
  const char* name;
  const char* unit;
  bool higher_is_better;
  double (*value)(const RunSample& sample);
};

double PrefillRate(const RunSample& sample);   // prompt tokens per second
double FirstTokenMs(const RunSample& sample);  // prefill and the first token
double DecodeRate(const RunSample& sample);    // steps per second; the sample has steps
double MedianStepMs(const RunSample& sample);  // the sample has steps

std::vector<double> SamplesOf(const std::vector<const TimedRun*>& runs, const Phase& phase);

/// The row of one arm, length and phase, without its comparison. `runs` are RunsOf(arm, length).
nlohmann::json BaseRow(const BenchConfig& config, const std::vector<const TimedRun*>& runs,
                       const Phase& phase);

/// An item of memory[] without its comparison.
nlohmann::json BaseMemory(const BenchConfig& config, const MemoryRow& row);

const MemoryReport* FindMemory(const Measurements& measurements, std::size_t arm,
                               std::size_t length);

}  // namespace kvant::bench
