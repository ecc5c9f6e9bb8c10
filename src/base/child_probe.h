// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Runs something that may crash where a crash does no harm: in a child process.
#pragma once

#include <string>

namespace kvant {

/// Forks, calls `probe` in the child and waits for it. Returns why it failed in words that continue "the trial
/// ...": it returned false, a signal ended it, it took longer than `seconds`, no child could be started; empty
/// where it returned true. Output, files and memory of the child are gone with it. The probe may allocate but
/// must not rely on other threads: the child has none.
std::string RunInChild(bool (*probe)(), unsigned seconds);

}  // namespace kvant
