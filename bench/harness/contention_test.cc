// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/contention.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "bench/harness/linux_probe.h"
#include "bench/harness/test_fakes.h"

namespace kvant::bench {
namespace {

const ContentionLimits kLimits = LoadProtocol("honest").contention;

class MonitorTest : public testing::Test {
 protected:
  MonitorTest() { probe_.clock_s = &clock_s_; }

  // A run of ten arms; the machine changes to what `change` sets after the first five.
  template <typename Change>
  ContentionMonitor::Verdict Judge(Change&& change) {
    ContentionMonitor monitor(probe_, kLimits);
    monitor.Begin();
    for (int run = 0; run < 10; ++run) {
      if (run == 5) change();
      clock_s_ += 10;
      monitor.Between();
    }
    monitor.End();
    busy_before_ = monitor.BusyBefore();
    json_ = monitor.ToJson();
    return monitor.Judge();
  }

  double clock_s_ = 0;
  test::FakeProbe probe_;
  bool busy_before_ = false;
  nlohmann::json json_;
};

TEST_F(MonitorTest, AQuietMachinePasses) {
  const auto verdict = Judge([] {});
  EXPECT_TRUE(verdict.passed) << verdict.detail;
  EXPECT_FALSE(busy_before_);
  EXPECT_EQ(json_["calibration_s"].size(), 12u);
}

TEST_F(MonitorTest, SlowerCalibrationInHalfOfTheRunFails) {
  probe_.calibrations = std::vector<double>(18, 0.025);
  probe_.calibrations.resize(36, 0.030);
  const auto verdict = Judge([] {});
  EXPECT_FALSE(verdict.passed);
  EXPECT_NE(verdict.detail.find("calibration drift 20.0 % (limit 15.0 %)"), std::string::npos)
      << verdict.detail;
}

TEST_F(MonitorTest, OneSlowCalibrationLoopDoesNotFail) {
  probe_.calibrations = std::vector<double>(36, 0.025);
  probe_.calibrations[17] = 0.1;
  EXPECT_TRUE(Judge([] {}).passed);
}

TEST_F(MonitorTest, StealFails) {
  const auto verdict = Judge([this] { probe_.steal = 0.1; });
  EXPECT_FALSE(verdict.passed);
  EXPECT_NE(verdict.detail.find("steal time"), std::string::npos) << verdict.detail;
}

TEST_F(MonitorTest, WaitingThreadsFail) {
  const auto verdict = Judge([this] { probe_.wait = 0.2; });
  EXPECT_FALSE(verdict.passed);
  EXPECT_NE(verdict.detail.find("waiting for a processor"), std::string::npos) << verdict.detail;
}

TEST_F(MonitorTest, ASystemThatDoesNotTellWaitingIsJudgedByTheRest) {
  probe_.has_wait = false;
  EXPECT_TRUE(Judge([] {}).passed);
  EXPECT_TRUE(json_["during"]["wait"].is_null());
  EXPECT_FALSE(Judge([this] { probe_.others_cpus = 1; }).passed);
}

TEST_F(MonitorTest, ABusyProcessThatWasThereAllAlongFailsAndIsSeenBefore) {
  // Constant competition shows no drift: only the processors it takes give it away.
  probe_.others_cpus = 1;
  const auto verdict = Judge([] {});
  EXPECT_TRUE(busy_before_);
  EXPECT_FALSE(verdict.passed);
  EXPECT_NE(verdict.detail.find("displaced by other processes 50.0 %"), std::string::npos)
      << verdict.detail;
}

TEST_F(MonitorTest, OthersOnProcessorsThatWeDoNotNeedAreNoHarm) {
  probe_.cpus = 8;
  probe_.others_cpus = 5;
  EXPECT_TRUE(Judge([] {}).passed);
  probe_.others_cpus = 7;
  EXPECT_FALSE(Judge([] {}).passed);
}

TEST(SharesBetween, CountsAsShares) {
  LoadSnapshot before, after;
  before.time_s = 100;
  after.time_s = 110;
  after.busy_s = 18;
  after.own_cpu_s = 15;
  after.steal_s = 1;
  after.wait_s = 2;
  before.has_wait = after.has_wait = true;
  const LoadShares shares = SharesBetween(before, after, 2, 2);
  EXPECT_DOUBLE_EQ(shares.others_cpus, 0.3);
  EXPECT_DOUBLE_EQ(shares.steal, 0.05);
  EXPECT_DOUBLE_EQ(*shares.wait, 0.1);
  EXPECT_DOUBLE_EQ(shares.oversubscription, 0.15);
}

TEST(ProcStat, CountsOnlyTheGivenProcessors) {
  const std::string text =
      "cpu  999 999 999 999 999 999 999 999 0 0\n"
      "cpu0 10 1 5 1000 7 2 3 4 0 0\n"
      "cpu1 100 0 0 1000 0 0 0 50 0 0\n"
      "cpu10 7 0 0 0 0 0 0 1 0 0\n"
      "intr 12345\n";
  const CpuTicks first = ParseProcStat(text, {0});
  EXPECT_EQ(first.busy, 21u);  // without idle and waiting for disks
  EXPECT_EQ(first.steal, 4u);
  const CpuTicks two = ParseProcStat(text, {1, 10});
  EXPECT_EQ(two.busy, 107u);
  EXPECT_EQ(two.steal, 51u);
}

TEST(LinuxProbe, CountersGrowAndWorkIsFixed) {
  LinuxProbe probe(2);
  EXPECT_GE(probe.n_cpus(), 1u);
  const LoadSnapshot before = probe.Snapshot();
  EXPECT_GT(probe.Calibrate(), 0);
  const LoadSnapshot after = probe.Snapshot();
  EXPECT_GT(after.time_s, before.time_s);
  EXPECT_GT(after.own_cpu_s, before.own_cpu_s);
  EXPECT_GE(after.steal_s, before.steal_s);
  EXPECT_EQ(IntegerWork(1000, 7), IntegerWork(1000, 7));
  EXPECT_NE(IntegerWork(1000, 7), IntegerWork(1001, 7));
}

TEST(LinuxProbe, ThreadsOfOursThatCompeteAreSeenAsWaiting) {
  // More spinning threads than processors, all ours: someone must wait. (Whether other processes
  // compete as well only adds to it.)
  LinuxProbe probe(1);
  const std::size_t n_spinning = 2 * probe.n_cpus() + 1;
  std::atomic<bool> stop{false};
  std::vector<std::thread> spinning;
  for (std::size_t i = 0; i < n_spinning; ++i) {
    spinning.emplace_back([&stop] {
      while (!stop) IntegerWork(1000, 1);
    });
  }
  const LoadSnapshot before = probe.Snapshot();
  probe.Rest(0.5);
  const LoadSnapshot after = probe.Snapshot();
  stop = true;
  for (std::thread& thread : spinning) thread.join();
  if (!before.has_wait) GTEST_SKIP() << "this kernel has no scheduler statistics";
  EXPECT_GT(after.wait_s, before.wait_s);
}

}  // namespace
}  // namespace kvant::bench
