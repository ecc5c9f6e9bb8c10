// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/contention.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/statistics.h"

namespace kvant::bench {
namespace {

constexpr double kRestSeconds = 0.5;  // 50 clock ticks: a share of 2 % can be seen

// Short single loops meet a timer interrupt now and then; the middle of three does not.
double CalibratePoint(MachineProbe& probe) {
  const std::vector<double> loops = {probe.Calibrate(), probe.Calibrate(), probe.Calibrate()};
  return Median(loops);
}

nlohmann::json SharesToJson(const LoadShares& shares) {
  nlohmann::json json = {{"elapsed_s", shares.elapsed_s},
                         {"others_cpus", shares.others_cpus},
                         {"steal", shares.steal},
                         {"oversubscription", shares.oversubscription}};
  json["wait"] = shares.wait ? nlohmann::json(*shares.wait) : nlohmann::json(nullptr);
  return json;
}

}  // namespace

LoadShares SharesBetween(const LoadSnapshot& before, const LoadSnapshot& after, std::size_t n_cpus,
                         std::size_t n_threads) {
  KVANT_CHECK(n_cpus > 0 && n_threads > 0);
  LoadShares shares;
  shares.elapsed_s = after.time_s - before.time_s;
  if (shares.elapsed_s <= 0) return shares;
  const double cpus = static_cast<double>(n_cpus);
  const double threads = static_cast<double>(n_threads);
  // Counters are read one after the other and ticks are coarse: a small negative rest is zero.
  const double busy_cpus = (after.busy_s - before.busy_s) / shares.elapsed_s;
  const double own_cpus = (after.own_cpu_s - before.own_cpu_s) / shares.elapsed_s;
  shares.others_cpus = std::max(0.0, busy_cpus - own_cpus);
  shares.steal = std::max(0.0, after.steal_s - before.steal_s) / (shares.elapsed_s * cpus);
  if (before.has_wait && after.has_wait) {
    shares.wait = std::max(0.0, after.wait_s - before.wait_s) / (shares.elapsed_s * threads);
  }
  shares.oversubscription = std::clamp((shares.others_cpus + threads - cpus) / threads, 0.0, 1.0);
  return shares;
}

double CalibrationDrift(const std::vector<double>& calibration_s) {
  return Quantile(calibration_s, 0.9) / Quantile(calibration_s, 0.1) - 1.0;
}

ContentionMonitor::ContentionMonitor(MachineProbe& probe, const ContentionLimits& limits)
    : probe_(probe), limits_(limits) {}

void ContentionMonitor::Begin() {
  const LoadSnapshot before = probe_.Snapshot();
  probe_.Rest(kRestSeconds);
  const LoadSnapshot after = probe_.Snapshot();
  before_ = SharesBetween(before, after, probe_.n_cpus(), probe_.n_threads());
  load_average_before_ = before.load_average;
  calibration_s_ = {CalibratePoint(probe_)};
  start_ = probe_.Snapshot();
}

double ContentionMonitor::Between() {
  calibration_s_.push_back(CalibratePoint(probe_));
  return calibration_s_.back();
}

void ContentionMonitor::End() {
  const LoadSnapshot end = probe_.Snapshot();
  during_ = SharesBetween(start_, end, probe_.n_cpus(), probe_.n_threads());
  load_average_after_ = end.load_average;
  calibration_s_.push_back(CalibratePoint(probe_));
}

bool ContentionMonitor::BusyBefore() const {
  return before_.oversubscription > limits_.oversubscription || before_.steal > limits_.steal;
}

ContentionMonitor::Verdict ContentionMonitor::Judge() const {
  const double drift = CalibrationDrift(calibration_s_);
  std::string broken;
  const auto judge = [&](double value, double limit, const char* what) {
    if (value <= limit) return;
    broken += fmt::format("{}{} {:.1f} % (limit {:.1f} %)", broken.empty() ? "" : "; ", what,
                          100 * value, 100 * limit);
  };
  judge(drift, limits_.drift, "calibration drift");
  judge(during_.steal, limits_.steal, "steal time");
  judge(during_.wait.value_or(0), limits_.wait, "our threads waiting for a processor");
  judge(during_.oversubscription, limits_.oversubscription,
        "our threads displaced by other processes");
  if (!broken.empty()) return {false, broken};
  const std::string wait =
      during_.wait ? fmt::format("{:.1f} %", 100 * *during_.wait) : "not known on this system";
  return {true, fmt::format(
                    "calibration drift {:.1f} %, steal {:.1f} %, waiting {}, other processes "
                    "{:.2f} of {} processors",
                    100 * drift, 100 * during_.steal, wait, during_.others_cpus, probe_.n_cpus())};
}

nlohmann::json ContentionMonitor::ToJson() const {
  return {{"before", SharesToJson(before_)},
          {"during", SharesToJson(during_)},
          {"load_average_before", load_average_before_},
          {"load_average_after", load_average_after_},
          {"calibration_s", calibration_s_},
          {"calibration_drift", CalibrationDrift(calibration_s_)},
          {"n_cpus", probe_.n_cpus()},
          {"n_threads", probe_.n_threads()}};
}

}  // namespace kvant::bench
