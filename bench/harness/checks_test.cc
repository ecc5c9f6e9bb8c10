// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Every check can fail, and a failed one makes the run "not a result".

#include <gtest/gtest.h>

#include "bench/harness/test_fakes.h"
#include "kvant/error.h"

namespace kvant::bench {
namespace {

using nlohmann::json;
using test::CountingTokens;
using test::FakeBench;
using test::FindCheck;

void ExpectFailed(const json& result, const std::string& name, const std::string& part) {
  const json check = FindCheck(result, name);
  ASSERT_FALSE(check.is_null()) << name;
  EXPECT_EQ(check["verdict"], "fail") << check.dump();
  EXPECT_NE(check["detail"].get<std::string>().find(part), std::string::npos) << check.dump();
  EXPECT_EQ(result["verdict"]["status"], "not a result");
  EXPECT_NE(result["verdict"]["sentence"].get<std::string>().find(name), std::string::npos);
}

TEST(Checks, ContentionFails) {
  FakeBench bench;
  bench.probe.others_cpus = 2;
  ExpectFailed(bench.Run(), "contention", "displaced");
  ASSERT_EQ(bench.progress.notes.size(), 1u);
  EXPECT_NE(bench.progress.notes[0].find("will probably not count"), std::string::npos);
}

TEST(Checks, AProtocolThatDoesNotJudgeSaysSo) {
  FakeBench bench({"fp16", "m"});
  bench.config.protocol.contention.enforce = false;
  bench.probe.others_cpus = 2;
  bench.runner.costs["m"] = {0.001, 0.001, 0};
  const json result = bench.Run();
  EXPECT_EQ(FindCheck(result, "contention")["verdict"], "info");
  EXPECT_EQ(result["verdict"]["status"], "no timing verdict");
  EXPECT_EQ(test::FindRow(result, "m", 231, "decode")["against_baseline"]["verdict"], "not judged");
}

TEST(Checks, TokensThatChangeBetweenRepeatsFail) {
  FakeBench bench;
  bench.runner.costs["fp16/b"].tokens = [](std::size_t n, std::size_t call) {
    std::vector<TokenId> tokens = CountingTokens(n);
    if (call > 20) tokens[77] = 5;
    return tokens;
  };
  ExpectFailed(bench.Run(), "identical repeats", "token 77");
}

TEST(Checks, TwinsThatDisagreeFail) {
  FakeBench bench;
  bench.runner.costs["fp16/b"].tokens = [](std::size_t n, std::size_t) {
    std::vector<TokenId> tokens = CountingTokens(n);
    tokens[3] = 5;
    return tokens;
  };
  const json result = bench.Run();
  ExpectFailed(result, "identical A/A", "token 3");
  EXPECT_EQ(FindCheck(result, "identical repeats")["verdict"], "pass");
}

TEST(Checks, ARunThatStopsEarlyFails) {
  FakeBench bench;
  bench.runner.costs["fp16/a"].tokens = [](std::size_t, std::size_t) { return CountingTokens(50); };
  ExpectFailed(bench.Run(), "decode steps", "fp16/a at 231 tokens");
}

TEST(Checks, AMethodThatWasNotAppliedFails) {
  FakeBench bench({"fp16", "m"});
  bench.runner.costs["m"].predicted_packed_tokens = 64;
  ExpectFailed(bench.Run(), "packed tokens", "m at 231 tokens");
  FakeBench applied({"fp16", "m"});
  applied.runner.costs["m"].predicted_packed_tokens = 64;
  applied.runner.costs["m"].packed_tokens = 64;
  EXPECT_EQ(FindCheck(applied.Run(), "packed tokens")["verdict"], "pass");
}

std::vector<TokenId> Looping(std::size_t n, std::size_t period) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(i % period));
  return tokens;
}

TEST(Checks, LoopsAreFlaggedAndACollapseFails) {
  FakeBench loops({"fp16", "m"});
  loops.runner.costs["m"].tokens = [](std::size_t n, std::size_t) { return Looping(n, 9); };
  json result = loops.Run();
  EXPECT_EQ(FindCheck(result, "degenerate output")["verdict"], "info");
  EXPECT_EQ(test::FindRow(result, "m", 231, "decode")["flags"],
            json({"degenerate output: period 9"}));
  EXPECT_TRUE(test::FindRow(result, "fp16/a", 231, "decode")["flags"].empty());

  FakeBench collapsed({"fp16", "m"});
  collapsed.runner.costs["m"].tokens = [](std::size_t n, std::size_t) { return Looping(n, 1); };
  ExpectFailed(collapsed.Run(), "degenerate output", "m at 231 tokens (period 1)");

  FakeBench both({"fp16", "m"});  // the model does it by itself: flagged, not blamed on the cache
  for (const char* arm : {"fp16/a", "fp16/b", "m"}) {
    both.runner.costs[arm].tokens = [](std::size_t n, std::size_t) { return Looping(n, 1); };
  }
  EXPECT_EQ(FindCheck(both.Run(), "degenerate output")["verdict"], "info");
}

TEST(Checks, AMemoryProcessThatFailsFailsTheRun) {
  FakeBench bench;
  bench.config.arms[1].name = "fp16/b";
  ContentionMonitor contention(bench.probe, bench.config.protocol.contention);
  BenchHooks hooks;
  hooks.runner = &bench.runner;
  hooks.contention = &contention;
  hooks.progress = &bench.progress;
  hooks.now_s = [&bench] { return bench.clock_s; };
  hooks.memory = [&bench](const Arm& arm, std::size_t length) {
    if (length == 1024) throw Error(ErrorCode::kResourceExhausted, "no memory");
    return bench.Memory(arm, length);
  };
  const Measurements measurements = RunProtocol(bench.config, hooks);
  EXPECT_EQ(measurements.memory.size(), 4u);
  ASSERT_EQ(measurements.memory_errors.size(), 2u);
  EXPECT_EQ(measurements.memory_errors[0], "fp16/a at 1024 tokens: no memory");
}

TEST(Checks, ADebugBuildGivesNoSpeed) {
  FakeBench bench;
  bench.Run();
  ContentionMonitor contention(bench.probe, bench.config.protocol.contention);
  contention.Begin();
  contention.End();
  ResultParts parts;
  parts.build = {{"type", "Debug"}, {"sanitize", "address"}, {"commit", "abc"}, {"dirty", false}};
  parts.contention = contention.ToJson();
  parts.contention_verdict = contention.Judge();
  const json result = BuildResult(bench.config, bench.measurements, parts);
  ExpectFailed(result, "build", "only a Release build");
}

TEST(Validate, NamesWhatIsMissing) {
  FakeBench bench;
  const json good = bench.Run();
  json bad = good;
  bad.erase("fits");
  ASSERT_EQ(ValidateResult(bad).size(), 1u);
  EXPECT_NE(ValidateResult(bad)[0].find("\"fits\""), std::string::npos);
  bad = good;
  bad["rows"][3]["median"] = "fast";
  ASSERT_EQ(ValidateResult(bad).size(), 1u);
  EXPECT_NE(ValidateResult(bad)[0].find("rows[3] lacks \"median\""), std::string::npos);
  bad = good;
  bad["memory"][0].erase("peak");
  EXPECT_EQ(ValidateResult(bad).size(), 1u);
  EXPECT_EQ(ValidateResult(json::array()).size(), 1u);
  EXPECT_EQ(ValidateResult(good).size(), 0u);
}

}  // namespace
}  // namespace kvant::bench
