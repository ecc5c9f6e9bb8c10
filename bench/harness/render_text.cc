// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/render_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "bench/harness/published_tables.h"
#include "bench/harness/result.h"

namespace kvant::bench {
namespace {

using nlohmann::json;
using Align = TextTable::Align;

constexpr std::size_t kDetailColumns = 68;

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "unknown";
}

std::string RenderVerdict(const json& result) {
  const json& verdict = result.at("verdict");
  std::string status = verdict.at("status");
  std::transform(status.begin(), status.end(), status.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return fmt::format("{}: {}\n", status, verdict.at("sentence").get<std::string>());
}

std::string PhaseCell(const json& result, const json& row, const char* phase) {
  const json* found = FindResultRow(result, row.at("arm"), row.at("length"), phase);
  return found == nullptr ? "-" : MedianAndRange(*found);
}

// The length of the first arm only: rows of one length read as a group.
std::string LengthCell(const json& row, json& last_length) {
  if (row.at("length") == last_length) return "";
  last_length = row.at("length");
  return fmt::format("{}", last_length.get<std::size_t>());
}

std::string RenderSpeed(const json& result) {
  TextTable table({Align::kRight, Align::kLeft, Align::kRight, Align::kRight, Align::kRight,
                   Align::kLeft, Align::kLeft});
  table.AddRow({"length", "arm", "prefill tok/s", "first token ms", "decode tok/s",
                "decode against baseline", ""});
  std::size_t n = 0;
  json last_length;
  for (const json& row : result.at("rows")) {
    if (row.at("phase") != "prefill") continue;
    n = row.at("n");
    const std::string length = LengthCell(row, last_length);
    const json* decode = FindResultRow(result, row.at("arm"), row.at("length"), "decode");
    std::string flags;
    for (const json& flag : row.at("flags")) flags += fmt::format("! {} ", flag.get<std::string>());
    table.AddRow({length, row.at("arm"), PhaseCell(result, row, "prefill"),
                  PhaseCell(result, row, "ttft"), PhaseCell(result, row, "decode"),
                  decode == nullptr ? "no decode number" : AgainstBaseline(*decode), flags});
  }
  return fmt::format("Speed: median (min-max) of {} rounds, tokens counted at the sampler\n{}", n,
                     table.ToString());
}

std::string CiText(const json& value, const json& ci) {
  return fmt::format("{} [{}, {}]", Number(value), Number(ci.at(0)), Number(ci.at(1)));
}

std::string RenderFits(const json& result) {
  const json& fits = result.at("fits");
  if (fits.empty()) {
    return "Decode step against context: no line, it needs two lengths and enough steps\n";
  }
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.AddRow(
      {"arm", "ns per cached token", "intercept ms", "slope ratio", "faster than baseline"});
  for (const json& fit : fits) {
    const json& ratio = fit.at("slope_ratio");
    table.AddRow({fit.at("arm"), CiText(fit.at("slope_ns_per_token"), fit.at("slope_ci")),
                  CiText(fit.at("intercept_ms"), fit.at("intercept_ci")),
                  ratio.is_number() ? Number(ratio) : "-", BreakEvenText(fit)});
  }
  return fmt::format("Decode step = intercept + slope x context [{:.0f} % interval]\n{}",
                     100 * fits[0].at("confidence").get<double>(), table.ToString());
}

std::string RenderMemory(const json& result) {
  const json& memory = result.at("memory");
  if (memory.empty()) return "Memory: not measured\n";
  TextTable table({Align::kRight, Align::kLeft, Align::kRight, Align::kRight, Align::kRight,
                   Align::kRight, Align::kLeft});
  table.AddRow({"length", "arm", "process peak", "anonymous peak", "KV payload", "KV resident",
                "peak against baseline"});
  json last_length;
  for (const json& row : memory) {
    const json& against = row.at("against_baseline");
    table.AddRow({LengthCell(row, last_length), row.at("arm"), Megabytes(row.at("peak")),
                  Megabytes(row.at("rss_anon_peak_bytes")), Megabytes(row.at("payload")),
                  Megabytes(row.at("resident")),
                  against.is_null() ? "baseline" : AgainstBaseline(row)});
  }
  return "Memory: MB of 1e6 bytes, one process for each arm and length\n" + table.ToString();
}

std::string RenderChecks(const json& result) {
  TextTable table({Align::kLeft, Align::kLeft, Align::kLeft});
  for (const json& check : result.at("checks")) {
    const std::string verdict = check.at("verdict");
    std::string mark = verdict == "fail" ? "FAIL" : verdict == "pass" ? "ok" : "note";
    std::string name = check.at("name");
    for (const std::string& line : WrapText(check.at("detail"), kDetailColumns)) {
      table.AddRow({mark, name, line});
      mark.clear();
      name.clear();
    }
  }
  return "Checks\n" + table.ToString();
}

std::string RenderCells(const CellTable& cells) {
  std::vector<Align> columns;
  for (const bool numeric : cells.numeric) {
    columns.push_back(numeric ? Align::kRight : Align::kLeft);
  }
  TextTable table(columns);
  table.AddRow(cells.columns);
  std::string last_prompt;  // rows of one prompt read as a group
  for (std::vector<std::string> row : cells.rows) {
    if (cells.numeric[0] && row[0] == last_prompt) {
      row[0].clear();
    } else {
      last_prompt = row[0];
    }
    table.AddRow(row);
  }
  return fmt::format("{}\n{}{}\n", cells.title, table.ToString(),
                     cells.note.empty() ? "" : "  (" + cells.note + ")\n");
}

std::string RenderPublished(const json& result) {
  std::string text;
  for (const CellTable& table : MeasuredTables(result)) text += RenderCells(table);
  return text + RenderCells(FiguresTable(result)) + RenderCells(ArmsTable(result));
}

}  // namespace

void TextTable::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += columns_[i] == Align::kLeft ? fmt::format("  {:<{}}", row[i], widths[i])
                                          : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::vector<std::string> WrapText(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines = {""};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > columns) {
      lines.emplace_back();
    }
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::string Number(double value) {
  const double magnitude = std::fabs(value);
  // The limits are where rounding would reach the next digit: 9.996 is "10.0", not "10.00".
  if (magnitude >= 99.95 || magnitude == 0) return fmt::format("{:.0f}", value);
  if (magnitude >= 9.995) return fmt::format("{:.1f}", value);
  if (magnitude >= 0.9995) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3g}", value);
}

std::string Megabytes(double bytes) { return fmt::format("{:.1f}", bytes / 1e6); }

std::string MedianAndRange(const json& row) {
  return fmt::format("{} ({}-{})", Number(row.at("median")), Number(row.at("min")),
                     Number(row.at("max")));
}

std::string AgainstBaseline(const json& row) {
  const json& against = row.at("against_baseline");
  if (against.is_null()) return "baseline";
  const std::string verdict = against.at("verdict");
  if (verdict == "baseline") {
    return fmt::format("A/A +-{:.1f} %", 100 * (against.at("noise").at(1).get<double>() - 1));
  }
  if (verdict == "faster" || verdict == "slower" || verdict == "smaller" || verdict == "larger") {
    return fmt::format("{} x, {}", Number(against.at("ratio")), verdict);
  }
  return verdict;
}

std::string BreakEvenText(const json& fit) {
  const json& tokens = fit.at("break_even_tokens");
  const std::string note = fit.at("break_even_note");
  if (tokens.is_null()) return note;
  std::string text = tokens.is_string() ? tokens.get<std::string>()
                                        : fmt::format("from {:.0f} tokens", tokens.get<double>());
  return note.empty() ? text : fmt::format("{} ({})", text, note);
}

std::string ModelLine(const json& result) {
  const json& model = result.at("model");
  return fmt::format(
      "{} ({}), {} MB, {} layers, {} query / {} KV heads of {}", Text(model, "name"),
      Text(model, "weight_types"), Megabytes(model.at("file_bytes")),
      model.at("n_layer").get<std::size_t>(), model.at("n_q_head").get<std::size_t>(),
      model.at("n_kv_head").get<std::size_t>(), model.at("head_dim").get<std::size_t>());
}

std::string ModelNoticeOf(const json& result) { return result.at("model").value("notice", ""); }

std::string MachineLine(const json& result) {
  const json& env = result.at("env");
  const json& rows = result.at("rows");
  const std::string used =
      rows.empty() ? ""
                   : fmt::format(", {} threads, kernel {}",
                                 rows[0].at("threads").get<std::size_t>(), Text(rows[0], "kernel"));
  const std::string prefill = rows.empty() ? "" : rows[0].value("prefill", "");
  const double gb_s = env.at("read_bandwidth").at("median_gb_s");
  const double weight_bytes = result.at("model").at("weight_bytes");
  return fmt::format("{}, {} processors{}; reads {} GB/s, so the weights in {} ms",
                     Text(env.at("cpu"), "model"), env.at("cpu").at("online").get<std::size_t>(),
                     prefill.empty() ? used : used + ", prefill " + prefill, Number(gb_s), Number(weight_bytes / gb_s / 1e6));
}

std::string BuildLine(const json& result) {
  const json& build = result.at("build");
  return fmt::format("kvant {} {}{}, {}, {}", Text(build, "version"), Text(build, "commit"),
                     build.value("dirty", false) ? " with uncommitted changes" : "",
                     Text(build, "compiler"), Text(build, "type"));
}

const json* FindResultRow(const json& result, const std::string& arm, const json& length,
                          const std::string& phase) {
  for (const json& row : result.at("rows")) {
    if (row.at("arm") == arm && row.at("length") == length && row.at("phase") == phase) return &row;
  }
  return nullptr;
}

std::string RenderText(const json& result) {
  std::string text = fmt::format("kvant bench, protocol {}\n", Text(result.at("protocol"), "name"));
  text += fmt::format("  model    {}\n", ModelLine(result));
  if (const std::string notice = ModelNoticeOf(result); !notice.empty()) {
    text += fmt::format("           {}\n", notice);
  }
  text += fmt::format("  machine  {}\n", MachineLine(result));
  text += fmt::format("  build    {}\n\n", BuildLine(result));
  text += IsPublished(result) ? RenderPublished(result)
                              : RenderSpeed(result) + "\n" + RenderFits(result) + "\n" +
                                    RenderMemory(result) + "\n";
  text += RenderChecks(result) + "\n";
  text += fmt::format("Again: {}\n", result.at("command").get<std::string>());
  return text + RenderVerdict(result);
}

}  // namespace kvant::bench
