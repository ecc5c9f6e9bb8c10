// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The course of a run and what its result says, on fakes whose costs are known.

#include "bench/harness/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "bench/harness/test_fakes.h"
#include "bench/harness/verdict.h"
#include "kvant/error.h"

namespace kvant::bench {
namespace {

using nlohmann::json;
using test::FakeBench;
using test::FindCheck;
using test::FindRow;

TEST(RunProtocol, WarmUpIsDiscardedAndRoundsAreInterleavedInBalancedOrder) {
  FakeBench bench({"fp16", "m"});
  bench.config.rounds = 6;
  bench.Run();
  const std::size_t n_runs = 3 * 3 * 6;
  EXPECT_EQ(bench.runner.prepared.size(), 3u);
  EXPECT_EQ(bench.runner.log.size(), n_runs + 3 * 3);  // one warm-up of each arm and length
  EXPECT_EQ(bench.measurements.runs.size(), n_runs);
  // Every arm stands at every place equally often, for each length.
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, std::size_t> count;
  for (const TimedRun& run : bench.measurements.runs) ++count[{run.arm, run.place, run.length}];
  EXPECT_EQ(count.size(), 27u);
  for (const auto& [key, n] : count) EXPECT_EQ(n, 2u);
  // Interleaved: three runs in a row at one length are three arms.
  for (std::size_t i = 0; i < n_runs; i += 3) {
    std::set<std::size_t> arms;
    for (std::size_t j = i; j < i + 3; ++j) arms.insert(bench.measurements.runs[j].arm);
    EXPECT_EQ(arms.size(), 3u);
  }
}

TEST(RunProtocol, ASlowFirstRunDoesNotReachTheResult) {
  FakeBench bench;
  bench.runner.factor = [](const Arm&, std::size_t call) { return call < 6 ? 10.0 : 1.0; };
  const json result = bench.Run();
  const json row = FindRow(result, "fp16/a", 231, "prefill");
  EXPECT_NEAR(row["min"].get<double>(), 1000, 1e-6);
  EXPECT_EQ(row["n"], 4);
  EXPECT_EQ(row["samples"].size(), 4u);
}

TEST(RunProtocol, RoundsBecomeWholeSquares) {
  FakeBench bench({"fp16", "m"});
  bench.config.rounds = 4;
  bench.Run();
  EXPECT_EQ(bench.measurements.rounds, 6u);
}

TEST(RunProtocol, CalibratesAroundEveryRun) {
  FakeBench bench;
  bench.Run();
  EXPECT_EQ(bench.probe.n_calibrations, 3 * (bench.measurements.runs.size() + 2));
}

TEST(RunProtocol, TheTimeLimitCutsRoundsThenLengthsAndSaysSo) {
  FakeBench bench;
  bench.config.fit_to_budget = true;
  bench.Run();
  EXPECT_EQ(bench.measurements.rounds, 4u);
  EXPECT_EQ(bench.measurements.cut, "");
  FakeBench slow;
  slow.config.fit_to_budget = true;
  slow.runner.factor = [](const Arm&, std::size_t) { return 4.0; };
  const json result = slow.Run();
  EXPECT_LE(slow.clock_s, 300);
  EXPECT_NE(slow.measurements.cut, "");
  EXPECT_EQ(FindCheck(result, "time limit")["verdict"], "info");
  EXPECT_EQ(result["protocol"]["lengths"], json(slow.measurements.lengths));
  EXPECT_EQ(result["protocol"]["lengths_wanted"], json({231, 1024, 4096}));
}

TEST(RunProtocol, AColdFirstRunDoesNotCostALength) {
  FakeBench bench;
  bench.config.fit_to_budget = true;
  bench.runner.factor = [](const Arm&, std::size_t call) { return call < 2 ? 10.0 : 1.0; };
  bench.Run();
  EXPECT_EQ(bench.measurements.lengths.size(), 3u);
  EXPECT_EQ(bench.measurements.rounds, 4u);
  EXPECT_EQ(bench.measurements.cut, "");
}

TEST(RunProtocol, ProgressEndsWhereItSaidItWould) {
  FakeBench bench;
  bench.Run();
  ASSERT_GT(bench.progress.total_s.size(), 20u);
  for (std::size_t i = 1; i < bench.progress.done_s.size(); ++i) {
    EXPECT_LE(bench.progress.done_s[i], bench.progress.total_s[i]);
    EXPECT_GE(bench.progress.done_s[i], bench.progress.done_s[i - 1]);
  }
}

TEST(RunProtocol, CancelEndsTheRun) {
  FakeBench bench;
  std::atomic<bool> cancel{true};
  ContentionMonitor contention(bench.probe, bench.config.protocol.contention);
  BenchHooks hooks;
  hooks.runner = &bench.runner;
  hooks.contention = &contention;
  hooks.progress = &bench.progress;
  hooks.now_s = [] { return 0.0; };
  hooks.cancel = &cancel;
  EXPECT_THROW(RunProtocol(bench.config, hooks), Error);
  EXPECT_TRUE(bench.runner.log.empty());
}

TEST(Result, ACleanRunIsAResultAndValid) {
  FakeBench bench({"fp16", "m"});
  const json result = bench.Run();
  EXPECT_EQ(ValidateResult(result), std::vector<std::string>{});
  EXPECT_EQ(result["verdict"]["status"], "result");
  for (const json& check : result["checks"]) EXPECT_NE(check["verdict"], "fail") << check.dump();
  EXPECT_EQ(result["rows"].size(), 3u * 3 * 4);
  EXPECT_EQ(result["runs"].size(), 3u * 3 * 6);
  EXPECT_EQ(result["runs"][0]["step_s"].size(), 128u);
  EXPECT_EQ(result["memory"].size(), 9u);
}

TEST(Result, PhasesAreApartAndCountedInTokens) {
  FakeBench bench;
  bench.runner.costs["fp16/a"] = {0.002, 0.010, 0};
  const json result = bench.Run();
  EXPECT_NEAR(FindRow(result, "fp16/a", 231, "prefill")["median"].get<double>(), 500, 1e-6);
  EXPECT_NEAR(FindRow(result, "fp16/a", 231, "ttft")["median"].get<double>(), 463, 1e-6);
  EXPECT_NEAR(FindRow(result, "fp16/a", 231, "decode")["median"].get<double>(), 100, 1e-6);
  EXPECT_NEAR(FindRow(result, "fp16/a", 231, "step")["median"].get<double>(), 10, 1e-6);
  EXPECT_NEAR(FindRow(result, "fp16/a", 231, "step")["p95"].get<double>(), 10, 1e-6);
}

TEST(Result, TheNoiseOfTheTwinsHidesASmallDifference) {
  // The machine gives the baseline twins up to 5 %; an arm 3 % faster is not called faster, an arm
  // twice as fast is.
  FakeBench bench({"fp16", "m", "n"});
  bench.config.rounds = 4;
  bench.runner.factor = [](const Arm& arm, std::size_t call) {
    if (arm.name == "fp16/b") return call % 8 < 4 ? 1.05 : 1.0;
    if (arm.name == "m") return 0.97;
    return arm.name == "n" ? 0.5 : 1.0;
  };
  const json result = bench.Run();
  const json small = FindRow(result, "m", 1024, "decode")["against_baseline"];
  EXPECT_EQ(small["verdict"], kNoDifference) << small.dump();
  const json large = FindRow(result, "n", 1024, "decode")["against_baseline"];
  EXPECT_EQ(large["verdict"], "faster") << large.dump();
  EXPECT_EQ(FindRow(result, "fp16/b", 1024, "decode")["against_baseline"]["verdict"], "baseline");
}

TEST(Result, FitsFindTheTrueLineAndTheBreakEven) {
  FakeBench bench({"fp16", "m"});
  bench.runner.costs["m"] = {0.001, 0.012, 0.5e-6};
  const json result = bench.Run();
  ASSERT_EQ(result["fits"].size(), 3u);
  EXPECT_NEAR(result["fits"][0]["slope_ns_per_token"].get<double>(), 1000, 1e-3);
  EXPECT_NEAR(result["fits"][0]["intercept_ms"].get<double>(), 10, 1e-6);
  EXPECT_TRUE(result["fits"][0]["break_even_tokens"].is_null());
  EXPECT_NEAR(result["fits"][2]["slope_ratio"].get<double>(), 0.5, 1e-6);
  EXPECT_NEAR(result["fits"][2]["break_even_tokens"].get<double>(), 4000, 1e-3);
}

TEST(Result, BreakEvenWords) {
  FakeBench bench({"fp16", "better", "worse"});
  bench.runner.costs["better"] = {0.001, 0.009, 0.5e-6};
  bench.runner.costs["worse"] = {0.001, 0.011, 2e-6};
  const json fits = bench.Run()["fits"];
  EXPECT_EQ(fits[2]["break_even_tokens"], "always");
  EXPECT_EQ(fits[3]["break_even_tokens"], "never");
}

TEST(Result, OneLengthAllowsNoClaim) {
  FakeBench bench({"fp16", "m"});
  bench.config.lengths = {1024};
  bench.runner.costs["m"] = {0.001, 0.001, 0};
  bench.peak_bytes["m"] = 1000;
  const json result = bench.Run();
  EXPECT_EQ(FindRow(result, "m", 1024, "decode")["against_baseline"]["verdict"],
            "one length: no claim");
  EXPECT_EQ(result["memory"][2]["against_baseline"]["verdict"], "one length: no claim");
  EXPECT_TRUE(result["fits"].empty());
}

TEST(Result, FewStepsGiveNoDecodeNumber) {
  FakeBench bench;
  bench.config.protocol.decode_steps = 127;
  const json result = bench.Run();
  EXPECT_TRUE(FindRow(result, "fp16/a", 231, "decode").is_null());
  EXPECT_TRUE(FindRow(result, "fp16/a", 231, "step").is_null());
  EXPECT_FALSE(FindRow(result, "fp16/a", 231, "prefill").is_null());
  EXPECT_TRUE(result["fits"].empty());
  EXPECT_EQ(FindCheck(result, "decode steps")["verdict"], "info");
}

TEST(Result, MemoryIsJudgedByTheTwinsAndSimulatedStorageSavesNothing) {
  FakeBench bench({"fp16", "small", "same", "fake"});
  bench.peak_bytes = {{"fp16/a", 100'000'000},
                      {"fp16/b", 102'000'000},
                      {"small", 80'000'000},
                      {"same", 99'000'000},
                      {"fake", 50'000'000}};
  bench.runner.costs["fake"].storage = "simulated";
  const json memory = bench.Run()["memory"];
  EXPECT_TRUE(memory[0]["against_baseline"].is_null());
  EXPECT_EQ(memory[2]["against_baseline"]["verdict"], "smaller");
  EXPECT_EQ(memory[3]["against_baseline"]["verdict"], kNoDifference);
  EXPECT_EQ(memory[4]["against_baseline"]["verdict"], "simulated storage: no saving");
  EXPECT_EQ(memory[2]["peak"], 80'000'000);
  EXPECT_EQ(memory[2]["payload"], 231'000);
}

}  // namespace
}  // namespace kvant::bench
