// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What one process of one arm and length held at most. A process runs one arm only: a high-water
// mark of several says nothing about any of them.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"

namespace kvant::bench {

/// Peaks of the tagged allocator in one phase, bytes by tag ("weights", "kv", ...), and of their
/// sum.
struct PhasePeaks {
  std::map<std::string, std::uint64_t> by_tag;
  std::uint64_t total = 0;
};

struct MemoryReport {
  // Process, from /proc/self/status. VmHWM is the kernel's own high-water mark of resident pages;
  // mapped file pages (weights read in place) count in it.
  std::uint64_t vm_hwm_bytes = 0;
  // Anonymous pages have no high-water mark in the kernel: RssAnon is sampled every millisecond, so
  // a shorter peak can be missed; the tagged peaks below cannot.
  std::uint64_t rss_anon_peak_bytes = 0;
  std::map<std::string, PhasePeaks> phases;  // "load", "prefill", "decode"
  KvReport kv;
  std::string storage;
};

nlohmann::json MemoryReportToJson(const MemoryReport& report);
/// Throws Error(kCorruptData) naming the missing or mistyped key.
MemoryReport MemoryReportFromJson(const nlohmann::json& json);

}  // namespace kvant::bench
