// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "base/error.h"

extern "C" char** environ;

namespace kvant::cli {
namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t interrupted = 0;

void Remember(int) { interrupted = 1; }

/// Waits by polling, so that a signal between a check and a blocking wait cannot be lost.
int WaitFor(pid_t child, const InterruptGuard& guard) {
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 && errno != EINTR) {
      Fail(ErrorCode::kInternal, "waiting for a program failed: {}", std::strerror(errno));
    }
    try {
      guard.ThrowIfInterrupted();
    } catch (...) {
      kill(child, SIGTERM);
      waitpid(child, &status, 0);
      throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = Remember;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &previous_[i]);
    // A caller that ignores a signal (nohup) goes on ignoring it.
    if (previous_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
}

void InterruptGuard::ThrowIfInterrupted() const {
  if (interrupted != 0) Fail(ErrorCode::kCancelled, "stopped; nothing was left half-done");
}

int RunProcess(const std::vector<std::string>& argv, const ProcessOutput& output,
               const InterruptGuard& guard) {
  guard.ThrowIfInterrupted();
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.stdout_fd, 1);
  posix_spawn_file_actions_adddup2(&actions, output.stderr_fd, 2);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, argv[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    Fail(ErrorCode::kNotFound, "the program {} could not be started ({}); install it and try again",
         argv[0], std::strerror(error));
  }
  const int status = WaitFor(child, guard);
  guard.ThrowIfInterrupted();  // the terminal sends the signal to the program, too: not its failure
  return status;
}

}  // namespace kvant::cli
