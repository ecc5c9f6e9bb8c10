// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/linux_probe.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace kvant::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Some 25 ms at 3 GHz: several scheduler slices, so that a competitor cannot hide between two.
constexpr std::uint64_t kCalibrationRounds = 12'000'000;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double CpuSeconds(int who) {
  rusage usage = {};
  getrusage(who, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Second field of schedstat: nanoseconds on a run queue. Sums the threads that exist now; those of
// the engine live as long as the run.
bool ReadWait(double& wait_s) {
  std::error_code error;
  std::filesystem::directory_iterator tasks("/proc/self/task", error);
  if (error) return false;
  wait_s = 0;
  bool found = false;
  for (const auto& task : tasks) {
    std::istringstream line(ReadAll(task.path() / "schedstat"));
    std::uint64_t running_ns = 0, waiting_ns = 0;
    if (!(line >> running_ns >> waiting_ns)) continue;
    found = true;
    wait_s += 1e-9 * static_cast<double>(waiting_ns);
  }
  return found;
}

}  // namespace

std::uint64_t IntegerWork(std::uint64_t n, std::uint64_t seed) {
  std::uint64_t x = seed;
  for (std::uint64_t i = 0; i < n; ++i) x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u + i;
  return x;
}

CpuTicks ParseProcStat(const std::string& text, const std::vector<int>& cpus) {
  CpuTicks ticks;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    if (name.size() < 4 || name.compare(0, 3, "cpu") != 0) continue;  // "cpu" alone is the sum
    const int cpu = std::atoi(name.c_str() + 3);
    if (std::find(cpus.begin(), cpus.end(), cpu) == cpus.end()) continue;
    std::uint64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0;
    std::uint64_t steal = 0;
    fields >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
    ticks.busy += user + nice + system + irq + softirq;
    ticks.steal += steal;
  }
  return ticks;
}

LinuxProbe::LinuxProbe(std::size_t n_threads) : n_threads_(std::max<std::size_t>(n_threads, 1)) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus_.push_back(cpu);
    }
  }
  if (cpus_.empty()) {  // more processors than the set holds: take all that are online
    for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); ++cpu) cpus_.push_back(cpu);
  }
}

double LinuxProbe::Calibrate() {
  // Own threads, not a pool: a pool may give two pieces to one thread, which would read as drift.
  std::barrier<> start(static_cast<std::ptrdiff_t>(n_threads_));
  std::vector<double> seconds(n_threads_);
  std::atomic<std::uint64_t> sink{0};
  const auto work = [&](std::size_t thread) {
    start.arrive_and_wait();
    const auto begin = Clock::now();
    sink += IntegerWork(kCalibrationRounds, thread + 1);
    seconds[thread] = Seconds(Clock::now() - begin);
  };
  std::vector<std::thread> threads;
  for (std::size_t thread = 1; thread < n_threads_; ++thread) threads.emplace_back(work, thread);
  work(0);
  for (std::thread& thread : threads) thread.join();
  KVANT_CHECK(sink.load() != 0);  // keeps the work alive in the optimiser's eyes
  return *std::max_element(seconds.begin(), seconds.end());
}

LoadSnapshot LinuxProbe::Snapshot() {
  LoadSnapshot snapshot;
  snapshot.time_s = Seconds(Clock::now().time_since_epoch());
  snapshot.own_cpu_s = CpuSeconds(RUSAGE_SELF) + CpuSeconds(RUSAGE_CHILDREN);
  const CpuTicks ticks = ParseProcStat(ReadAll("/proc/stat"), cpus_);
  const double tick_s = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  snapshot.busy_s = tick_s * static_cast<double>(ticks.busy);
  snapshot.steal_s = tick_s * static_cast<double>(ticks.steal);
  snapshot.has_wait = ReadWait(snapshot.wait_s);
  std::istringstream(ReadAll("/proc/loadavg")) >> snapshot.load_average;
  return snapshot;
}

void LinuxProbe::Rest(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace kvant::bench
