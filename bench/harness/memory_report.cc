// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/memory_report.h"

#include "base/error.h"
#include "bench/harness/kv_json.h"

namespace kvant::bench {

using nlohmann::json;

json MemoryReportToJson(const MemoryReport& report) {
  json phases = json::object();
  for (const auto& [name, peaks] : report.phases) {
    phases[name] = {{"by_tag", peaks.by_tag}, {"total", peaks.total}};
  }
  return {{"vm_hwm_bytes", report.vm_hwm_bytes},
          {"rss_anon_peak_bytes", report.rss_anon_peak_bytes},
          {"phases", phases},
          {"kv", KvToJson(report.kv)},
          {"storage", report.storage}};
}

MemoryReport MemoryReportFromJson(const json& object) {
  try {
    MemoryReport report;
    report.vm_hwm_bytes = object.at("vm_hwm_bytes").get<std::uint64_t>();
    report.rss_anon_peak_bytes = object.at("rss_anon_peak_bytes").get<std::uint64_t>();
    for (const auto& [name, peaks] : object.at("phases").items()) {
      report.phases[name] = {peaks.at("by_tag").get<std::map<std::string, std::uint64_t>>(),
                             peaks.at("total").get<std::uint64_t>()};
    }
    report.kv = KvFromJson(object.at("kv"));
    report.storage = object.at("storage").get<std::string>();
    return report;
  } catch (const json::exception& error) {
    Fail(ErrorCode::kCorruptData, "a memory report is not what the process should print: {}",
         error.what());
  }
}

}  // namespace kvant::bench
