// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace kvant::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch such");

void OnInterrupt(int) {
  if (g_interrupted.exchange(true)) _exit(130);
}

}  // namespace

void InstallInterruptHandler() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  // No SA_RESTART: a read from the terminal ends, so that chat can leave.
  sigaction(SIGINT, &action, nullptr);
}

std::atomic<bool>& InterruptFlag() { return g_interrupted; }

}  // namespace kvant::cli
