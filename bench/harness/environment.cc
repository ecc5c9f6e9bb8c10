// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/system.h"
#include "kvant_build_id.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

// First line of a small file; empty where it cannot be read.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

json TextOrNull(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

// Value of "key : value" or "key=value" in a file of such lines; empty where absent.
std::string FindValue(const std::string& path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    if (line.find_last_not_of(" \t", at - 1) + 1 != key.size()) continue;  // a longer key
    const std::size_t begin = line.find_first_not_of(" \t\"", at + 1);
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(" \t\"") - begin + 1);
  }
  return "";
}

std::uint64_t MeminfoBytes(std::string_view key) {
  return std::strtoull(FindValue("/proc/meminfo", key, ':').c_str(), nullptr, 10) * 1024;
}

// Those that decide which kernel runs, and whether this is a virtual machine.
json RelevantFlags() {
  constexpr std::array<std::string_view, 15> kRelevant = {
      "sse4_2",      "avx",          "f16c",     "fma",         "avx2",
      "avx512f",     "avx512bw",     "avx512vl", "avx512_vnni", "avx512_bf16",
      "avx512_fp16", "avx512_vbmi2", "amx_int8", "amx_bf16",    "hypervisor"};
  std::string text = FindValue("/proc/cpuinfo", "flags", ':');
  if (text.empty()) text = FindValue("/proc/cpuinfo", "Features", ':');  // ARM
  std::istringstream flags(text);
  json found = json::array();
  for (std::string flag; flags >> flag;) {
    const bool is_relevant =
        std::find(kRelevant.begin(), kRelevant.end(), flag) != kRelevant.end() ||
        flag.rfind("asimd", 0) == 0 || flag.rfind("sve", 0) == 0;
    if (is_relevant) found.push_back(flag);
  }
  return found;
}

json Caches() {
  json caches = json::array();
  const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index";
  for (int index = 0; index < 8; ++index) {
    const std::string base = folder + std::to_string(index) + "/";
    const std::string size = FirstLine(base + "size");
    if (size.empty()) break;
    caches.push_back({{"level", std::atoi(FirstLine(base + "level").c_str())},
                      {"type", FirstLine(base + "type")},
                      {"bytes", ParseCacheSize(size)}});
  }
  return caches;
}

json LoadAverages() {
  std::istringstream line(FirstLine("/proc/loadavg"));
  std::vector<double> values;
  for (double value = 0; values.size() < 3 && line >> value;) values.push_back(value);
  return values;
}

std::string FormatUtc(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  std::array<char, 64> text = {};
  return std::string(text.data(), std::strftime(text.data(), text.size(), format, &utc));
}

}  // namespace

std::uint64_t ParseCacheSize(const std::string& text) {
  char* end = nullptr;
  const std::uint64_t number = std::strtoull(text.c_str(), &end, 10);
  const std::string_view suffix = end;
  if (suffix == "K") return number << 10;
  if (suffix == "M") return number << 20;
  return 0;
}

std::uint64_t LastLevelCacheBytes() {
  std::uint64_t largest = 0;
  for (const json& cache : Caches())
    largest = std::max(largest, cache["bytes"].get<std::uint64_t>());
  return largest;
}

std::string UtcStamp() { return FormatUtc("%Y-%m-%dT%H-%M-%SZ"); }

json DescribeEnvironment(const ReadBandwidth& bandwidth) {
  utsname system = {};
  uname(&system);
  std::string model = FindValue("/proc/cpuinfo", "model name", ':');
  if (model.empty()) model = FindValue("/proc/cpuinfo", "CPU part", ':');
  return {{"time_utc", FormatUtc("%Y-%m-%dT%H:%M:%SZ")},
          {"cpu",
           {{"model", TextOrNull(model)},
            {"online", sysconf(_SC_NPROCESSORS_ONLN)},
            {"flags", RelevantFlags()},
            {"caches", Caches()},
            {"governor",
             TextOrNull(FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))}}},
          {"gpu", nullptr},
          {"memory",
           {{"total_bytes", MeminfoBytes("MemTotal")},
            {"available_bytes", AvailableMemoryBytes()},
            {"transparent_huge_pages",
             TextOrNull(FirstLine("/sys/kernel/mm/transparent_hugepage/enabled"))}}},
          {"read_bandwidth",
           {{"buffer_bytes", bandwidth.bytes},
            {"threads", bandwidth.n_threads},
            {"median_gb_s", bandwidth.median_gb_s},
            {"max_gb_s", bandwidth.max_gb_s},
            // A buffer that fits the cache measures the cache.
            {"exceeds_cache", bandwidth.bytes > LastLevelCacheBytes()}}},
          {"system",
           {{"kernel", std::string(system.sysname) + " " + system.release},
            {"machine", system.machine},
            {"os", TextOrNull(FindValue("/etc/os-release", "PRETTY_NAME", '='))}}},
          {"load_average", LoadAverages()}};
}

json DescribeBuild() {
  return {{"version", KVANT_VERSION},   {"commit", KVANT_BUILD_COMMIT},
          {"dirty", KVANT_BUILD_DIRTY}, {"compiler", KVANT_BUILD_COMPILER},
          {"type", KVANT_BUILD_TYPE},   {"sanitize", KVANT_BUILD_SANITIZE},
          {"cuda", KVANT_BUILD_CUDA}};
}

}  // namespace kvant::bench
