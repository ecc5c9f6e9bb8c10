// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The JSON result of a benchmark run. Everything that is shown (terminal, HTML) is rendered from it
// alone.
//
// Top level: protocol, env, build, model, command, verdict, checks[], rows[], fits[], memory[],
// runs[].
//   checks[] {name, verdict: pass|fail|info, detail}
//   rows[]   {arm, spec, length, phase: prefill|ttft|decode|step, unit, median, min, max, n,
//            samples[n], kernel, path, storage, prefill, threads, flags[], against_baseline{ratio, noise[2],
//            verdict} (null for the baseline)}; phase step also has p95
//   fits[]   {arm, spec, slope_ns_per_token, slope_ci[2], intercept_ms, intercept_ci[2],
//   slope_ratio,
//            break_even_tokens: number|"always"|"never"|null, break_even_note, n_repeats,
//            lengths[]}
//   memory[] {arm, spec, length, payload, resident, peak, ...}; bytes. payload and resident are the
//            KV cache's, peak is the process's (VmHWM)
//   runs[]   every timed run: round, place, arm, length, prefill_s, ttft_s, decode_s, step_s[],
//            calibration_s, first_different_token
//   verdict  {status: "result"|"not a result"|"no timing verdict", sentence}
//
// A protocol with "mode": "published" (published.h) changes this much:
//   protocol has published{prompt, arm_names, same_tokens, tables[], figures{source, rows[]}}, as
//   in
//            its file; figures are what others published, on their machine
//   rows[]   also phase "generate": new tokens / seconds of prefill and decode together, as
//            published. Every row has new_tokens[n]; against_baseline is {ratio, verdict} with the
//            ratio of medians and no noise floor. Rows of phase "generate" also have
//            ratios{key_ratio_published, key_ratio_resident, kv_ratio_resident: fp16 bytes / bytes
//            of the arm, and the bytes they come from (kv_sides.h)}, first_different_token (against
//            the baseline) and tokens[] of the first round
//   fits[]   is empty: two lengths of too few steps make no line
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/harness/contention.h"
#include "bench/harness/run.h"

namespace kvant::bench {

struct ResultParts {
  nlohmann::json env, build, model;
  nlohmann::json contention;  // ContentionMonitor::ToJson, stored in env
  ContentionMonitor::Verdict contention_verdict;
  std::string command;  // reproduces the run
  std::size_t n_threads = 0;
};

nlohmann::json BuildResult(const BenchConfig& config, const Measurements& measurements,
                           const ResultParts& parts);

/// What is missing or mistyped in a result, one sentence each; empty for a valid one.
std::vector<std::string> ValidateResult(const nlohmann::json& result);

/// Whether a result comes from a protocol of mode "published". It has an object "protocol".
bool IsPublished(const nlohmann::json& result);

/// Parts of BuildResult, apart for tests.
nlohmann::json BuildRows(const BenchConfig& config, const Measurements& measurements,
                         std::size_t n_threads);
nlohmann::json BuildFits(const BenchConfig& config, const Measurements& measurements);
nlohmann::json BuildMemory(const BenchConfig& config, const Measurements& measurements);
nlohmann::json BuildChecks(const BenchConfig& config, const Measurements& measurements,
                           const ResultParts& parts);
/// The same for a protocol of mode "published".
nlohmann::json BuildPublishedRows(const BenchConfig& config, const Measurements& measurements,
                                  std::size_t n_threads);
nlohmann::json BuildPublishedMemory(const BenchConfig& config, const Measurements& measurements);
nlohmann::json BuildPublishedChecks(const BenchConfig& config, const Measurements& measurements,
                                    const ResultParts& parts);

/// Index of the first token of a run that is not the baseline's; null where they print the same.
nlohmann::json DifferenceToJson(const RunSample& sample, const RunSample& baseline);

/// The runs of one arm and length, by round.
std::vector<const TimedRun*> RunsOf(const Measurements& measurements, std::size_t arm,
                                    std::size_t length);

}  // namespace kvant::bench
