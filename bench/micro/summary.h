// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The table at the end of a run: each method's attention beside that of fp16.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

#include "bench/micro/bench.h"

namespace kvant::micro {

/// Prints rows as Google Benchmark does and keeps their times. Of several repetitions it shows the median
/// and the coefficient of variation alone, unless `all_samples`; a file (--benchmark_out) holds all.
class SummaryReporter : public benchmark::ConsoleReporter {
 public:
  explicit SummaryReporter(bool all_samples);

  void ReportRuns(const std::vector<Run>& runs) override;

  /// Milliseconds of each repetition of a row by the clock that Stopwatch has for as many threads, in their
  /// order; empty for a row that did not run.
  const std::vector<double>& Samples(const AttendRow& row) const;
  /// Did any row say that it could not run or gave a wrong answer?
  bool failed() const { return failed_; }

 private:
  bool all_samples_;
  bool failed_ = false;
  std::map<std::string, std::vector<double>> wall_, cpu_;  // by row
};

/// Lines of the table, "" where no method was measured beside fp16:
///   time(method) / time(fp16)      for each context
///   slope                          microseconds for each cached token, least squares over the contexts of
///                                  2048 tokens or more, and its ratio to fp16's
/// Ratios are those of medians; the range in brackets is over the repetitions, the i-th of one with the
/// i-th of the other.
std::string RatioTable(const std::vector<AttendRow>& rows, const SummaryReporter& reporter);

}  // namespace kvant::micro
