// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// rows[] and memory[] of a result in mode "published". Ratios are those of the published table:
// medians divided, with no noise floor, because that protocol has no A/A.

#include <algorithm>

#include "base/error.h"
#include "base/statistics.h"
#include "bench/harness/row_parts.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

// The published clock ran from before the prefill to after the last token.
double GenerateRate(const RunSample& sample) {
  return static_cast<double>(sample.tokens.size()) / (sample.ttft_s + sample.decode_s);
}

constexpr Phase kPublishedPhases[] = {{"generate", "tok/s", true, GenerateRate},
                                      {"prefill", "tok/s", true, PrefillRate},
                                      {"ttft", "ms", false, FirstTokenMs},
                                      {"decode", "tok/s", true, DecodeRate},
                                      {"step", "ms", false, MedianStepMs}};

bool NeedsSteps(const Phase& phase) {
  return std::string_view(phase.name) == "decode" || std::string_view(phase.name) == "step";
}

// An answer of one token has no step; then there is no decode number rather than a partial one.
bool HasSteps(const std::vector<const TimedRun*>& runs) {
  return std::all_of(runs.begin(), runs.end(),
                     [](const TimedRun* run) { return !run->sample.step_s.empty(); });
}

json Against(double value, double baseline, bool is_baseline) {
  return {{"ratio", baseline > 0 ? json(value / baseline) : json(nullptr)},
          {"verdict", is_baseline ? "baseline" : "as published: no noise floor"}};
}

json BuildRow(const BenchConfig& config, const Measurements& measurements, std::size_t arm,
              std::size_t length, const Phase& phase) {
  const std::vector<const TimedRun*> runs = RunsOf(measurements, arm, length);
  const std::vector<const TimedRun*> baseline = RunsOf(measurements, 0, length);
  json row = BaseRow(config, runs, phase);
  const double base =
      NeedsSteps(phase) && !HasSteps(baseline) ? 0.0 : Median(SamplesOf(baseline, phase));
  row["against_baseline"] = Against(row["median"], base, config.arms[arm].is_baseline);
  row["new_tokens"] = json::array();
  for (const TimedRun* run : runs) row["new_tokens"].push_back(run->sample.tokens.size());
  if (std::string_view(phase.name) == "generate") {
    const RunSample& first = runs[0]->sample;
    row["ratios"] = RatiosToJson(first.kv_sides, first.kv.resident_bytes);
    row["first_different_token"] = DifferenceToJson(first, baseline[0]->sample);
    row["tokens"] = first.tokens;
  }
  return row;
}

}  // namespace

json BuildPublishedRows(const BenchConfig& config, const Measurements& measurements,
                        std::size_t n_threads) {
  json rows = json::array();
  for (const std::size_t length : measurements.lengths) {
    for (std::size_t arm = 0; arm < config.arms.size(); ++arm) {
      for (const Phase& phase : kPublishedPhases) {
        if (NeedsSteps(phase) && !HasSteps(RunsOf(measurements, arm, length))) continue;
        rows.push_back(BuildRow(config, measurements, arm, length, phase));
        rows.back()["threads"] = n_threads;
      }
    }
  }
  return rows;
}

json BuildPublishedMemory(const BenchConfig& config, const Measurements& measurements) {
  json memory = json::array();
  for (const MemoryRow& row : measurements.memory) {
    json object = BaseMemory(config, row);
    const MemoryReport* baseline = FindMemory(measurements, 0, row.length);
    object["against_baseline"] = nullptr;
    if (!config.arms[row.arm].is_baseline && baseline != nullptr) {
      object["against_baseline"] = Against(static_cast<double>(row.report.vm_hwm_bytes),
                                           static_cast<double>(baseline->vm_hwm_bytes), false);
    }
    memory.push_back(object);
  }
  return memory;
}

}  // namespace kvant::bench
