// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace kvant::cli {
namespace {

constexpr double kFirstShown = 1.0;      // seconds
constexpr double kTerminalEvery = 0.1;
constexpr double kLineEvery = 5.0;
constexpr std::size_t kBarWidth = 30;

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Progress::Progress(std::string label, std::string unit, bool quiet)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(Clock::now()),
      last_(start_) {}

void Progress::Update(std::size_t done, std::size_t total) {
  const auto now = Clock::now();
  const double elapsed = Seconds(now - start_);
  if (quiet_ || total == 0 || elapsed < kFirstShown) return;
  if (done < total && (drawn_ || !terminal_) &&
      Seconds(now - last_) < (terminal_ ? kTerminalEvery : kLineEvery)) {
    return;
  }
  last_ = now;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double left = share > 0 ? elapsed / share - elapsed : 0;
  if (terminal_) {
    const auto filled = static_cast<std::size_t>(share * kBarWidth);
    fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {}/{} {}, {:.0f} s left ", label_, "", filled, "",
               kBarWidth - filled, done, total, unit_, left);
    std::fflush(stderr);
    drawn_ = true;
  } else if (done < total) {
    fmt::print(stderr, "{}: {}/{} {}, {:.0f} s left\n", label_, done, total, unit_, left);
  }
}

void Progress::Finish() {
  if (drawn_) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }
  drawn_ = false;
}

}  // namespace kvant::cli
