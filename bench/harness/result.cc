// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/result.h"

#include <fmt/format.h>

#include "bench/harness/check_builder.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

json BuildVerdict(const BenchConfig& config, const json& checks) {
  std::string failed;
  std::size_t n_passed = 0, n_judged = 0;
  for (const json& check : checks) {
    const std::string verdict = check.at("verdict");
    if (verdict == "info") continue;
    ++n_judged;
    if (verdict == "pass") ++n_passed;
    if (verdict == "fail") {
      failed +=
          fmt::format("{}{}: {}", failed.empty() ? "" : " | ", check.at("name").get<std::string>(),
                      check.at("detail").get<std::string>());
    }
  }
  if (!failed.empty()) return {{"status", "not a result"}, {"sentence", failed}};
  const std::string passed = fmt::format("{} of {} checks passed", n_passed, n_judged);
  if (!config.protocol.contention.enforce) {
    return {{"status", "no timing verdict"},
            {"sentence", passed + "; this protocol judges no speed"}};
  }
  return {{"status", "result"}, {"sentence", passed}};
}

json BuildRuns(const BenchConfig& config, const Measurements& measurements) {
  json runs = json::array();
  for (const TimedRun& run : measurements.runs) {
    const RunSample& sample = run.sample;
    const RunSample& baseline = RunsOf(measurements, 0, run.length)[0]->sample;
    runs.push_back({{"round", run.round},
                    {"place", run.place},
                    {"arm", config.arms[run.arm].name},
                    {"length", run.length},
                    {"prompt_tokens", sample.prompt_tokens},
                    {"new_tokens", sample.tokens.size()},
                    {"prefill_s", sample.prefill_s},
                    {"ttft_s", sample.ttft_s},
                    {"decode_s", sample.decode_s},
                    {"step_s", sample.step_s},
                    {"calibration_s", run.calibration_s},
                    {"finish", FinishReasonName(sample.finish)},
                    {"first_different_token", DifferenceToJson(sample, baseline)}});
  }
  return runs;
}

// The protocol as it ran: what options and the time limit made of the file.
json BuildProtocol(const BenchConfig& config, const Measurements& measurements) {
  json protocol = ProtocolToJson(config.protocol);
  json arms = json::array();
  for (const Arm& arm : config.arms) arms.push_back({{"name", arm.name}, {"spec", arm.spec}});
  protocol["arms"] = arms;
  protocol["lengths"] = measurements.lengths;
  protocol["rounds"] = measurements.rounds;
  protocol["lengths_wanted"] = config.lengths;
  protocol["rounds_wanted"] = config.rounds;
  protocol["order"] = config.balanced ? "interleaved, balanced Latin square"
                                      : "interleaved, rows of a Latin square in turn";
  protocol["sampling"] = StyleOf(config.protocol).stop_at_end
                             ? "greedy, until an end-of-generation token"
                             : "greedy, past end-of-generation tokens";
  protocol["seed"] = config.seed;
  protocol["elapsed_s"] = measurements.elapsed_s;
  return protocol;
}

class Validator {
 public:
  explicit Validator(const json& result) : result_(result) {}

  std::vector<std::string> Run() {
    if (!result_.is_object()) return {"the result is not a JSON object"};
    Need(result_, "result", {"protocol", "env", "build", "model", "verdict"},
         json::value_t::object);
    Need(result_, "result", {"checks", "rows", "fits", "memory", "runs"}, json::value_t::array);
    Need(result_, "result", {"command"}, json::value_t::string);
    if (!problems_.empty()) return problems_;
    if (IsPublished(result_)) NeedPublished();
    Need(result_["verdict"], "verdict", {"status", "sentence"}, json::value_t::string);
    ForEach("checks", [this](const json& check, const std::string& where) {
      Need(check, where, {"name", "verdict", "detail"}, json::value_t::string);
    });
    ForEach("rows", [this](const json& row, const std::string& where) {
      Need(row, where, {"arm", "spec", "phase", "unit", "kernel", "path", "storage"},
           json::value_t::string);
      NeedNumbers(row, where, {"length", "median", "min", "max", "n", "threads"});
      Need(row, where, {"samples", "flags"}, json::value_t::array);
      Need(row, where, {"against_baseline"}, json::value_t::object);
      if (IsPublished(result_)) NeedPublishedRow(row, where);
    });
    ForEach("fits", [this](const json& fit, const std::string& where) {
      Need(fit, where, {"arm", "spec", "break_even_note"}, json::value_t::string);
      NeedNumbers(fit, where, {"slope_ns_per_token", "intercept_ms", "n_repeats"});
      Need(fit, where, {"slope_ci", "intercept_ci", "lengths"}, json::value_t::array);
      if (!fit.is_object() || !fit.contains("break_even_tokens"))
        Missing(where, "break_even_tokens");
    });
    ForEach("memory", [this](const json& row, const std::string& where) {
      Need(row, where, {"arm", "spec"}, json::value_t::string);
      NeedNumbers(row, where, {"length", "payload", "resident", "peak", "rss_anon_peak_bytes"});
      Need(row, where, {"phases", "kv"}, json::value_t::object);
    });
    return problems_;
  }

 private:
  void Missing(const std::string& where, const std::string& key) {
    problems_.push_back(fmt::format("{} lacks \"{}\" or has it with another type", where, key));
  }
  void Need(const json& object, const std::string& where, std::initializer_list<const char*> keys,
            json::value_t type) {
    for (const char* key : keys) {
      if (!object.is_object() || !object.contains(key) || object[key].type() != type) {
        Missing(where, key);
      }
    }
  }
  void NeedNumbers(const json& object, const std::string& where,
                   std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (!object.is_object() || !object.contains(key) || !object[key].is_number()) {
        Missing(where, key);
      }
    }
  }
  void NeedPublished() {
    const json& protocol = result_["protocol"];
    try {
      ParsePublished(protocol.value("published", json()), "protocol, published",
                     protocol.at("arms").size());
    } catch (const std::exception& error) {
      problems_.push_back(error.what());
    }
  }
  void NeedPublishedRow(const json& row, const std::string& where) {
    Need(row, where, {"new_tokens"}, json::value_t::array);
    if (!row.is_object() || row.value("phase", json()) != "generate") return;
    Need(row, where, {"tokens"}, json::value_t::array);
    Need(row, where, {"ratios"}, json::value_t::object);
    for (const char* key : {"key_ratio_published", "key_ratio_resident", "kv_ratio_resident"}) {
      const json ratios = row.value("ratios", json());
      if (!ratios.is_object() || !ratios.contains(key) ||
          !(ratios[key].is_number() || ratios[key].is_null())) {
        Missing(where + ", ratios", key);
      }
    }
  }
  template <typename Visit>
  void ForEach(const char* name, Visit&& visit) {
    std::size_t index = 0;
    for (const json& item : result_[name]) visit(item, fmt::format("{}[{}]", name, index++));
  }

  const json& result_;
  std::vector<std::string> problems_;
};

}  // namespace

json BuildResult(const BenchConfig& config, const Measurements& measurements,
                 const ResultParts& parts) {
  json env = parts.env;
  env["contention"] = parts.contention;
  const bool is_published = config.protocol.published.has_value();
  const json checks = is_published ? BuildPublishedChecks(config, measurements, parts)
                                   : BuildChecks(config, measurements, parts);
  return {{"protocol", BuildProtocol(config, measurements)},
          {"env", env},
          {"build", parts.build},
          {"model", parts.model},
          {"command", parts.command},
          {"verdict", BuildVerdict(config, checks)},
          {"checks", checks},
          {"rows", is_published ? BuildPublishedRows(config, measurements, parts.n_threads)
                                : BuildRows(config, measurements, parts.n_threads)},
          {"fits", is_published ? json::array() : BuildFits(config, measurements)},
          {"memory", is_published ? BuildPublishedMemory(config, measurements)
                                  : BuildMemory(config, measurements)},
          {"runs", BuildRuns(config, measurements)}};
}

json DifferenceToJson(const RunSample& sample, const RunSample& baseline) {
  if (sample.tokens == baseline.tokens) return nullptr;
  return FirstDifference(sample.tokens, baseline.tokens);
}

bool IsPublished(const json& result) {
  return result.at("protocol").value("mode", json()) == "published";
}

std::vector<std::string> ValidateResult(const json& result) { return Validator(result).Run(); }

}  // namespace kvant::bench
