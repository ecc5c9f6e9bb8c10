// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/child_probe.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace kvant {
namespace {

// Handlers of the parent (a sanitizer's, a host program's) must not report what the child does.
[[noreturn]] void ChildMain(bool (*probe)(), unsigned seconds) {
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGTRAP, SIGALRM}) {
    std::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  alarm(seconds);
  bool passed = false;
  try {
    passed = probe();
  } catch (...) {
    passed = false;
  }
  _exit(passed ? 0 : 1);
}

}  // namespace

std::string RunInChild(bool (*probe)(), unsigned seconds) {
  const pid_t child = fork();
  if (child < 0) return fmt::format("could not be started ({})", std::strerror(errno));
  if (child == 0) ChildMain(probe, seconds);
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(child, &status, 0);
  } while (ended < 0 && errno == EINTR);
  if (ended != child) return fmt::format("has no result ({})", std::strerror(errno));
  if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? "" : "gave a wrong result";
  if (WTERMSIG(status) == SIGALRM) return fmt::format("took longer than {} s", seconds);
  return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

}  // namespace kvant
