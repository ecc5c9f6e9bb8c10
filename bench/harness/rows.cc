// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// rows[] and memory[] of a result.

#include <algorithm>

#include "base/error.h"
#include "base/statistics.h"
#include "bench/harness/row_parts.h"
#include "bench/harness/verdict.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

constexpr double kMinMemoryNoise = 0.005;

constexpr Phase kPhases[] = {{"prefill", "tok/s", true, PrefillRate},
                             {"ttft", "ms", false, FirstTokenMs},
                             {"decode", "tok/s", true, DecodeRate},
                             {"step", "ms", false, MedianStepMs}};

bool IsDecode(const Phase& phase) {
  return std::string_view(phase.name) == "decode" || std::string_view(phase.name) == "step";
}

json CompareToJson(const Comparison& comparison, const BenchConfig& config,
                   const Measurements& measurements, bool is_baseline) {
  json object = {{"ratio", comparison.ratio},
                 {"noise", {comparison.noise.low, comparison.noise.high}},
                 {"verdict", comparison.verdict}};
  if (is_baseline) {
    object["verdict"] = "baseline";
  } else if (!config.protocol.contention.enforce) {
    object["verdict"] = "not judged";
  } else if (measurements.lengths.size() < 2) {
    // What holds at one length need not hold at another, so there is nothing to claim.
    object["verdict"] = "one length: no claim";
  }
  return object;
}

json FlagsOf(const BenchConfig& config, const std::vector<const TimedRun*>& runs) {
  json flags = json::array();
  for (const TimedRun* run : runs) {
    const auto period = RepeatPeriod(run->sample.tokens, config.protocol.degenerate);
    if (!period) continue;
    flags.push_back("degenerate output: period " + std::to_string(*period));
    break;
  }
  return flags;
}

json BuildRow(const BenchConfig& config, const Measurements& measurements, std::size_t arm,
              std::size_t length, const Phase& phase) {
  const std::vector<const TimedRun*> runs = RunsOf(measurements, arm, length);
  const Comparison comparison =
      Compare(SamplesOf(runs, phase), SamplesOf(RunsOf(measurements, 0, length), phase),
              SamplesOf(RunsOf(measurements, 1, length), phase), phase.higher_is_better);
  json row = BaseRow(config, runs, phase);
  row["against_baseline"] =
      CompareToJson(comparison, config, measurements, config.arms[arm].is_baseline);
  if (std::string_view(phase.name) == "step") {
    std::vector<double> steps;
    for (const TimedRun* run : runs) {
      steps.insert(steps.end(), run->sample.step_s.begin(), run->sample.step_s.end());
    }
    row["p95"] = 1e3 * Quantile(steps, 0.95);
  }
  return row;
}

// Peaks of the process against the baseline's; the two baseline processes give the noise.
json CompareMemory(const BenchConfig& config, const Measurements& measurements,
                   const MemoryRow& row) {
  const MemoryReport* a = FindMemory(measurements, 0, row.length);
  const MemoryReport* b = FindMemory(measurements, 1, row.length);
  if (config.arms[row.arm].is_baseline || a == nullptr || b == nullptr) return nullptr;
  const double low = static_cast<double>(std::min(a->vm_hwm_bytes, b->vm_hwm_bytes));
  const double high = static_cast<double>(std::max(a->vm_hwm_bytes, b->vm_hwm_bytes));
  const double peak = static_cast<double>(row.report.vm_hwm_bytes);
  // Two processes show little of the spread; below half a percent no peak is called different.
  const double noise = std::max(high - low, kMinMemoryNoise * high);
  std::string verdict(kNoDifference);
  if (row.report.storage == "simulated") {
    verdict = "simulated storage: no saving";
  } else if (measurements.lengths.size() < 2) {
    verdict = "one length: no claim";
  } else if (peak < low - noise) {
    verdict = "smaller";
  } else if (peak > high + noise) {
    verdict = "larger";
  }
  return {{"ratio", 2 * peak / (low + high)}, {"verdict", verdict}};
}

}  // namespace

double PrefillRate(const RunSample& sample) {
  return static_cast<double>(sample.prompt_tokens) / sample.prefill_s;
}
double FirstTokenMs(const RunSample& sample) { return 1e3 * sample.ttft_s; }
double DecodeRate(const RunSample& sample) {
  return static_cast<double>(sample.step_s.size()) / sample.decode_s;
}
double MedianStepMs(const RunSample& sample) { return 1e3 * Median(sample.step_s); }

std::vector<double> SamplesOf(const std::vector<const TimedRun*>& runs, const Phase& phase) {
  std::vector<double> samples;
  for (const TimedRun* run : runs) samples.push_back(phase.value(run->sample));
  return samples;
}

json BaseRow(const BenchConfig& config, const std::vector<const TimedRun*>& runs,
             const Phase& phase) {
  const std::vector<double> samples = SamplesOf(runs, phase);
  const Summary summary = Summarize(samples);
  const RunSample& last = runs.back()->sample;
  return {{"arm", config.arms[runs[0]->arm].name},
          {"spec", last.kv.spec},
          {"length", runs[0]->length},
          {"phase", phase.name},
          {"unit", phase.unit},
          {"median", summary.median},
          {"min", summary.min},
          {"max", summary.max},
          {"n", summary.n},
          {"samples", samples},
          {"kernel", last.kv.kernel},
          {"path", last.kv.path},
          {"storage", last.storage},
          {"prefill", last.prefill},
          {"flags", FlagsOf(config, runs)}};
}

json BaseMemory(const BenchConfig& config, const MemoryRow& row) {
  const MemoryReport& report = row.report;
  json object = MemoryReportToJson(report);
  object["arm"] = config.arms[row.arm].name;
  object["spec"] = report.kv.spec;
  object["length"] = row.length;
  object["payload"] = report.kv.payload_bytes;
  object["resident"] = report.kv.resident_bytes;
  object["peak"] = report.vm_hwm_bytes;
  return object;
}

const MemoryReport* FindMemory(const Measurements& measurements, std::size_t arm,
                               std::size_t length) {
  for (const MemoryRow& row : measurements.memory) {
    if (row.arm == arm && row.length == length) return &row.report;
  }
  return nullptr;
}

std::vector<const TimedRun*> RunsOf(const Measurements& measurements, std::size_t arm,
                                    std::size_t length) {
  std::vector<const TimedRun*> runs;
  for (const TimedRun& run : measurements.runs) {
    if (run.arm == arm && run.length == length) runs.push_back(&run);
  }
  std::sort(runs.begin(), runs.end(),
            [](const TimedRun* a, const TimedRun* b) { return a->round < b->round; });
  return runs;
}

json BuildRows(const BenchConfig& config, const Measurements& measurements, std::size_t n_threads) {
  json rows = json::array();
  for (const std::size_t length : measurements.lengths) {
    for (std::size_t arm = 0; arm < config.arms.size(); ++arm) {
      for (const Phase& phase : kPhases) {
        if (IsDecode(phase) && config.protocol.decode_steps < kMinDecodeSteps) continue;
        rows.push_back(BuildRow(config, measurements, arm, length, phase));
        rows.back()["threads"] = n_threads;
      }
    }
  }
  return rows;
}

json BuildMemory(const BenchConfig& config, const Measurements& measurements) {
  json memory = json::array();
  for (const MemoryRow& row : measurements.memory) {
    json object = BaseMemory(config, row);
    object["against_baseline"] = CompareMemory(config, measurements, row);
    memory.push_back(object);
  }
  return memory;
}

}  // namespace kvant::bench
