// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tables of a result in mode "published", as cells: the terminal and the HTML report print the
// same ones. Made from the JSON alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvant::bench {

struct CellTable {
  std::string title;
  std::string note;  // one sentence below the table; may be empty
  std::vector<std::string> columns;
  std::vector<bool> numeric;  // of each column
  std::vector<std::vector<std::string>> rows;
};

/// For each table of the protocol: the published columns (with decode alone beside them), then
/// bytes and tokens. `result` is valid and IsPublished.
std::vector<CellTable> MeasuredTables(const nlohmann::json& result);
/// What was published, with its hardware. It is never in a table with what was measured here.
CellTable FiguresTable(const nlohmann::json& result);
/// Which method each arm is.
CellTable ArmsTable(const nlohmann::json& result);

}  // namespace kvant::bench
