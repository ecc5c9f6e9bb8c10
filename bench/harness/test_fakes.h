// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Stand-ins for the engine, the machine and the clock, with costs that tests set. Test code only.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/harness/result.h"
#include "bench/harness/run.h"

namespace kvant::bench::test {

/// Costs of an arm: step time = intercept + slope x context. Tokens are a fixed sequence.
struct FakeCost {
  double prefill_token_s = 0.001;
  double intercept_s = 0.010, slope_s = 1e-6;
  std::string storage = "exact";
  std::size_t packed_tokens = 0, predicted_packed_tokens = 0;
  KvSides sides = {};                // kv_sides of every run; its bytes are the resident ones
  std::int64_t resident_excess = 0;  // measured resident bytes beyond the predicted ones
  std::function<std::vector<TokenId>(std::size_t n, std::size_t call)> tokens = nullptr;
};

inline std::vector<TokenId> CountingTokens(std::size_t n) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(1000 + i));
  return tokens;
}

class FakeRunner : public ArmRunner {
 public:
  std::map<std::string, FakeCost> costs;  // by arm name; absent: the defaults
  /// Factor on all times of one call (its number among all calls): noise that tests choose.
  std::function<double(const Arm& arm, std::size_t call)> factor;
  double* clock_s = nullptr;     // advanced by what a run takes
  std::vector<std::string> log;  // "fp16/a@231"
  std::vector<std::string> prepared;

  void Prepare(const Arm& arm) override { prepared.push_back(arm.name); }

  RunSample RunOnce(const Arm& arm, std::size_t length, std::size_t decode_steps) override {
    const FakeCost cost = costs.count(arm.name) != 0 ? costs[arm.name] : FakeCost{};
    const std::size_t call = log.size();
    const double scale = factor ? factor(arm, call) : 1.0;
    log.push_back(arm.name + "@" + std::to_string(length));
    RunSample sample;
    sample.prompt_tokens = length;
    sample.prefill_s = scale * cost.prefill_token_s * static_cast<double>(length);
    sample.tokens =
        cost.tokens ? cost.tokens(decode_steps + 1, call) : CountingTokens(decode_steps + 1);
    if (sample.tokens.size() <= decode_steps) sample.finish = FinishReason::kEndOfGeneration;
    for (std::size_t i = 0; i + 1 < sample.tokens.size(); ++i) {
      const double context = static_cast<double>(length + 1 + i);
      sample.step_s.push_back(scale * (cost.intercept_s + cost.slope_s * context));
      sample.decode_s += sample.step_s.back();
    }
    sample.ttft_s = sample.prefill_s + 0.001;
    sample.kv.spec = arm.spec;
    sample.kv.kernel = "scalar";
    sample.kv.path = "attend/" + arm.spec + "/scalar";
    sample.kv.packed_tokens = cost.packed_tokens;
    sample.kv_sides = cost.sides;
    sample.kv.resident_bytes = cost.sides.key_resident + cost.sides.value_resident +
                               static_cast<std::uint64_t>(cost.resident_excess);
    sample.predicted_packed_tokens = cost.predicted_packed_tokens;
    sample.storage = cost.storage;
    if (clock_s != nullptr) *clock_s += sample.ttft_s + sample.decode_s;
    return sample;
  }
  nlohmann::json DescribeModel() const override {
    return {{"name", "fake"},     {"path", "fake.gguf"},  {"weight_types", "F32"},
            {"file_bytes", 1000}, {"weight_bytes", 1000}, {"architecture", "llama"},
            {"n_layer", 1},       {"n_q_head", 1},        {"n_kv_head", 1},
            {"head_dim", 64},     {"n_embd", 64},         {"n_ff", 64},
            {"n_vocab", 10},      {"ctx_limit", 8192}};
  }
  std::size_t MaxLength(std::size_t decode_steps) const override { return 8192 - decode_steps; }
};

/// A machine that is quiet unless told otherwise.
class FakeProbe : public MachineProbe {
 public:
  double* clock_s = nullptr;
  std::size_t cpus = 2, threads = 2;
  double others_cpus = 0, steal = 0, wait = 0;  // rates from now on
  bool has_wait = true;
  std::vector<double> calibrations;  // taken one after the other, the last one for ever
  std::size_t n_calibrations = 0;

  double Calibrate() override {
    const std::size_t at = n_calibrations++;
    if (calibrations.empty()) return 0.025;
    return calibrations[std::min(at, calibrations.size() - 1)];
  }
  LoadSnapshot Snapshot() override {
    Advance();
    return totals_;
  }
  std::size_t n_cpus() const override { return cpus; }
  std::size_t n_threads() const override { return threads; }
  void Rest(double seconds) override { *clock_s += seconds; }

 private:
  void Advance() {
    const double elapsed = *clock_s - totals_.time_s;
    totals_.time_s = *clock_s;
    totals_.own_cpu_s += 1.5 * elapsed;
    totals_.busy_s += (1.5 + others_cpus) * elapsed;
    totals_.steal_s += steal * static_cast<double>(cpus) * elapsed;
    totals_.wait_s += wait * static_cast<double>(threads) * elapsed;
    totals_.has_wait = has_wait;
  }
  LoadSnapshot totals_;
};

class FakeProgress : public ProgressSink {
 public:
  std::vector<std::string> doing, notes;
  std::vector<double> done_s, total_s;
  void Update(double done, double total, const std::string& what) override {
    done_s.push_back(done);
    total_s.push_back(total);
    doing.push_back(what);
  }
  void Note(const std::string& sentence) override { notes.push_back(sentence); }
};

/// A whole bench on fakes. Set its parts, then Run.
struct FakeBench {
  double clock_s = 0;
  FakeRunner runner;
  FakeProbe probe;
  FakeProgress progress;
  BenchConfig config;
  Measurements measurements;
  std::map<std::string, std::uint64_t> peak_bytes;  // by arm; absent: 1e8

  explicit FakeBench(const std::vector<std::string>& specs = {"fp16"}) {
    config.protocol = LoadProtocol("honest");
    config.arms = MakeArms(specs);
    config.lengths = {231, 1024, 4096};
    config.rounds = 4;
    runner.clock_s = &clock_s;
    probe.clock_s = &clock_s;
  }

  nlohmann::json Run() {
    ContentionMonitor contention(probe, config.protocol.contention);
    BenchHooks hooks;
    hooks.runner = &runner;
    hooks.contention = &contention;
    hooks.progress = &progress;
    hooks.now_s = [this] { return clock_s; };
    hooks.memory = [this](const Arm& arm, std::size_t length) { return Memory(arm, length); };
    measurements = RunProtocol(config, hooks);
    ResultParts parts;
    parts.env = {{"cpu", {{"model", "Fake CPU"}, {"online", 2}}},
                 {"read_bandwidth", {{"median_gb_s", 10.0}, {"max_gb_s", 11.0}}}};
    parts.build = {{"version", "0.1.0"}, {"commit", "abc"}, {"dirty", false},
                   {"type", "Release"},  {"sanitize", ""},  {"compiler", "GNU 12"}};
    parts.model = runner.DescribeModel();
    parts.contention = contention.ToJson();
    parts.contention_verdict = contention.Judge();
    parts.command = "kvant bench --fake";
    parts.n_threads = 2;
    return BuildResult(config, measurements, parts);
  }

  MemoryReport Memory(const Arm& arm, std::size_t length) {
    MemoryReport report;
    report.vm_hwm_bytes = peak_bytes.count(arm.name) != 0 ? peak_bytes[arm.name] : 100'000'000;
    report.rss_anon_peak_bytes = report.vm_hwm_bytes / 2;
    report.phases["decode"] = {{{"kv", 1000 * length}}, 1000 * length};
    report.kv.spec = arm.spec;
    report.kv.payload_bytes = 1000 * length;
    report.kv.resident_bytes = 1100 * length;
    report.kv.peak_bytes = 1200 * length;
    report.storage = runner.costs.count(arm.name) != 0 ? runner.costs[arm.name].storage : "exact";
    return report;
  }
};

/// The same on the protocol "published", as it is.
struct FakePublishedBench : FakeBench {
  FakePublishedBench() {
    config.protocol = LoadProtocol("published");
    const std::vector<std::string> specs = config.protocol.arms;
    config.arms = MakePublishedArms(*config.protocol.published, specs, {}, false);
    config.lengths = config.protocol.lengths;
    config.rounds = config.protocol.rounds;
    config.balanced = false;
    runner.costs["off"].slope_s = 3e-6;
  }
};

/// The check of that name; null where there is none.
inline nlohmann::json FindCheck(const nlohmann::json& result, const std::string& name) {
  for (const nlohmann::json& check : result.at("checks")) {
    if (check.at("name") == name) return check;
  }
  return nullptr;
}

inline nlohmann::json FindRow(const nlohmann::json& result, const std::string& arm,
                              std::size_t length, const std::string& phase) {
  for (const nlohmann::json& row : result.at("rows")) {
    if (row.at("arm") == arm && row.at("length") == length && row.at("phase") == phase) return row;
  }
  return nullptr;
}

}  // namespace kvant::bench::test
