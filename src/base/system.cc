// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/system.h"

#include <algorithm>
#include <fstream>
#include <string_view>

#include "base/error.h"

namespace kvant {
namespace {

// "Name:   123 kB" in a file of /proc; 0 where the line is absent.
std::uint64_t ReadKibLine(const char* path, std::string_view name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name, 0) == 0) return std::stoull(line.substr(name.size())) * 1024;
  }
  return 0;
}

// A file that holds one number; 0 where it is absent or says "max".
std::uint64_t ReadNumber(const char* path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : 0;
}

}  // namespace

std::uint64_t AvailableMemoryBytes() {
  std::uint64_t available = ReadKibLine("/proc/meminfo", "MemAvailable:");
  const std::uint64_t limit = ReadNumber("/sys/fs/cgroup/memory.max");
  const std::uint64_t used = ReadNumber("/sys/fs/cgroup/memory.current");
  if (limit != 0) available = std::min(available, limit > used ? limit - used : 0);
  return available;
}

std::uint64_t ProcessPeakBytes() { return ReadKibLine("/proc/self/status", "VmHWM:"); }

std::string FormatBytes(std::uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace kvant
