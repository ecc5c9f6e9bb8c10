// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Runs another program without a shell and stops it when the user stops kvant. Used by `kvant fetch`.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace kvant::cli {

/// While it lives, SIGINT, SIGTERM and SIGHUP do not end the process but are remembered, so that
/// temporary files can be removed. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Throws Error(kCancelled) when a signal has arrived.
  void ThrowIfInterrupted() const;

 private:
  struct sigaction previous_[3];
};

struct ProcessOutput {
  int stdout_fd = 1;  // file descriptors that the program writes to
  int stderr_fd = 2;
};

/// Runs argv[0] (looked up in PATH) to its end and returns its exit status, 128 + signal when it was
/// killed. Throws Error(kNotFound) when there is no such program and Error(kCancelled), after ending
/// the program, when `guard` saw a signal.
int RunProcess(const std::vector<std::string>& argv, const ProcessOutput& output,
               const InterruptGuard& guard);

}  // namespace kvant::cli
