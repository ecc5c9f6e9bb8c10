// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/render_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "bench/harness/html_style.h"
#include "bench/harness/html_table.h"
#include "bench/harness/published_tables.h"
#include "bench/harness/render_text.h"
#include "bench/harness/result.h"
#include "bench/harness/svg_chart.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

std::vector<std::string> ArmNames(const json& result) {
  std::vector<std::string> names;
  for (const json& arm : result.at("protocol").at("arms")) names.push_back(arm.at("name"));
  return names;
}

// Medians with ranges of one phase, a series for each arm.
Chart PhaseChart(const json& result, const char* phase) {
  Chart chart;
  std::size_t color = 0;
  for (const std::string& arm : ArmNames(result)) {
    ChartSeries series{arm, {}, false, color++};
    for (const json& row : result.at("rows")) {
      if (row.at("arm") != arm || row.at("phase") != phase) continue;
      series.points.push_back({row.at("length"), row.at("median"), row.at("min"), row.at("max")});
    }
    chart.series.push_back(series);
  }
  return chart;
}

std::string DecodeCharts(const json& result) {
  Chart speed = PhaseChart(result, "decode");
  speed.title = "Decode speed against context: median and range";
  speed.x_label = "prompt tokens in the cache";
  speed.y_label = "decode, tokens per second";
  Chart step = PhaseChart(result, "step");
  step.title = "Decode step against context: median and range, fitted line dashed";
  step.x_label = "prompt tokens in the cache";
  step.y_label = "step, ms";
  step.is_log_x = false;
  const json& fits = result.at("fits");
  for (std::size_t i = 0; i < fits.size(); ++i) {
    const double slope_ms = 1e-6 * fits[i].at("slope_ns_per_token").get<double>();
    const double intercept_ms = fits[i].at("intercept_ms");
    ChartSeries line{fits[i].at("arm"), {}, true, i};
    for (const json& length : fits[i].at("lengths")) {
      // A row's steps begin at its length; the line is drawn where their middle is.
      const double steps = result.at("protocol").at("decode_steps");
      const double y = intercept_ms + slope_ms * (length.get<double>() + (steps + 1) / 2);
      line.points.push_back({length, y, y, y});
    }
    step.series.push_back(line);
  }
  return RenderChart(speed) + RenderChart(step);
}

// One value of memory[] for each arm against length.
std::string MemoryChart(const json& result, const char* key, const char* title) {
  Chart chart;
  chart.title = title;
  chart.x_label = "prompt tokens";
  chart.y_label = "MB";
  chart.is_log_x = false;
  std::size_t color = 0;
  for (const std::string& arm : ArmNames(result)) {
    ChartSeries series{arm, {}, false, color++};
    for (const json& row : result.at("memory")) {
      if (row.at("arm") != arm) continue;
      const double mb = row.at(key).get<double>() / 1e6;
      series.points.push_back({row.at("length"), mb, mb, mb});
    }
    chart.series.push_back(series);
  }
  return RenderChart(chart);
}

std::string SpeedTable(const json& result) {
  HtmlTable table({"length", "arm", "prefill tok/s", "first token ms", "decode tok/s",
                   "step ms, 95 %", "decode against baseline"},
                  {true, false, true, true, true, true, false});
  for (const json& row : result.at("rows")) {
    if (row.at("phase") != "prefill") continue;
    const auto find = [&](const char* phase) {
      return FindResultRow(result, row.at("arm"), row.at("length"), phase);
    };
    const json* ttft = find("ttft");
    const json* decode = find("decode");
    const json* step = find("step");
    std::string flags;
    for (const json& flag : row.at("flags")) flags += "; " + flag.get<std::string>();
    table.AddRow({fmt::format("{}", row.at("length").get<std::size_t>()), row.at("arm"),
                  MedianAndRange(row), ttft == nullptr ? "-" : MedianAndRange(*ttft),
                  decode == nullptr ? "-" : MedianAndRange(*decode),
                  step == nullptr ? "-" : Number(step->at("p95")),
                  (decode == nullptr ? "no decode number" : AgainstBaseline(*decode)) + flags});
  }
  return table.ToString();
}

std::string FitTable(const json& result) {
  if (result.at("fits").empty()) return "<p>No line: it needs two lengths and enough steps.</p>\n";
  HtmlTable table({"arm", "ns per cached token", "interval", "intercept ms", "interval",
                   "slope ratio", "faster than baseline"},
                  {false, true, true, true, true, true, false});
  for (const json& fit : result.at("fits")) {
    const auto interval = [&](const char* key) {
      return fmt::format("{} - {}", Number(fit.at(key).at(0)), Number(fit.at(key).at(1)));
    };
    const json& ratio = fit.at("slope_ratio");
    table.AddRow({fit.at("arm"), Number(fit.at("slope_ns_per_token")), interval("slope_ci"),
                  Number(fit.at("intercept_ms")), interval("intercept_ci"),
                  ratio.is_number() ? Number(ratio) : "-", BreakEvenText(fit)});
  }
  return table.ToString();
}

std::string MemoryTable(const json& result) {
  if (result.at("memory").empty()) return "<p>Memory was not measured.</p>\n";
  HtmlTable table({"length", "arm", "process peak MB", "anonymous peak MB", "KV payload MB",
                   "KV resident MB", "KV peak MB", "peak against baseline"},
                  {true, false, true, true, true, true, true, false});
  for (const json& row : result.at("memory")) {
    table.AddRow({fmt::format("{}", row.at("length").get<std::size_t>()), row.at("arm"),
                  Megabytes(row.at("peak")), Megabytes(row.at("rss_anon_peak_bytes")),
                  Megabytes(row.at("payload")), Megabytes(row.at("resident")),
                  Megabytes(row.at("kv").at("peak_bytes")), AgainstBaseline(row)});
  }
  return table.ToString();
}

// Where the allocated bytes were, at the longest length of each arm. A tag's peaks need not be at
// the same moment, so the sum at once is less than their sum.
std::string TagTable(const json& result) {
  json longest = 0;
  std::set<std::string> tags;
  for (const json& row : result.at("memory")) {
    longest = std::max(longest, row.at("length"));
    for (const json& peaks : row.at("phases")) {
      for (const auto& [tag, bytes] : peaks.at("by_tag").items()) {
        if (bytes != 0) tags.insert(tag);
      }
    }
  }
  std::vector<std::string> header = {"arm", "phase", "sum at once MB"};
  for (const std::string& tag : tags) header.push_back(tag + " MB");
  std::vector<bool> numeric(header.size(), true);
  numeric[0] = numeric[1] = false;
  HtmlTable table(header, numeric);
  for (const json& row : result.at("memory")) {
    if (row.at("length") != longest) continue;
    for (const char* phase : {"load", "prefill", "decode"}) {
      if (!row.at("phases").contains(phase)) continue;
      const json& peaks = row.at("phases").at(phase);
      std::vector<std::string> cells = {row.at("arm"), phase, Megabytes(peaks.at("total"))};
      for (const std::string& tag : tags) {
        cells.push_back(Megabytes(peaks.at("by_tag").value(tag, 0.0)));
      }
      table.AddRow(cells);
    }
  }
  return table.ToString();
}

std::string CheckTable(const json& result) {
  HtmlTable table({"verdict", "check", "what was seen"}, {false, false, false}, true);
  for (const json& check : result.at("checks")) {
    const std::string verdict = check.at("verdict");
    table.AddRow({verdict, check.at("name"), check.at("detail")}, verdict);
  }
  return table.ToString();
}

// Every leaf of env and build: a reader decides what mattered.
void AddLeaves(const json& value, const std::string& name, HtmlTable& table) {
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      AddLeaves(item, name.empty() ? key : name + " / " + key, table);
    }
    return;
  }
  const bool is_long_list = value.is_array() && value.size() > 20;
  const std::string text = is_long_list        ? fmt::format("{} values, in the JSON", value.size())
                           : value.is_string() ? value.get<std::string>()
                           : value.is_null()   ? std::string("not told by this system")
                                               : value.dump();
  table.AddRow({name, text});
}

std::string EnvironmentTable(const json& result) {
  HtmlTable table({"what", "value"}, {false, false}, true);
  AddLeaves(result.at("model"), "model", table);
  AddLeaves(result.at("build"), "build", table);
  AddLeaves(result.at("env"), "", table);
  return table.ToString();
}

std::string Section(const std::string& title, const std::string& body) {
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", EscapeHtml(title), body);
}

std::string HonestSections(const json& result) {
  return Section("Speed", SpeedTable(result) + DecodeCharts(result)) +
         Section("Decode step = intercept + slope x context", FitTable(result)) +
         Section("Memory",
                 MemoryTable(result) +
                     MemoryChart(result, "peak", "Peak memory of the process against context") +
                     MemoryChart(result, "resident", "Bytes of the KV cache against context"));
}

std::string CellSection(const CellTable& cells) {
  HtmlTable table(cells.columns, cells.numeric);
  for (const std::vector<std::string>& row : cells.rows) table.AddRow(row);
  const std::string note =
      cells.note.empty() ? "" : fmt::format("<p>{}.</p>\n", EscapeHtml(cells.note));
  return Section(cells.title, table.ToString() + note);
}

std::string PublishedSections(const json& result) {
  std::string html;
  for (const CellTable& table : MeasuredTables(result)) html += CellSection(table);
  html += CellSection(FiguresTable(result)) + CellSection(ArmsTable(result));
  return html + Section("Memory", MemoryTable(result));
}

}  // namespace

std::string RenderHtml(const json& result) {
  const json& verdict = result.at("verdict");
  const std::string status = verdict.at("status");
  const std::string title = "kvant bench: " + result.at("model").value("name", "model");
  const std::string css_class = status == "result" ? "good" : status == "not a result" ? "bad" : "";
  std::string body =
      fmt::format("<h1>{}</h1>\n<p class=\"verdict {}\"><b>{}</b>: {}</p>\n", EscapeHtml(title),
                  css_class, EscapeHtml(status), EscapeHtml(verdict.at("sentence")));
  if (const std::string notice = ModelNoticeOf(result); !notice.empty()) {
    body += fmt::format("<p class=\"verdict\"><b>{}</b></p>\n", EscapeHtml(notice));
  }
  body += fmt::format("<ul class=\"facts\"><li>{}</li><li>{}</li><li>{}</li></ul>\n",
                      EscapeHtml(ModelLine(result)), EscapeHtml(MachineLine(result)),
                      EscapeHtml(BuildLine(result)));
  body += IsPublished(result) ? PublishedSections(result) : HonestSections(result);
  body += Section("Checks", CheckTable(result));
  body += Section("Run it again", fmt::format("<pre>{}</pre>\n", EscapeHtml(result.at("command"))));
  if (!result.at("memory").empty()) {
    body += Section("Allocated bytes by tag and phase, longest length", TagTable(result));
  }
  body += Section("Conditions", EnvironmentTable(result));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><title>{}</title>\n<style>{}</style>"
      "</head><body><main>\n{}</main></body></html>\n",
      EscapeHtml(title), kHtmlStyle, body);
}

}  // namespace kvant::bench
