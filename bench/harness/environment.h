// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The conditions of a number: machine, system and build, as JSON for the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace kvant::bench {

/// What a plain streaming read reaches here: the ceiling of a decode step, which reads every
/// weight.
struct ReadBandwidth {
  std::uint64_t bytes = 0;  // of the buffer
  std::size_t n_threads = 0;
  double median_gb_s = 0, max_gb_s = 0;  // 1e9 bytes per second, over the passes
};

/// Reads a buffer larger than the last-level cache several times with n_threads threads. The buffer
/// is twice that cache, at least 64 MiB, at most 512 MiB and a quarter of the free memory.
ReadBandwidth MeasureReadBandwidth(std::size_t n_threads);

/// CPU, flags that matter to kernels, caches, governor, memory, system, load, huge pages, time.
/// What the system does not tell is null. `bandwidth` is stored with it.
nlohmann::json DescribeEnvironment(const ReadBandwidth& bandwidth);
/// Version, commit, dirty flag, compiler, build type, sanitizers.
nlohmann::json DescribeBuild();

/// Bytes of the largest cache of processor 0; 0 where the system does not tell.
std::uint64_t LastLevelCacheBytes();
/// "480K", "2048K", "32M" -> bytes; 0 for anything else.
std::uint64_t ParseCacheSize(const std::string& text);
/// UTC now: "2025-11-30T04-55-00Z", fit for a folder name.
std::string UtcStamp();

}  // namespace kvant::bench
