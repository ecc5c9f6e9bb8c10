// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/published_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/harness/render_text.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

constexpr const char* kAbsent = "-";

std::string Percent(double ratio) { return fmt::format("{:.1f} %", 100 * ratio); }

std::string Ratio(const json& ratio) {
  return ratio.is_number() ? fmt::format("{:.2f}", ratio.get<double>()) : kAbsent;
}

std::string AgainstCell(const json* row) {
  if (row == nullptr) return kAbsent;
  const json& ratio = row->at("against_baseline").at("ratio");
  return ratio.is_number() ? Percent(ratio) : kAbsent;
}

const json* FindMemoryRow(const json& result, const std::string& arm, const json& length) {
  for (const json& row : result.at("memory")) {
    if (row.at("arm") == arm && row.at("length") == length) return &row;
  }
  return nullptr;
}

// "120", or "61-120" where repeats differ.
std::string NewTokensCell(const json& row) {
  const std::vector<std::size_t> counts = row.at("new_tokens");
  if (counts.empty()) return kAbsent;
  const auto [low, high] = std::minmax_element(counts.begin(), counts.end());
  return *low == *high ? fmt::format("{}", *low) : fmt::format("{}-{}", *low, *high);
}

std::string FlagsCell(const json& row) {
  std::string flags;
  for (const json& flag : row.at("flags")) {
    flags += (flags.empty() ? "! " : "; ") + flag.get<std::string>();
  }
  return flags;
}

// Calls add(row, arm) for each "generate" row of the arms of one table, by length, in the table's
// order.
template <typename Add>
void ForEachRow(const json& result, const json& table, Add&& add) {
  for (const json& length : result.at("protocol").at("lengths")) {
    for (const json& arm : table.at("arms")) {
      const json* row = FindResultRow(result, arm, length, "generate");
      if (row != nullptr) add(*row, arm.get<std::string>(), length);
    }
  }
}

CellTable AsPublished(const json& result, const json& table) {
  const std::string baseline = result.at("protocol").at("arms").at(0).at("name");
  CellTable cells;
  cells.title = fmt::format("{}, this machine: the published columns, and decode alone",
                            table.at("title").get<std::string>());
  cells.note = "tok/s: new tokens by prefill and decode together; key ratio: packed vectors only";
  cells.columns = {"prompt",         "arm",       "tok/s median (min-max)", "peak MB",
                   "vs " + baseline, "key ratio", "decode-only tok/s",      "vs " + baseline};
  cells.numeric = {true, false, true, true, true, true, true, true};
  ForEachRow(result, table, [&](const json& row, const std::string& arm, const json& length) {
    const json* decode = FindResultRow(result, arm, length, "decode");
    const json* memory = FindMemoryRow(result, arm, length);
    cells.rows.push_back({fmt::format("{}", length.get<std::size_t>()), arm, MedianAndRange(row),
                          memory == nullptr ? kAbsent : Megabytes(memory->at("peak")),
                          AgainstCell(&row), Ratio(row.at("ratios").at("key_ratio_published")),
                          decode == nullptr ? kAbsent : MedianAndRange(*decode),
                          AgainstCell(decode)});
  });
  return cells;
}

CellTable BytesAndTokens(const json& result, const json& table) {
  CellTable cells;
  cells.title = fmt::format("{}: fp16 bytes by all resident bytes, and tokens",
                            table.at("title").get<std::string>());
  cells.note = "resident: packed blocks, exact rows, sinks and state, at the same number of tokens";
  cells.columns = {"prompt",
                   "arm",
                   "new tokens",
                   "key ratio resident",
                   "KV ratio resident",
                   "KV MB",
                   "anon peak MB",
                   "first token ms",
                   ""};
  cells.numeric = {true, false, true, true, true, true, true, true, false};
  ForEachRow(result, table, [&](const json& row, const std::string& arm, const json& length) {
    const json& ratios = row.at("ratios");
    const json* ttft = FindResultRow(result, arm, length, "ttft");
    const json* memory = FindMemoryRow(result, arm, length);
    cells.rows.push_back(
        {fmt::format("{}", length.get<std::size_t>()), arm, NewTokensCell(row),
         Ratio(ratios.at("key_ratio_resident")), Ratio(ratios.at("kv_ratio_resident")),
         Megabytes(ratios.at("resident_bytes")),
         memory == nullptr ? kAbsent : Megabytes(memory->at("rss_anon_peak_bytes")),
         ttft == nullptr ? kAbsent : Number(ttft->at("median")), FlagsCell(row)});
  });
  return cells;
}

}  // namespace

std::vector<CellTable> MeasuredTables(const json& result) {
  std::vector<CellTable> tables;
  for (const json& table : result.at("protocol").at("published").at("tables")) {
    tables.push_back(AsPublished(result, table));
    tables.push_back(BytesAndTokens(result, table));
  }
  return tables;
}

CellTable FiguresTable(const json& result) {
  const json& figures = result.at("protocol").at("published").at("figures");
  CellTable cells;
  cells.title =
      fmt::format("As published: {}; not measured here", figures.at("source").get<std::string>());
  cells.columns = {"prompt",  "arm",         "tok/s median (min-max)",
                   "peak MB", "vs baseline", "key ratio"};
  cells.numeric = {true, false, true, true, true, true};
  for (const json& row : figures.at("rows")) {
    cells.rows.push_back(
        {fmt::format("{}", row.at("prompt").get<std::size_t>()), row.at("arm"),
         fmt::format("{:.2f} ({:.2f}-{:.2f})", row.at("tok_s").get<double>(),
                     row.at("tok_s_min").get<double>(), row.at("tok_s_max").get<double>()),
         fmt::format("{:.0f}", row.at("peak_mb").get<double>()),
         Percent(row.at("against_baseline")), Ratio(row.at("key_ratio"))});
  }
  return cells;
}

CellTable ArmsTable(const json& result) {
  CellTable cells;
  cells.title = "Arms";
  cells.columns = {"arm", "method"};
  cells.numeric = {false, false};
  for (const json& arm : result.at("protocol").at("arms")) {
    cells.rows.push_back({arm.at("name"), arm.at("spec")});
  }
  return cells;
}

}  // namespace kvant::bench
