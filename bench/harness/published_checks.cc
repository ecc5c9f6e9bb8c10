// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// checks[] of a result in mode "published": the published checks made able to fail, and those of
// the honest mode that do not need its A/A arms.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "bench/harness/check_builder.h"
#include "bench/harness/schedule.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

// Prefill is inside the published tok/s, so an arm that stops earlier looks slower: such arms are
// not compared by it, and the check says so.
json NewTokens(const BenchConfig& config, const Measurements& measurements) {
  const std::size_t most = config.protocol.decode_steps + 1;
  std::vector<std::string> problems, unequal;
  for (const TimedRun& run : measurements.runs) {
    const RunSample& sample = run.sample;
    const std::size_t n = sample.tokens.size();
    const std::string what = fmt::format("{} at {} tokens", config.arms[run.arm].name, run.length);
    const bool is_whole = sample.finish == FinishReason::kEndOfGeneration ||
                          (sample.finish == FinishReason::kLength && n == most);
    if (!is_whole || n < 1 || n > most || sample.prompt_tokens != run.length) {
      problems.push_back(fmt::format("{}: {} prompt tokens, {} new ones, then \"{}\"", what,
                                     sample.prompt_tokens, n, FinishReasonName(sample.finish)));
      break;
    }
    const std::size_t baseline = RunsOf(measurements, 0, run.length)[0]->sample.tokens.size();
    if (n != baseline && run.round == 0) {
      unequal.push_back(fmt::format("{} gave {}, the baseline {}", what, n, baseline));
    }
  }
  if (problems.empty() && !unequal.empty()) {
    return Check(
        "new tokens", "info",
        fmt::format("not as many in every arm, so tok/s with prefill does not compare them: "
                    "{}",
                    fmt::join(unequal, "; ")));
  }
  return PassOrFail("new tokens", problems,
                    fmt::format("as many in every arm, {} at most, counted at the sampler", most));
}

json Rounds(const BenchConfig& config, const Measurements& measurements) {
  const std::size_t square = BalancedOrders(config.arms.size()).size();
  return Check(
      "rounds", "pass",
      fmt::format("{} interleaved rounds after {} discarded; the order rotates{}",
                  measurements.rounds, config.protocol.warmup_rounds,
                  measurements.rounds % square == 0
                      ? ", balanced"
                      : fmt::format(" (as published; {} would balance it)",
                                    BalancedRounds(config.arms.size(), measurements.rounds))));
}

std::size_t ArmIndex(const BenchConfig& config, const std::string& name) {
  const auto found = std::find_if(config.arms.begin(), config.arms.end(),
                                  [&](const Arm& arm) { return arm.name == name; });
  KVANT_CHECK(found != config.arms.end());
  return static_cast<std::size_t>(found - config.arms.begin());
}

// Arms that differ only in how they compute must not differ in what they print.
json SameTokens(const BenchConfig& config, const Measurements& measurements,
                const ArmGroup& group) {
  std::vector<std::string> problems;
  for (const std::size_t length : measurements.lengths) {
    const auto first = RunsOf(measurements, ArmIndex(config, group.arms[0]), length);
    for (std::size_t i = 1; i < group.arms.size(); ++i) {
      const auto other = RunsOf(measurements, ArmIndex(config, group.arms[i]), length);
      const std::vector<TokenId>& a = first[0]->sample.tokens;
      const std::vector<TokenId>& b = other[0]->sample.tokens;
      if (a == b) continue;
      problems.push_back(fmt::format("{} and {} at {} tokens differ from token {} on",
                                     group.arms[0], group.arms[i], length, FirstDifference(a, b)));
    }
  }
  return PassOrFail(("identical tokens, " + group.title).c_str(), problems,
                    fmt::format("{} gave the same tokens", fmt::join(group.arms, " and ")));
}

// The key ratio is computed from predicted bytes, so these must be the bytes that were held.
json ResidentBytes(const BenchConfig& config, const Measurements& measurements) {
  std::vector<std::string> problems;
  for (const TimedRun& run : measurements.runs) {
    const KvSides& sides = run.sample.kv_sides;
    const std::uint64_t predicted = sides.key_resident + sides.value_resident;
    if (predicted == run.sample.kv.resident_bytes) continue;
    problems.push_back(fmt::format("{} at {} tokens holds {} bytes where the method predicts {}",
                                   config.arms[run.arm].name, run.length,
                                   run.sample.kv.resident_bytes, predicted));
    break;
  }
  return PassOrFail("resident bytes", problems, "the cache of every run holds what was predicted");
}

}  // namespace

json BuildPublishedChecks(const BenchConfig& config, const Measurements& measurements,
                          const ResultParts& parts) {
  const CheckBuilder check(config, measurements, parts);
  json checks = {check.Contention(), check.BuildKind(), NewTokens(config, measurements),
                 Rounds(config, measurements), check.Repeats()};
  for (const ArmGroup& group : config.protocol.published->same_tokens) {
    checks.push_back(SameTokens(config, measurements, group));
  }
  for (json more :
       {check.Kernels(), check.Packed(), ResidentBytes(config, measurements), check.Memory(),
        check.Degenerate(/*collapse_fails=*/false), check.Storage(), check.FirstDifferent()}) {
    checks.push_back(std::move(more));
  }
  return checks;
}

}  // namespace kvant::bench
