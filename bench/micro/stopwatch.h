// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The clock of rows and of the read bandwidth that they are compared with.
#pragma once

#include <time.h>

#include <cstddef>

namespace kvant::micro {

/// Work of one thread is timed by the processor time of that thread, which other programs do not lengthen;
/// work of several, whose waiting for each other counts, by wall time.
class Stopwatch {
 public:
  explicit Stopwatch(std::size_t n_threads)
      : clock_(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC), begin_(Now()) {}

  double Seconds() const { return Now() - begin_; }

 private:
  double Now() const {
    timespec now = {};
    clock_gettime(clock_, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  clockid_t clock_;
  double begin_;
};

}  // namespace kvant::micro
