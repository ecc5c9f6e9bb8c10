// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What the operating system says about memory.
#pragma once

#include <cstdint>
#include <string>

namespace kvant {

/// Bytes that this process may still use: MemAvailable, or what is left below the control group's limit
/// when that is less. 0 where the system does not say.
std::uint64_t AvailableMemoryBytes();
/// Peak resident set of this process (VmHWM; mapped files count). 0 where the system does not say.
std::uint64_t ProcessPeakBytes();
/// "189.0 MiB": for people. Powers of 1024, one decimal from KiB up.
std::string FormatBytes(std::uint64_t bytes);

}  // namespace kvant
