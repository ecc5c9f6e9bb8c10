// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "bench/harness/schedule.h"

namespace kvant::bench {
namespace {

// Steps get slower with context and a process has to load its model: what a prediction from a
// shorter length, or from a run without loading, leaves out.
constexpr double kLongerLengthFactor = 1.1;
constexpr double kProcessSeconds = 1.0;

// Seconds of one round (all arms) at each length: measured by the warm-up, predicted before it.
class CostModel {
 public:
  CostModel(std::vector<std::size_t> lengths, std::size_t n_arms, const Protocol& protocol)
      : lengths_(std::move(lengths)),
        round_s_(lengths_.size(), 0.0),
        n_arms_(static_cast<double>(n_arms)),
        decode_steps_(static_cast<double>(protocol.decode_steps)),
        prefill_once_(protocol.prefill_once) {
    Predict(0);
  }

  void AddWarmup(std::size_t index, double seconds, const RunSample& sample) {
    if (index >= n_warm_) {
      n_warm_ = index + 1;
      round_s_[index] = 0;
    }
    round_s_[index] += prefill_once_ ? seconds - sample.prefill_s : seconds;
    prefill_token_s_ =
        sample.prefill_s / static_cast<double>(std::max<std::size_t>(sample.prompt_tokens, 1));
    step_s_ = sample.decode_s / static_cast<double>(std::max<std::size_t>(sample.step_s.size(), 1));
    Predict(n_warm_);
    // The very first run is cold; what a longer one tells of a shorter one is nearer to its rounds.
    for (std::size_t i = 0; i < index; ++i) round_s_[i] = std::min(round_s_[i], Prediction(i));
  }

  Budget MakeBudget(const BenchConfig& config, double spent_s, bool has_memory) const {
    Budget budget;
    budget.limit_s = config.fit_to_budget ? config.protocol.time_limit_s : 0;
    budget.spent_s = spent_s;
    budget.round_s = round_s_;
    for (const double round_s : round_s_) {
      budget.memory_s.push_back(has_memory ? round_s + n_arms_ * kProcessSeconds : 0.0);
    }
    budget.n_warm = n_warm_;
    budget.n_arms = config.arms.size();
    budget.warmup_rounds = config.protocol.warmup_rounds;
    budget.rounds = config.rounds;
    return budget;
  }
  double RunSeconds(std::size_t index) const { return round_s_[index] / n_arms_; }
  /// Of the first run of an arm, beside RunSeconds: its prefill, where later runs need none.
  double FirstRunSeconds(std::size_t index) const {
    return prefill_once_ ? PrefillSeconds(index) : 0.0;
  }

 private:
  double PrefillSeconds(std::size_t index) const {
    return prefill_token_s_ * static_cast<double>(lengths_[index]);
  }
  double Prediction(std::size_t index) const {
    return kLongerLengthFactor * n_arms_ *
           ((prefill_once_ ? 0.0 : PrefillSeconds(index)) + step_s_ * decode_steps_);
  }
  void Predict(std::size_t first) {
    for (std::size_t i = first; i < round_s_.size(); ++i) round_s_[i] = Prediction(i);
  }

  std::vector<std::size_t> lengths_;
  std::vector<double> round_s_;
  std::size_t n_warm_ = 0;
  double n_arms_, decode_steps_;
  bool prefill_once_;
  double prefill_token_s_ = 0.002, step_s_ = 0.012;  // until the first run tells
};

class ProtocolRun {
 public:
  ProtocolRun(const BenchConfig& config, const BenchHooks& hooks)
      : config_(config),
        hooks_(hooks),
        start_s_(hooks.now_s()),
        orders_(BalancedOrders(config.arms.size())),
        costs_(config.lengths, config.arms.size(), config.protocol) {
    result_.lengths = config.lengths;
    result_.rounds =
        config.balanced ? BalancedRounds(config.arms.size(), config.rounds) : config.rounds;
  }

  Measurements Execute() {
    for (const Arm& arm : config_.arms) {
      Tell("loading " + arm.name);
      hooks_.runner->Prepare(arm);
    }
    hooks_.contention->Begin();
    if (hooks_.contention->BusyBefore()) {
      hooks_.progress->Note(
          "other processes keep this machine busy; the run will probably not count");
    }
    WarmUp();
    for (std::size_t round = 0; round < result_.rounds; ++round) MeasureRound(round);
    hooks_.contention->End();
    if (HasMemory()) MeasureMemory();
    result_.elapsed_s = Elapsed();
    return std::move(result_);
  }

 private:
  bool HasMemory() const {
    return config_.protocol.memory_processes && static_cast<bool>(hooks_.memory);
  }
  double Elapsed() const { return hooks_.now_s() - start_s_; }

  void CheckCancelled() const {
    if (hooks_.cancel != nullptr && hooks_.cancel->load()) {
      Fail(ErrorCode::kCancelled, "the benchmark was stopped before it had a result");
    }
  }

  void Tell(const std::string& doing) {
    CheckCancelled();
    double left_s = 0;
    for (std::size_t i = 0; i < result_.lengths.size(); ++i) {
      const double runs_left = static_cast<double>(RunsOfLength() - runs_done_[i]);
      left_s += runs_left * costs_.RunSeconds(i);
      const std::size_t n_first = config_.arms.size() - std::min(config_.arms.size(), runs_done_[i]);
      left_s += static_cast<double>(n_first) * costs_.FirstRunSeconds(i);
      if (HasMemory()) {
        left_s += static_cast<double>(config_.arms.size() - memory_done_[i]) *
                  (costs_.RunSeconds(i) + kProcessSeconds);
      }
    }
    hooks_.progress->Update(Elapsed(), Elapsed() + left_s, doing);
  }

  std::size_t RunsOfLength() const {
    return config_.arms.size() * (result_.rounds + config_.protocol.warmup_rounds);
  }

  RunSample RunOne(std::size_t arm, std::size_t index, const std::string& what) {
    const std::size_t length = result_.lengths[index];
    Tell(fmt::format("{}, {} tokens, {}", what, length, config_.arms[arm].name));
    RunSample sample =
        hooks_.runner->RunOnce(config_.arms[arm], length, config_.protocol.decode_steps);
    ++runs_done_[index];
    return sample;
  }

  void WarmUp() {
    for (std::size_t index = 0; index < result_.lengths.size(); ++index) {
      for (std::size_t round = 0; round < config_.protocol.warmup_rounds; ++round) {
        for (const std::size_t arm : orders_[0]) {
          const double before_s = hooks_.now_s();
          const RunSample sample = RunOne(arm, index, "warm-up");
          if (round == 0) costs_.AddWarmup(index, hooks_.now_s() - before_s, sample);
        }
      }
      FitRest();
    }
    if (!result_.cut.empty()) hooks_.progress->Note(result_.cut);
  }

  // Decides anew after each length's warm-up: a first, cold run predicts badly, so a longer length
  // that it ruled out may come back as long as its turn has not passed.
  void FitRest() {
    if (!config_.balanced) return;
    const Plan plan = FitToBudget(costs_.MakeBudget(config_, Elapsed(), HasMemory()));
    result_.lengths.assign(config_.lengths.begin(),
                           config_.lengths.begin() + static_cast<std::ptrdiff_t>(plan.n_lengths));
    result_.rounds = plan.rounds;
    const std::size_t wanted = BalancedRounds(config_.arms.size(), config_.rounds);
    const bool is_whole = plan.rounds == wanted && plan.n_lengths == config_.lengths.size();
    result_.cut =
        is_whole ? ""
                 : fmt::format("to keep the limit of {:.0f} s: {} of {} rounds, {} of {} lengths",
                               config_.protocol.time_limit_s, plan.rounds, wanted, plan.n_lengths,
                               config_.lengths.size());
  }

  void MeasureRound(std::size_t round) {
    for (std::size_t index = 0; index < result_.lengths.size(); ++index) {
      const std::vector<std::size_t>& order = orders_[(round + index) % orders_.size()];
      for (std::size_t place = 0; place < order.size(); ++place) {
        TimedRun run;
        run.round = round;
        run.place = place;
        run.arm = order[place];
        run.length = result_.lengths[index];
        run.sample =
            RunOne(run.arm, index, fmt::format("round {} of {}", round + 1, result_.rounds));
        run.calibration_s = hooks_.contention->Between();
        result_.runs.push_back(std::move(run));
      }
    }
  }

  void MeasureMemory() {
    for (std::size_t index = 0; index < result_.lengths.size(); ++index) {
      for (std::size_t arm = 0; arm < config_.arms.size(); ++arm) {
        const std::size_t length = result_.lengths[index];
        Tell(fmt::format("memory, {} tokens, {}", length, config_.arms[arm].name));
        try {
          result_.memory.push_back({arm, length, hooks_.memory(config_.arms[arm], length)});
        } catch (const Error& error) {
          if (error.code() == ErrorCode::kCancelled) throw;
          result_.memory_errors.push_back(
              fmt::format("{} at {} tokens: {}", config_.arms[arm].name, length, error.what()));
        }
        ++memory_done_[index];
      }
    }
  }

  const BenchConfig& config_;
  const BenchHooks& hooks_;
  double start_s_;
  std::vector<std::vector<std::size_t>> orders_;
  CostModel costs_;
  Measurements result_;
  std::vector<std::size_t> runs_done_ = std::vector<std::size_t>(config_.lengths.size(), 0);
  std::vector<std::size_t> memory_done_ = std::vector<std::size_t>(config_.lengths.size(), 0);
};

}  // namespace

Measurements RunProtocol(const BenchConfig& config, const BenchHooks& hooks) {
  KVANT_CHECK(config.arms.size() >= 2 && !config.lengths.empty() && hooks.runner != nullptr);
  KVANT_CHECK(hooks.contention != nullptr && hooks.progress != nullptr && hooks.now_s);
  return ProtocolRun(config, hooks).Execute();
}

}  // namespace kvant::bench
