// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Tables of the HTML report. Internal to the harness.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "bench/harness/svg_chart.h"

namespace kvant::bench {

/// One <table>; cells are escaped here. Columns of numbers are aligned by `numeric`. Cells wrap
/// only in a table of prose: a narrow screen scrolls the others.
class HtmlTable {
 public:
  HtmlTable(const std::vector<std::string>& header, std::vector<bool> numeric,
            bool is_prose = false)
      : numeric_(std::move(numeric)) {
    html_ = "<div class=\"scroll\"><table" + std::string(is_prose ? "" : " class=\"data\"") +
            "><thead><tr>" + Cells(header, "th") + "</tr></thead><tbody>\n";
  }
  void AddRow(const std::vector<std::string>& cells, const std::string& row_class = "") {
    html_ += fmt::format("<tr class=\"{}\">{}</tr>\n", row_class, Cells(cells, "td"));
  }
  std::string ToString() const { return html_ + "</tbody></table></div>\n"; }

 private:
  std::string Cells(const std::vector<std::string>& cells, const char* tag) const {
    std::string html;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      html += fmt::format("<{0}{1}>{2}</{0}>", tag, numeric_[i] ? " class=\"num\"" : "",
                          EscapeHtml(cells[i]));
    }
    return html;
  }
  std::vector<bool> numeric_;
  std::string html_;
};

}  // namespace kvant::bench
