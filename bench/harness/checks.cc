// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// checks[] of a result. A check that fails makes the run "not a result"; info is for what a reader
// should know but what takes nothing from the numbers.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "bench/harness/check_builder.h"
#include "bench/harness/verdict.h"

namespace kvant::bench {

using nlohmann::json;

json Check(const char* name, const char* verdict, std::string detail) {
  return {{"name", name}, {"verdict", verdict}, {"detail", std::move(detail)}};
}

json PassOrFail(const char* name, const std::vector<std::string>& problems, std::string fine) {
  if (problems.empty()) return Check(name, "pass", std::move(fine));
  return Check(name, "fail", fmt::format("{}", fmt::join(problems, "; ")));
}

std::size_t FirstDifference(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto [at_a, at_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  static_cast<void>(at_b);
  return static_cast<std::size_t>(at_a - a.begin());
}

json CheckBuilder::Contention() const {
  const bool enforce = config_.protocol.contention.enforce;
  const ContentionMonitor::Verdict& verdict = parts_.contention_verdict;
  if (!enforce) return Check("contention", "info", "not judged; " + verdict.detail);
  return Check("contention", verdict.passed ? "pass" : "fail", verdict.detail);
}

json CheckBuilder::BuildKind() const {
  const std::string type = parts_.build.value("type", "");
  const std::string sanitize = parts_.build.value("sanitize", "");
  if (config_.protocol.contention.enforce && (type != "Release" || !sanitize.empty())) {
    return Check("build", "fail",
                 fmt::format("a {} build{}{}; only a Release build gives speed", type,
                             sanitize.empty() ? "" : " with -fsanitize=", sanitize));
  }
  if (parts_.build.value("dirty", false)) {
    return Check("build", "info", "built from a tree with changes that are not committed");
  }
  return Check("build", "pass", fmt::format("commit {}", parts_.build.value("commit", "unknown")));
}

json CheckBuilder::Steps() const {
  const std::size_t wanted = config_.protocol.decode_steps;
  std::vector<std::string> problems;
  for (const TimedRun& run : measurements_.runs) {
    const RunSample& sample = run.sample;
    if (sample.step_s.size() == wanted && sample.tokens.size() == wanted + 1 &&
        sample.prompt_tokens == run.length) {
      continue;
    }
    problems.push_back(fmt::format("{} at {} tokens ran {} prompt tokens and {} of {} steps",
                                   Name(run.arm), run.length, sample.prompt_tokens,
                                   sample.step_s.size(), wanted));
    break;
  }
  if (problems.empty() && wanted < kMinDecodeSteps) {
    return Check("decode steps", "info",
                 fmt::format("{} steps are fewer than {}: no decode number is given", wanted,
                             kMinDecodeSteps));
  }
  return PassOrFail("decode steps", problems,
                    fmt::format("{} steps after the first token in every run, counted at the "
                                "sampler",
                                wanted));
}

json CheckBuilder::Rounds() const {
  return Check("rounds", "pass",
               fmt::format("{} interleaved rounds in balanced order after {} discarded",
                           measurements_.rounds, config_.protocol.warmup_rounds));
}

json CheckBuilder::Repeats() const {
  std::vector<std::string> problems;
  for (std::size_t arm = 0; arm < config_.arms.size(); ++arm) {
    for (const std::size_t length : measurements_.lengths) {
      const std::vector<const TimedRun*> runs = RunsOf(measurements_, arm, length);
      for (const TimedRun* run : runs) {
        if (run->sample.tokens == runs[0]->sample.tokens) continue;
        problems.push_back(fmt::format(
            "{} at {} tokens: round {} differs from the first at token {}", Name(arm), length,
            run->round + 1, FirstDifference(run->sample.tokens, runs[0]->sample.tokens)));
        break;
      }
    }
  }
  return PassOrFail("identical repeats", problems, "every repeat of an arm gave the same tokens");
}

json CheckBuilder::Twins() const {
  std::vector<std::string> problems;
  for (const std::size_t length : measurements_.lengths) {
    const RunSample& a = RunsOf(measurements_, 0, length)[0]->sample;
    const RunSample& b = RunsOf(measurements_, 1, length)[0]->sample;
    if (a.tokens == b.tokens) continue;
    problems.push_back(
        fmt::format("at {} tokens from token {} on", length, FirstDifference(a.tokens, b.tokens)));
  }
  return PassOrFail("identical A/A", problems,
                    fmt::format("{} and {} gave the same tokens", Name(0), Name(1)));
}

json CheckBuilder::Kernels() const {
  std::vector<std::string> problems;
  std::set<std::string> paths;
  for (std::size_t arm = 0; arm < config_.arms.size(); ++arm) {
    std::set<std::string> of_arm;
    for (const TimedRun& run : measurements_.runs) {
      if (run.arm == arm) of_arm.insert(run.sample.kv.path);
    }
    if (of_arm.size() != 1) {
      problems.push_back(fmt::format("{} ran {}", Name(arm), fmt::join(of_arm, " and ")));
    }
    paths.insert(of_arm.begin(), of_arm.end());
  }
  return PassOrFail("kernels", problems, fmt::format("{}", fmt::join(paths, ", ")));
}

json CheckBuilder::Packed() const {
  std::vector<std::string> problems;
  std::size_t n_expected = 0;
  for (const TimedRun& run : measurements_.runs) {
    if (run.sample.predicted_packed_tokens == 0) continue;
    ++n_expected;
    if (run.sample.kv.packed_tokens > 0) continue;
    problems.push_back(
        fmt::format("{} at {} tokens holds no packed token where the reading rule "
                    "predicts {}",
                    Name(run.arm), run.length, run.sample.predicted_packed_tokens));
    break;
  }
  return PassOrFail("packed tokens", problems,
                    n_expected == 0 ? "no arm stores packed tokens at these lengths"
                                    : "packed where the reading rule predicts it");
}

json CheckBuilder::Memory() const {
  if (!config_.protocol.memory_processes) {
    return Check("memory processes", "info", "switched off: no memory is reported");
  }
  return PassOrFail(
      "memory processes", measurements_.memory_errors,
      fmt::format("{} processes, one for each arm and length", measurements_.memory.size()));
}

json CheckBuilder::Degenerate(bool collapse_fails) const {
  std::vector<std::string> found;
  std::vector<std::string> collapsed;
  for (std::size_t arm = 0; arm < config_.arms.size(); ++arm) {
    for (const std::size_t length : measurements_.lengths) {
      const RunSample& sample = RunsOf(measurements_, arm, length)[0]->sample;
      const RunSample& baseline = RunsOf(measurements_, 0, length)[0]->sample;
      const auto period = RepeatPeriod(sample.tokens, config_.protocol.degenerate);
      if (!period) continue;
      found.push_back(fmt::format("{} at {} tokens (period {})", Name(arm), length, *period));
      // A model may loop by itself; one that prints a single token only with a compressed cache
      // was broken by it.
      const bool by_itself = RepeatPeriod(baseline.tokens, config_.protocol.degenerate).has_value();
      if (collapse_fails && *period <= 2 && !by_itself) collapsed.push_back(found.back());
    }
  }
  if (!collapsed.empty()) {
    return Check(
        "degenerate output", "fail",
        fmt::format("collapsed where the baseline is not: {}", fmt::join(collapsed, ", ")));
  }
  if (found.empty()) return Check("degenerate output", "pass", "no output repeats itself");
  return Check("degenerate output", "info",
               fmt::format("repeats itself, rows are flagged: {}", fmt::join(found, ", ")));
}

json CheckBuilder::Storage() const {
  std::vector<std::string> kinds;
  for (std::size_t arm = 0; arm < config_.arms.size(); ++arm) {
    const RunSample& sample = RunsOf(measurements_, arm, measurements_.lengths[0])[0]->sample;
    kinds.push_back(fmt::format("{} {}", Name(arm), sample.storage));
  }
  return Check("storage", "info", fmt::format("{}", fmt::join(kinds, ", ")));
}

json CheckBuilder::FirstDifferent() const {
  std::vector<std::string> parts;
  for (std::size_t arm = 1; arm < config_.arms.size(); ++arm) {
    if (config_.arms[arm].is_baseline) continue;
    for (const std::size_t length : measurements_.lengths) {
      const RunSample& sample = RunsOf(measurements_, arm, length)[0]->sample;
      const RunSample& baseline = RunsOf(measurements_, 0, length)[0]->sample;
      const std::size_t at = FirstDifference(sample.tokens, baseline.tokens);
      parts.push_back(sample.tokens == baseline.tokens
                          ? fmt::format("{} at {}: none", Name(arm), length)
                          : fmt::format("{} at {}: token {}", Name(arm), length, at));
    }
  }
  return Check("first different token", "info", fmt::format("{}", fmt::join(parts, ", ")));
}

json CheckBuilder::Prefill() const {
  return Check("prefill", "info",
               "once for each arm and length: prefill and first token are one measurement, shown "
               "again in every round");
}

json BuildChecks(const BenchConfig& config, const Measurements& measurements,
                 const ResultParts& parts) {
  const CheckBuilder check(config, measurements, parts);
  json checks = {check.Contention(), check.BuildKind(),
                 check.Steps(),      check.Rounds(),
                 check.Repeats(),    check.Twins(),
                 check.Kernels(),    check.Packed(),
                 check.Memory(),     check.Degenerate(/*collapse_fails=*/true),
                 check.Storage()};
  if (config.protocol.prefill_once) checks.push_back(check.Prefill());
  if (config.arms.size() > 2) checks.push_back(check.FirstDifferent());
  if (!measurements.cut.empty()) {
    checks.push_back(Check("time limit", "info", measurements.cut));
  }
  return checks;
}

}  // namespace kvant::bench
