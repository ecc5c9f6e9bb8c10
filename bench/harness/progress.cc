// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvant::bench {
namespace {

constexpr double kSecondsBetweenLines = 10;
constexpr std::size_t kBarWidth = 20;
constexpr std::size_t kTerminalColumns = 79;

}  // namespace

std::string MinutesAndSeconds(double seconds) {
  const long whole = std::lround(std::max(seconds, 0.0));
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string ProgressLine(double done_s, double total_s, const std::string& doing, bool with_bar) {
  const double part = total_s > 0 ? std::clamp(done_s / total_s, 0.0, 1.0) : 0.0;
  const std::size_t filled = static_cast<std::size_t>(part * kBarWidth);
  const std::string bar = with_bar ? fmt::format("[{}{}] ", std::string(filled, '#'),
                                                 std::string(kBarWidth - filled, '-'))
                                   : "";
  return fmt::format("{}{:3.0f} %  {} left  {}", bar, 100 * part,
                     MinutesAndSeconds(total_s - done_s), doing);
}

void StreamProgress::Update(double done_s, double total_s, const std::string& doing) {
  if (is_terminal_) {
    // A wrapped line could not be overwritten.
    const std::string line = ProgressLine(done_s, total_s, doing, true).substr(0, kTerminalColumns);
    std::fprintf(stream_, "\r\033[K%s", line.c_str());
    has_bar_ = true;
  } else if (done_s - last_line_s_ >= kSecondsBetweenLines) {
    std::fprintf(stream_, "%s\n", ProgressLine(done_s, total_s, doing, false).c_str());
    last_line_s_ = done_s;
  }
  std::fflush(stream_);
}

void StreamProgress::Note(const std::string& sentence) {
  Clear();
  std::fprintf(stream_, "kvant bench: %s\n", sentence.c_str());
  std::fflush(stream_);
}

void StreamProgress::Clear() {
  if (has_bar_) std::fprintf(stream_, "\r\033[K");
  has_bar_ = false;
  std::fflush(stream_);
}

}  // namespace kvant::bench
