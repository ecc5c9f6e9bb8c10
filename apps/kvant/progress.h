// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Progress of long work on stderr: a bar that is redrawn on a terminal, a line every few seconds
// otherwise. Short work (under a second) shows nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace kvant::cli {

class Progress {
 public:
  /// `label` says what is done, `unit` what is counted ("tokens").
  Progress(std::string label, std::string unit, bool quiet);
  ~Progress() { Finish(); }

  void Update(std::size_t done, std::size_t total);
  /// Clears the bar.
  void Finish();

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_, unit_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace kvant::cli
