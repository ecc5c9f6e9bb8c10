// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Progress of a run for people: a bar on a terminal, a line now and then otherwise.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "bench/harness/run.h"

namespace kvant::bench {

/// No output. For --quiet.
class SilentProgress : public ProgressSink {
 public:
  void Update(double, double, const std::string&) override {}
  void Note(const std::string&) override {}
};

class StreamProgress : public ProgressSink {
 public:
  /// Writes to `stream` (not owned), as a bar that overwrites itself where `is_terminal`.
  StreamProgress(std::FILE* stream, bool is_terminal)
      : stream_(stream), is_terminal_(is_terminal) {}
  ~StreamProgress() override { Clear(); }
  void Update(double done_s, double total_s, const std::string& doing) override;
  void Note(const std::string& sentence) override;
  /// Takes the bar away, so that a table can follow.
  void Clear();

 private:
  std::FILE* stream_;
  bool is_terminal_;
  bool has_bar_ = false;
  double last_line_s_ = -1e9;
};

/// "1:05" or "0:07".
std::string MinutesAndSeconds(double seconds);
/// "[########------------]  41 %  1:05 left  round 1 of 4, 231 tokens, fp16/a".
std::string ProgressLine(double done_s, double total_s, const std::string& doing, bool with_bar);

}  // namespace kvant::bench
