// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Ctrl-C: the first one asks the running command to end cleanly, the second one ends the process.
#pragma once

#include <atomic>

namespace kvant::cli {

void InstallInterruptHandler();
/// Set by the first Ctrl-C; commands poll it between steps.
std::atomic<bool>& InterruptFlag();

}  // namespace kvant::cli
